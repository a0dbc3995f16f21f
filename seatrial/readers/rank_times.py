"""Read how long each rank computes, as Megatron-LM logs it: its StragglerDetector, and its timers
of all ranks. Pure.

Source: StragglerDetector.report in megatron/core/utils.py, and megatron/core/timers.py. Both
measure kernels without the wait for other ranks, so a rank that takes longer than most is slow
itself. Stages of a pipeline differ by their layers: only a few ranks far from the others are named.
"""

import re
from statistics import median

from seatrial.readers.report import Lines, Report, Result, degraded, passed
from seatrial.readers.stragglers import STRAGGLER, THRESHOLD
from seatrial.text.lazy_pattern import lazy

Times = dict[int, list[float]]  # in ms, by rank
# Timers without communication
_COMPUTE = ("forward-compute", "backward-compute", "optimizer-inner-step")
# What reports say of the slowest and the fastest rank: the metric, its unit, and in words
_METRICS = (
    ("Clk", "MHz", "runs at"),
    ("Etpt", "TFLOP/s", "computes"),
)
_FEW = 16  # one in so many ranks may be called slow; more are a stage of the pipeline
# `INFO:megatron.core.utils:[2026-03-14 23:07:56] | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: ...`
_REPORT = lazy(r"\A.{0,200}?\| ?MnRtt/Rnk: ")
# `MnEtpt/Rnk: 338.11TF/3`
_EXTREME = lazy(r"(M[nx])(Clk|Etpt)/Rnk: (\d{1,7}(?:\.\d{1,3})?)(?:MHz|TF)/(\d{1,7})")
# `times across ranks (ms):`
_TIMES = lazy(
    r"\A.{0,120}?(?:times across ranks|\(min, max\) time across ranks|max time across "
    r"ranks) \(ms\):"
)
# `forward-compute:`
_TIMER = lazy(r"\A\s{1,8}([a-z][\w-]{2,60}):\s*$")
# `rank  3: 1203.45`
_RANK = lazy(r"\A\s{2,12}rank\s{1,7}(\d{1,7}): (\d{1,9}(?:\.\d{1,3})?)\s*$")
# `forward-compute ................................: (1203.45, 1311.02)`
_RANGE = lazy(r"\A\s{1,8}([a-z][\w-]{2,60}) ?\.{0,48}: \((\d{1,9}\.\d{1,3}), (\d{1,9}\.\d{1,3})\)")
BEGINS = lazy(rf"{_REPORT.pattern}|{_TIMES.pattern}")
LINE = lazy(
    rf"{BEGINS.pattern}|{_TIMER.pattern}|{_RANK.pattern}|{_RANGE.pattern}|\A.{{0,120}}?\^\^\^\^ (?:Bottom|Top) \d"
)


def read_rank_times(lines: Lines) -> Report:
    """Name the ranks that compute slower than the others; minima and maxima without a rank are a
    note.

    `lines` are those of one log, of reports and of timers, in its order. The report passes where
    something was compared and nothing is slow.
    """
    reports = [line for line in lines if _REPORT.match(line)]
    by_rank: dict[int, list[str]] = {}
    for line in reports:
        slow = _slow_rank(line)
        if slow is not None:
            rank, words = slow
            by_rank.setdefault(rank, []).append(words)
    results = [
        degraded(STRAGGLER, f"rank {rank} {of_rank[-1]}")
        for rank, of_rank in by_rank.items()
        if 2 * len(of_rank) >= len(reports)  # one slow interval is no straggler
    ]
    for timer, times in _by_timer(lines).items():
        if timer in _COMPUTE:
            results += _of_timer(timer, times)
    ranges = list(filter(None, map(_RANGE.match, lines)))
    if not results and (reports or ranges):
        results.append(passed("ranks"))
    # Each once: a log has the same times again and again
    notes = dict.fromkeys(map(_note_of, ranges))
    notes.pop("", None)
    return Report("times of ranks", results, notes=tuple(notes))


def _slow_rank(line: str) -> tuple[int, str] | None:
    """Return the slowest rank of a report by its clock, else by its throughput; None if all are
    alike.

    With the rank comes what it does in words: "runs at 1200 of 1980 MHz".
    """
    extremes: dict[str, tuple[float, int]] = {}
    for which, metric, value, rank in _EXTREME.findall(line):
        extremes[which + metric] = float(value), int(rank)
    for metric, unit, verb in _METRICS:
        least = extremes.get(f"Mn{metric}")
        most = extremes.get(f"Mx{metric}")
        if least is None or most is None:
            continue
        low, rank_of_low = least
        high, _ = most
        if low < THRESHOLD * high:
            return rank_of_low, f"{verb} {low:g} of {high:g} {unit}"
    return None


def _by_timer(lines: Lines) -> dict[str, Times]:
    """Return the times of each rank by timer, in ms.

    A timer's heading is followed by a line for each rank; any other line ends them. A timer that is
    logged more than once has several times for a rank.
    """
    times: dict[str, Times] = {}
    timer = ""
    for line in lines:
        heading = _TIMER.match(line)
        of_rank = _RANK.match(line)
        if heading:
            timer = heading[1]
        elif timer and of_rank:
            of_timer = times.setdefault(timer, {})
            rank = int(of_rank[1])
            of_timer.setdefault(rank, []).append(float(of_rank[2]))
        else:
            timer = ""
    return times


def _of_timer(timer: str, times: Times) -> list[Result]:
    """Return the ranks that take much longer than most, unless so many do that they are a stage of
    the pipeline.

    `times` are those of one timer; nothing is said of fewer than three ranks.
    """
    if len(times) < 3:  # of two, neither is the usual one
        return []
    usual_of_rank = {rank: median(values) for rank, values in times.items()}
    usual = median(usual_of_rank.values())
    slow = {rank: ms for rank, ms in usual_of_rank.items() if ms * THRESHOLD > usual}
    most = max(1, len(times) // _FEW)
    if not slow or len(slow) > most:
        return [passed(timer)]
    return [
        degraded(STRAGGLER, f"rank {rank} takes {ms:,.0f} ms for {timer}, others {usual:,.0f} ms")
        for rank, ms in slow.items()
    ]


def _note_of(match: re.Match[str]) -> str:
    """Return a note on a timer whose slowest rank takes much longer than its fastest; empty for any
    other.

    Minima and maxima do not say which rank it is, so nothing is judged by them.
    """
    timer = match[1]
    low = float(match[2])
    high = float(match[3])
    if timer not in _COMPUTE:  # others may wait for other ranks
        return ""
    if not low or low > THRESHOLD * high:
        return ""
    return f"{timer} takes {low:,.0f} to {high:,.0f} ms, by rank"
