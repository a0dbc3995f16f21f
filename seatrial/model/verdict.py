"""The six verdicts and how they combine.

A verdict fails closed: what could not be measured is never a pass.
"""

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """The verdict of a judgement, a check or a run."""

    PASS = "pass"
    DEGRADED = "degraded"  # slower than expected, above the floor
    FAIL = "fail"  # below the floor, or the cluster broke the test
    CORRUPT = "corrupt"  # wrong numbers: #wrong > 0, NaN loss, ranks that disagree
    INCONCLUSIVE = "inconclusive"  # it could not be measured, and the reason names why
    NOT_RUN = "not_run"  # a prerequisite is missing, and the reason names which

    @property
    def exit_status(self) -> int:
        """The exit status of `seatrial run`: 0 pass, 1 the cluster is at fault, 3 nothing was
        measured.
        """
        if self is Verdict.PASS:
            return 0
        return 1 if self.is_fault else 3

    @property
    def is_fault(self) -> bool:
        """Whether the cluster was measured and is at fault."""
        return self in (Verdict.DEGRADED, Verdict.FAIL, Verdict.CORRUPT)

    @property
    def severity(self) -> int:
        """A sort key: 0 for the worst verdict, growing towards pass."""
        return _WORST_FIRST.index(self)


_WORST_FIRST = (
    Verdict.CORRUPT,
    Verdict.FAIL,
    Verdict.DEGRADED,
    Verdict.INCONCLUSIVE,
    Verdict.NOT_RUN,
    Verdict.PASS,
)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of `verdicts`; nothing measured at all is `inconclusive`, never a pass."""
    return min(verdicts, key=lambda verdict: verdict.severity, default=Verdict.INCONCLUSIVE)
