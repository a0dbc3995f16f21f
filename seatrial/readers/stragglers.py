"""Read the straggler reports of NVIDIA Resiliency Extension, as NeMo and Megatron-LM print them.

Pure.

Source: its straggler detection callback. A score is 1 for the fastest rank (relative), or for the
rank's own best (individual); below 0.7, its default threshold, a rank is called a straggler.
"""

from seatrial.model.measurement import Measurement, Subject
from seatrial.readers.report import Lines, Report, Result, degraded
from seatrial.text.lazy_pattern import lazy

RankKey = tuple[str, int]  # the kind of score, and the rank
STRAGGLER = "training-straggler"
THRESHOLD = 0.7
BEGINS = lazy(
    r"\A.{0,200}?(?:\bGPU (?:relative|individual) performance:|STRAGGLER DETECTION WARNING: )"
)
_SCORE = lazy(
    r"\A\s{0,20}Rank=(?P<rank>\d{1,7}) Node=(?P<node>[\w.-]{1,253}) "
    r"Score=(?P<score>\d(?:\.\d{1,6})?)"
)
_KIND = lazy(r"GPU (relative|individual) performance:")
_WARNING = lazy(
    "STRAGGLER DETECTION WARNING: Some GPUs (?P<kind>have worse relative performance|performance "
    r"dropped)\. "
    r"Affected ranks: (?P<ranks>.{1,4000})"
)
_RANK = lazy(r"rank=(\d{1,7}), node='([\w.-]{1,253})'|(?<![\w=.'-])(\d{1,7})(?=[,\]}\s]|$)")
LINE = lazy(
    rf"{BEGINS.pattern}|{_SCORE.pattern}|\A\s{{0,20}}(?:Worst|Best) performing "
    rf"\d|\A.{{0,80}}Straggler report "
)


def read_stragglers(lines: Lines) -> Report:
    """Name the ranks that a warning names, or whose score is below the threshold, with node and
    score.
    """
    kind = "relative"
    scores: dict[RankKey, tuple[str, float]] = {}
    warned = {}
    for line in lines:
        if heading := _KIND.search(line):
            kind = heading[1]
        elif score := _SCORE.match(line):
            scores[kind, int(score["rank"])] = score["node"], float(score["score"])
        elif warning := _WARNING.search(line):
            about = "individual" if warning["kind"] == "performance dropped" else "relative"
            for match in _RANK.finditer(warning["ranks"]):
                warned[about, int(match[1] or match[3])] = match[2] or ""
    slow = {key for key, (_, score) in scores.items() if score < THRESHOLD} | set(warned)
    results = [_result(key, scores.get(key), warned.get(key, "")) for key in sorted(slow)]
    measurements = [
        Measurement(
            metric="straggler_score",
            value=score,
            unit="1",
            subject=Subject("node", node),
            conditions={"kind": kind, "rank": rank},
            samples=(score,),
        )
        for (kind, rank), (node, score) in scores.items()
    ]
    return Report("straggler detection", results, measurements)


def _result(key: RankKey, scored: tuple[str, float] | None, named: str) -> Result:
    """Return the result of a rank that is slow beside others, or beside its own past."""
    kind, rank = key
    node = scored[0] if scored else named
    where = f" on {node}" if node else ""
    than = "the others" if kind == "relative" else "its own earlier steps"
    how = (
        f"computes at {scored[1] * 100:.0f} % of {than}"
        if scored
        else f"computes slower than {than}"
    )
    return degraded(STRAGGLER, f"rank {rank}{where} {how}")
