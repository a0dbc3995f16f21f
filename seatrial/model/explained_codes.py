"""Which codes of a run `seatrial explain` has something to say about."""

from seatrial.model.reason import code_of
from seatrial.model.reasons import CATALOG
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict

MAX_CODES = 5


def codes_to_explain(result: RunResult) -> tuple[str, ...]:
    """The codes of the checks that are no pass, then of the suspects; each once, at most `MAX_CODES`.

    A code that the catalog lacks is left out: a result may have been written by another version.
    """
    reasons = [check.reason for check in result.checks if check.verdict is not Verdict.PASS]
    evidence = [suspect.evidence for suspect in result.suspects]
    codes = dict.fromkeys(code for code in map(code_of, (*reasons, *evidence)) if code in CATALOG)
    return tuple(code for code in codes if code)[:MAX_CODES]
