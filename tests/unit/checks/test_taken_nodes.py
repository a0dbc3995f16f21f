"""Nodes that their platform took away in the middle of a check."""

from dataclasses import replace
from typing import NoReturn

import pytest

from seatrial.checks.taken_nodes import excused
from seatrial.model.errors import RemoteError
from seatrial.model.reason import Reason
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Node, Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.ssh import connect
from tests.unit.collectives.fake_mpirun import make_testbed

REFUSED = Reason.of("ssh-refused", address="10.0.0.1", port=222)
LINK = Reason.of("link-ssh-failed", problem="no session")
ENDED = Reason.of("slurm-job-cancelled", job="7", how="cancelled", detail="")


def failed(*suspects: Suspect) -> Check:
    return Check("connectivity", Verdict.FAIL, REFUSED, 1.0, suspects=suspects)


@pytest.fixture
def taken() -> Testbed:
    """Two nodes of which the platform took the first."""

    def reason(node: Node) -> Reason | None:
        return ENDED if node.name == "node-0" else None

    return replace(make_testbed(nodes=2), blameless_reason=reason)


@pytest.mark.parametrize("name", ["{0}", "{0}--{1}", "{1}--{0}"])
def test_node_taken_away_by_its_scheduler_is_not_blamed(taken: Testbed, name: str) -> None:
    names = [node.name for node in taken.nodes]
    suspect = Suspect(
        "link" if "--" in name else "node",
        name.format(*names),
        1.0,
        LINK if "--" in name else REFUSED,
    )
    check = excused(failed(suspect), taken)
    assert (check.verdict, check.suspects, check.reason.code) == (
        Verdict.INCONCLUSIVE,
        (),
        "slurm-job-cancelled",
    )


@pytest.mark.parametrize(
    "ended",
    [
        Reason.of("pod-failed", how="pod trial-0 is gone"),
        Reason.of("container-exited", what="pod trial-0", exit_code=137, cause=""),
    ],
)
def test_node_whose_pod_ended_by_preemption_is_not_blamed(taken: Testbed, ended: Reason) -> None:
    """The error of the connection says how the pod ended, as the API server reports it."""

    def dial(_node: Node, _timeout_s: float) -> NoReturn:
        raise OSError(ended)

    testbed = replace(taken, dial=dial)
    with pytest.raises(RemoteError) as refused:
        connect(testbed, testbed.nodes[0], 1.0)
    suspect = Suspect("node", testbed.nodes[0].name, 1.0, refused.value.reason)
    check = excused(failed(suspect), testbed)
    assert (check.verdict, check.suspects) == (Verdict.INCONCLUSIVE, ())


def test_node_with_a_link_separator_in_its_name_is_excused(taken: Testbed) -> None:
    node = replace(taken.nodes[0], name="rack--1")
    testbed = replace(taken, nodes=(node,), blameless_reason=lambda _: ENDED)
    assert excused(failed(Suspect("node", node.name, 1.0, REFUSED)), testbed).suspects == ()


def test_node_that_was_not_taken_away_is_still_blamed(taken: Testbed) -> None:
    here, gone = (Suspect("node", node.name, 1.0, REFUSED) for node in reversed(taken.nodes))
    check = excused(failed(gone, here), taken)
    assert (check.verdict, check.suspects) == (Verdict.FAIL, (here,))


def test_a_fault_found_before_the_node_was_taken_away_counts(taken: Testbed) -> None:
    wrong = failed(
        Suspect(
            "node", taken.nodes[0].name, 1.0, Reason.of("clock-skew", skew="+9.00", limit_s="1")
        )
    )
    assert excused(wrong, taken) == wrong
