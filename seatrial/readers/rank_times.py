"""Read how long each rank computes, as Megatron-LM logs it: its StragglerDetector, and its timers of all ranks. Pure.

Source: StragglerDetector.report in megatron/core/utils.py, and megatron/core/timers.py. Both measure kernels without
the wait for other ranks, so a rank that takes longer than most is slow itself. Stages of a pipeline differ by their
layers: only a few ranks far from the others are named.
"""

import re
from collections.abc import Iterator, Sequence
from statistics import median

from seatrial.model.verdict import Verdict
from seatrial.readers.report import SAYS_BAD, Report, Result
from seatrial.readers.stragglers import STRAGGLER, THRESHOLD

_COMPUTE = ("forward-compute", "backward-compute", "optimizer-inner-step")  # timers without communication
_FEW = 16  # of so many ranks one may be called slow: more are a stage of the pipeline
_REPORT = re.compile(r"\A.{0,200}?\| ?MnRtt/Rnk: ")
_EXTREME = re.compile(r"(M[nx])(Clk|Etpt)/Rnk: (\d{1,7}(?:\.\d{1,3})?)(?:MHz|TF)/(\d{1,7})")
_TIMES = re.compile(r"\A.{0,120}?(?:times across ranks|\(min, max\) time across ranks|max time across ranks) \(ms\):")
_TIMER = re.compile(r"\A\s{1,8}([a-z][\w-]{2,60}):\s*$")
_RANK = re.compile(r"\A\s{2,12}rank\s{1,7}(\d{1,7}): (\d{1,9}(?:\.\d{1,3})?)\s*$")
_RANGE = re.compile(r"\A\s{1,8}([a-z][\w-]{2,60}) ?\.{0,48}: \((\d{1,9}\.\d{1,3}), (\d{1,9}\.\d{1,3})\)")
BEGINS = re.compile(rf"{_REPORT.pattern}|{_TIMES.pattern}")
LINE = re.compile(
    rf"{BEGINS.pattern}|{_TIMER.pattern}|{_RANK.pattern}|{_RANGE.pattern}|\A.{{0,120}}?\^\^\^\^ (?:Bottom|Top) \d"
)


def read_rank_times(lines: Sequence[str]) -> Report:
    """Name the ranks that compute slower than the others; minima and maxima without a rank are a note."""
    reports = [line for line in lines if _REPORT.match(line)]
    results = [*_of_reports(reports), *_of_timers(_by_timer(lines))]
    ranges = [match for line in lines if (match := _RANGE.match(line))]
    notes = dict.fromkeys(note for match in ranges if (note := _of_range(match)))
    if not results and (reports or ranges):
        results.append(Result(Verdict.PASS, SAYS_BAD, "ranks"))
    return Report("times of ranks", tuple(results), notes=tuple(notes))


def _of_reports(reports: Sequence[str]) -> Iterator[Result]:
    """The rank that at least half of the reports show as slow: one slow interval is no straggler."""
    found = [slow for line in reports if (slow := _slow_rank(line))]
    for rank in dict.fromkeys(rank for rank, _ in found):
        words = [said for each, said in found if each == rank]
        if 2 * len(words) >= len(reports):
            yield Result(Verdict.DEGRADED, STRAGGLER, f"rank {rank} {words[-1]}")


def _slow_rank(line: str) -> tuple[int, str] | None:
    """The slowest rank of a report by its clock, else by its throughput; None where all are alike."""
    extremes = {(which, what): (float(value), int(rank)) for which, what, value, rank in _EXTREME.findall(line)}
    for what, unit, verb in (("Clk", "MHz", "runs at"), ("Etpt", "TFLOP/s", "computes")):
        low, high = extremes.get(("Mn", what)), extremes.get(("Mx", what))
        if low and high and low[0] < THRESHOLD * high[0]:
            return low[1], f"{verb} {low[0]:g} of {high[0]:g} {unit}"
    return None


def _by_timer(lines: Sequence[str]) -> dict[str, dict[int, list[float]]]:
    """The times of each rank by timer, in ms."""
    times: dict[str, dict[int, list[float]]] = {}
    timer = ""
    for line in lines:
        if match := _TIMER.match(line):
            timer = match[1]
        elif timer and (match := _RANK.match(line)):
            times.setdefault(timer, {}).setdefault(int(match[1]), []).append(float(match[2]))
        else:
            timer = ""
    return times


def _of_timers(times: dict[str, dict[int, list[float]]]) -> Iterator[Result]:
    for timer in _COMPUTE:
        taken = {rank: median(values) for rank, values in times.get(timer, {}).items()}
        if len(taken) < 3:
            continue
        usual = median(taken.values())
        slow = [rank for rank, value in taken.items() if value * THRESHOLD > usual]
        if slow and len(slow) <= max(1, len(taken) // _FEW):
            for rank in slow:
                words = f"rank {rank} takes {taken[rank]:,.0f} ms for {timer}, others {usual:,.0f} ms"
                yield Result(Verdict.DEGRADED, STRAGGLER, words)
        else:
            yield Result(Verdict.PASS, SAYS_BAD, timer)


def _of_range(match: re.Match[str]) -> str:
    """A note on a timer whose slowest rank takes much longer than its fastest."""
    low, high = float(match[2]), float(match[3])
    if match[1] not in _COMPUTE or not low or low > THRESHOLD * high:
        return ""
    return f"{match[1]} takes {low:,.0f} to {high:,.0f} ms, by rank"
