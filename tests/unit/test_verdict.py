"""How verdicts combine, and what that makes of a run."""

import pytest

from seatrial.model.result import Check, Suspect, merge_suspects
from seatrial.model.verdict import Verdict, worst
from seatrial.text.headline import conclude

WORST_FIRST = [Verdict.CORRUPT, Verdict.FAIL, Verdict.DEGRADED, Verdict.INCONCLUSIVE, Verdict.NOT_RUN, Verdict.PASS]


def test_nothing_measured_is_never_a_pass() -> None:
    assert worst([]) is Verdict.INCONCLUSIVE
    assert conclude([]) == (Verdict.INCONCLUSIVE, "nothing was measured")


@pytest.mark.parametrize("index", range(len(WORST_FIRST)))
def test_the_worst_wins(index: int) -> None:
    assert worst(WORST_FIRST[index:]) is WORST_FIRST[index]


def test_exit_statuses() -> None:
    assert [verdict.exit_status for verdict in WORST_FIRST] == [1, 1, 1, 3, 3, 0]


def test_the_reason_is_that_of_the_worst_checks() -> None:
    checks = [
        Check("a", Verdict.PASS, "fine"),
        Check("b", Verdict.FAIL, "broken"),
        Check("c", Verdict.FAIL, "too"),
        Check("d", Verdict.NOT_RUN, "no"),
    ]
    assert conclude(checks) == (Verdict.FAIL, "b: broken; also c")


@pytest.mark.parametrize(
    ("reason", "verdict", "suspects", "said"),
    [
        ("41 GB/s, 40 % below", Verdict.FAIL, {"n1": 0.9}, "n1 (90 % sure): n1 is slow"),
        ("slow", Verdict.FAIL, {"n1": 0.4}, "no single node explains it: a: slow"),
        ("slow", Verdict.DEGRADED, {"n1": 0.9, "n2": 0.8, "n3": 0.7}, "n1 (90 % sure): n1 is slow; also n[2-3]"),
        ("no answer", Verdict.INCONCLUSIVE, {"n1": 0.9}, "a: no answer"),
    ],
)
def test_the_reason_of_a_fault_is_what_its_suspect_did(
    reason: str, verdict: Verdict, suspects: dict[str, float], said: str
) -> None:
    blamed = tuple(Suspect("node", name, confidence, f"{name} is slow") for name, confidence in suspects.items())
    assert conclude([Check("a", verdict, reason, suspects=blamed)], nodes=4) == (verdict, said)


def test_a_suspect_of_several_checks_is_one_suspect() -> None:
    checks = [
        Check("a", Verdict.FAIL, "", suspects=(Suspect("node", "n1", 0.5, "slow"),)),
        Check("b", Verdict.FAIL, "", suspects=(Suspect("node", "n1", 0.9, "refused"), Suspect("link", "n1", 0.6, "x"))),
    ]
    assert merge_suspects(checks) == [Suspect("node", "n1", 0.9, "slow; refused"), Suspect("link", "n1", 0.6, "x")]
    corrupt = Check(
        "c", Verdict.CORRUPT, "", suspects=(Suspect("node", "n2", 0.6, "wrong"), Suspect("node", "n3", 0.2, ""))
    )
    assert [suspect.name for suspect in merge_suspects([*checks, corrupt])] == ["n2", "n1", "n1", "n3"]
