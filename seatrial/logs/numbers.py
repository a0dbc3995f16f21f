"""Judge the numbers of one check by what is published of its cluster: a log has no earlier runs and
no peers. Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from seatrial.catalog.published import published, swept_sizes
from seatrial.judge.completeness import blamed_nodes, far_below_links, unmeasured
from seatrial.judge.number import judge_number
from seatrial.judge.votes import counting, summary
from seatrial.model.measurement import Measurement, by_series, once
from seatrial.model.reason import join
from seatrial.model.result import Check, Judgement
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict, worst


def judged_alone(check: Check, setup: Setup) -> Check:
    """Return the check with a judgement for each number, and the verdict and reason that follow."""
    sizes = swept_sizes(check.measurements)
    series = by_series(m for m in check.measurements if m.better)
    judgements = [
        judgement for taken in series.values() if (judgement := _judgement(taken, setup, sizes))
    ]
    if not judgements:
        return check
    missing = (
        *unmeasured(check, setup.nodes, blamed_nodes([check])),
        *far_below_links(check, setup, False),
    )
    counted = counting(judgements)
    verdicts = [check.verdict, *(judgement.verdict for judgement in counted)]
    if missing:
        verdicts.append(Verdict.INCONCLUSIVE)
    reason = summary(check, judgements, counted)
    return replace(
        check,
        verdict=worst(verdicts),
        reason=join((reason, *missing) if counted else (*missing, reason)),
        judgements=(*check.judgements, *judgements),
        raw_result=check.raw,
    )


def _judgement(
    taken: Sequence[Measurement], setup: Setup, sizes: Callable[[Measurement], list[int]]
) -> Judgement | None:
    """Return the judgement of a series, by the median of its repeats."""
    middle = once(taken)[0]
    judgement = judge_number(middle, published(middle, setup, sizes(middle)))
    if judgement is None or len(taken) == 1:
        return judgement
    return replace(judgement, repeats=tuple(m.value for m in taken))
