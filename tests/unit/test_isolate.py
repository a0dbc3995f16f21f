"""Nodes that a run names are taken out of service, only where the cluster file says so, and put
back.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import InputError
from seatrial.model.reason import Reason
from seatrial.model.result import Check, Suspect
from seatrial.model.verdict import Verdict
from seatrial.platforms import isolator_for
from seatrial.platforms.kubernetes.api import Api
from seatrial.platforms.slurm.login import Login
from seatrial.tasks.launch import isolate

SLOW = Reason.of("tcp-node-slow", what="sends 24 MB/s", usual="900")
UPDATE = ("scontrol", "update", "nodename=n2")


def cluster(kind: str, **isolation: Any) -> Cluster:
    return Cluster.model_validate(
        {"name": "c", "nodes": 4, "platform": {"kind": kind}, "isolate": isolation}
    )


def lines(of: Cluster, *suspects: Suspect, verdict: Verdict = Verdict.FAIL) -> list[str]:
    run = Run("run-1", of, load_suite("quick"), Path("runs/run-1"))
    return isolate(run, [Check("connectivity", verdict, SLOW, suspects=suspects)], 4)


def slow(name: str = "n2", confidence: float = 0.97) -> Suspect:
    return Suspect("node", name, confidence, SLOW)


@pytest.fixture
def scontrol(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The calls of Slurm's commands that change something; reasons of nodes are as those leave
    them.
    """
    calls: list[tuple[str, ...]] = []
    reasons = {f"n{i}": "none" for i in range(4)} | {"n3": "broken fan"}

    def run(self: Login, argv: Sequence[str], **_: object) -> str:
        if argv[0] == "sinfo":
            return reasons.get(argv[2].removeprefix("--nodes="), "") + "\n"
        calls.append(tuple(argv))
        reasons[argv[2].removeprefix("nodename=")] = (
            argv[-1].removeprefix("reason=") if len(argv) > 4 else "none"
        )
        return ""

    monkeypatch.setattr(Login, "run", run)
    return calls


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A node of Kubernetes that takes patches."""
    own: dict[str, Any] = {
        "metadata": {"name": "n2", "resourceVersion": "7"},
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
    }

    def patch(self: Api, doing: str, kind: object, name: str, patch: dict[str, Any]) -> None:
        assert (name, patch["metadata"]) == ("n2", {"resourceVersion": "7"})
        own["spec"] = {
            key: value for key, value in (own["spec"] | patch["spec"]).items() if value is not None
        }

    monkeypatch.setattr(Api, "find", lambda self, kind, name: own if name == "n2" else None)
    monkeypatch.setattr(Api, "explained", lambda self, doing: nullcontext())
    monkeypatch.setattr(Api, "patch", patch)
    return own


def test_no_node_is_isolated_without_the_isolate_field_or_a_certain_suspect(
    scontrol: list[tuple[str, ...]],
) -> None:
    unset = cluster("slurm").model_copy(update={"isolate": None})
    assert lines(unset, slow()) == []
    assert (
        lines(
            cluster("slurm", dry_run=False),
            slow(confidence=0.9),
            Suspect("link", "n1--n2", 1.0, SLOW),
        )
        == []
    )
    assert lines(cluster("slurm", dry_run=False), slow(), verdict=Verdict.INCONCLUSIVE) == []
    assert scontrol == []


def test_dry_run_only_shows_the_command(scontrol: list[tuple[str, ...]]) -> None:
    (line,) = lines(cluster("slurm"), slow())
    assert line == (
        "isolate n2 by `scontrol update nodename=n2 state=drain 'reason=seatrial run "
        "run-1: tcp-node-slow'`"
    )
    (line,) = lines(cluster("kubernetes"), slow())
    assert line == (
        "isolate n2 by `kubectl cordon n2 && kubectl taint node n2 "
        "seatrial/suspect=run-1:NoSchedule`"
    )
    assert scontrol == []


def test_no_node_is_isolated_when_over_a_third_are_suspects(
    scontrol: list[tuple[str, ...]],
) -> None:
    (line,) = lines(cluster("slurm", dry_run=False), slow(), slow("n1"))
    assert line == "no node is isolated: 2 of 4 are suspects, more than a third"
    assert scontrol == []


def test_slurm_resumes_only_nodes_that_seatrial_drained(scontrol: list[tuple[str, ...]]) -> None:
    of = cluster("slurm", dry_run=False)
    assert (
        "`seatrial release CLUSTER n2` undoes it"
        in lines(of, Suspect("gpu", "n2/gpu-1", 1.0, SLOW))[0]
    )
    assert lines(of, slow()) == ["n2 is out of service already"]
    for name in ("n3", "n1", "n9", "ALL", "n[1-2]"):
        with pytest.raises(InputError, match="node"):
            isolator_for(of).release(name)
    isolator_for(of).release("n2")
    drained = (*UPDATE, "state=drain", "reason=seatrial run run-1: tcp-node-slow")
    assert scontrol == [drained, (*UPDATE, "state=resume")]


def test_kubernetes_cordons_with_a_taint_of_its_own(node: dict[str, Any]) -> None:
    of = cluster("kubernetes", dry_run=False)
    with pytest.raises(InputError, match="has no taint seatrial/suspect"):
        isolator_for(of).release("n2")
    before = node["spec"]
    assert lines(of, slow())[0].startswith("n2 was isolated by ")
    taint = {"key": "seatrial/suspect", "value": "run-1", "effect": "NoSchedule"}
    assert node["spec"] == {"unschedulable": True, "taints": [*before["taints"], taint]}
    assert lines(of, slow()) == ["n2 is out of service already"]
    isolator_for(of).release("n2")
    assert node["spec"] == before


def test_a_platform_without_a_scheduler_refuses_the_field() -> None:
    with pytest.raises(
        ValueError, match="isolate: is only for platforms kubernetes and slurm, not local"
    ):
        cluster("local")
