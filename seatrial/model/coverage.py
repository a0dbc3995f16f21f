"""Count the numbers of a run that were compared with a baseline. Pure.

A number without one passes for being finite and positive, which says nothing of the speed of the cluster.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from seatrial.model.verdict import Verdict

if TYPE_CHECKING:
    from seatrial.model.result import Check, Judgement

UNJUDGED = "unjudged"  # how a pass without a comparison is shown

Extent = Literal["none", "some", "all"]


@dataclass(frozen=True, slots=True)
class Coverage:
    """`judged` of `numbers` series were compared with a baseline.

    `without_baseline` names what was measured and compared in no size and on no node: "collectives: all_reduce".
    """

    judged: int
    numbers: int
    without_baseline: tuple[str, ...]

    @property
    def extent(self) -> Extent | None:
        """`all` if each operation or metric was compared at some size; None if nothing was measured."""
        if not self.numbers:
            return None
        if not self.judged:
            return "none"
        return "some" if self.without_baseline else "all"

    @property
    def words(self) -> str:
        """The words for a headline; empty if everything was compared."""
        return "" if self.extent == "all" else f"{self.judged:,} of {self.numbers:,} judged, no baseline yet"

    def to_dict(self) -> dict[str, Any]:
        return {"judged": self.judged, "measured": self.numbers, "without_baseline": list(self.without_baseline)}


def coverage(checks: Iterable["Check"]) -> Coverage:
    """Count series, so that repeats and several baselines of one number count once."""
    compared: dict[tuple[str, str], bool] = {}
    by_metric: dict[str, bool] = {}
    for check in checks:
        for judgement in check.judgements:
            series, metric = (check.name, judgement.measurement.series()), f"{check.name}: {_metric(judgement)}"
            compared[series] = compared.get(series, False) or judgement.compared
            by_metric[metric] = by_metric.get(metric, False) or judgement.compared
    open_metrics = tuple(metric for metric, judged in by_metric.items() if not judged)
    return Coverage(sum(compared.values()), len(compared), open_metrics)


def _metric(judgement: "Judgement") -> str:
    """The operation of a sweep, which is one number in many sizes; the metric of all else."""
    return judgement.measurement.operation or judgement.measurement.metric


def standing_of(verdict: Verdict, is_compared: bool) -> str:
    """The verdict's value, or `unjudged` for a pass that was compared with nothing."""
    return UNJUDGED if verdict is Verdict.PASS and not is_compared else verdict.value


def exit_status(verdict: Verdict, coverage: Coverage, require_baseline: bool) -> int:
    """The exit status of the verdict; 3 for a pass with numbers without a baseline, if one is required."""
    if require_baseline and verdict is Verdict.PASS and coverage.extent != "all":
        return Verdict.INCONCLUSIVE.exit_status
    return verdict.exit_status
