"""What is left of a result whose whole cannot be put together or written: above all the verdicts. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from seatrial.model.reason import Reason, join, rewritten
from seatrial.model.result import Check, RunResult
from seatrial.model.verdict import Verdict, worst

_MOST_CHARS = 2000


def without_details(result: RunResult, why: str) -> RunResult:
    """The run with its verdicts, reasons and suspects, and without judgements and facts: what fits on a full disk."""
    return replace(
        result,
        reason=rewritten(result.reason, _cut),
        checks=tuple(
            Check(check.name, check.verdict, rewritten(check.reason, _cut), check.seconds) for check in result.checks
        ),
        suspects=tuple(result.suspects)[:100],
        notes=(why,),
    )


def _cut(text: str) -> str:
    return text[:_MOST_CHARS]


def verdicts_alone(result: RunResult, checks: Sequence[Check], error: Exception) -> RunResult:
    """`result` with the verdicts of `checks` and nothing that a node may have said.

    Never a pass: what made the result impossible may as well have hidden what was wrong.
    """
    failed = Reason.of("result-failed", error=f" ({type(error).__name__}); logs/run.log has the trace")
    verdict = worst((Verdict.INCONCLUSIVE, *(check.verdict for check in checks)))
    bad = ", ".join(f"{check.name} {check.verdict.value}" for check in checks if check.verdict is not Verdict.PASS)
    return replace(
        result,
        verdict=verdict,
        reason=join((bad, failed)) if bad else failed,
        checks=(
            *(
                Check(check.name, check.verdict, Reason.of("result-failed", error=""), check.seconds)
                for check in checks
            ),
            Check("result", Verdict.INCONCLUSIVE, failed),
        ),
    )
