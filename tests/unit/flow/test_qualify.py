"""A pass whose tests are runs of the fake platform: what a node that never came up comes to."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from seatrial.config.cluster import Cluster
from seatrial.config.run import Run, Taken
from seatrial.flows import qualify
from seatrial.history import open_store
from seatrial.model.errors import LaunchError
from seatrial.model.reason import Reason, caused, uncoded
from seatrial.model.result import Check, now
from seatrial.model.verdict import Verdict
from seatrial.platforms.service import ServiceNode
from seatrial.qualify.choose import Selection, candidates
from seatrial.qualify.current import standing
from seatrial.tasks import launch
from tests.unit.flow.conftest import Chain
from tests.unit.qualify.played import LIVE, PlayedCluster

NODES = [ServiceNode("node-0", "idle"), ServiceNode("node-1", "gated")]
QUEUED = Reason.of(
    "slurm-queued-too-long", job="7", limit_s="60", pending="Priority", meaning="others come first"
)


class FakeNodes(PlayedCluster):
    """Idle nodes, of which a test takes those of the fake platform."""

    cluster: Cluster

    def take(self, names: Sequence[str]) -> Cluster:
        return self.cluster.model_copy(update={"nodes": len(names)})


def test_node_that_never_came_up_is_retried_without_blame(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(qualify, "current", SimpleNamespace(id="0" * 32, scheduled_start_time=None))
    monkeypatch.setattr(qualify, "introduce", lambda run: None)
    chain.platform.errors["launch"] = LaunchError(QUEUED)
    service = FakeNodes.of(NODES)
    service.cluster = chain.platform.cluster()
    with open_store() as store:
        result = qualify.Pass(service.cluster, LIVE, service, store).run(Selection(), notify=False)
        view = standing(service.cluster, LIVE, service, store, now())
    assert (result.verdict, result.suspects) == (Verdict.INCONCLUSIVE, ())
    assert (service.calls, chain.platform.up) == ([], {})
    names = {"node-0", "node-1"}
    assert {name: test.code for name, test in view.evidence.last.items()} == dict.fromkeys(
        names, QUEUED.code
    )
    assert {*view.coverage.overdue_nodes} == names
    assert {
        node.name for node in candidates(NODES, view.evidence, Selection(), view.coverage.max_age)
    } == names
    assert "last test inconclusive (slurm-queued-too-long) in run " in view.evidence.open_test(
        "node-0"
    )


PREEMPTED = Reason.of("pod-preempted", name="p", disrupted="PreemptionByScheduler")
DELETED = Reason.of("pod-deleted", name="p", why_deleted="while the run used it")


@pytest.mark.parametrize(
    ("gone", "user", "why"),
    [
        (DELETED, "pod default/train", "gave way to pod default/train"),
        (DELETED, "", str(DELETED)),
        (PREEMPTED, "", "gave way to another job"),
        # Another pod ended, and its controller deleted this one
        (caused(DELETED, QUEUED), "pod default/train", None),
        (None, "pod default/train", None),
    ],
)
def test_test_that_lost_its_pod_gave_way_to_the_user_of_the_node(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, gone: Reason | None, user: str, why: str | None
) -> None:
    run = Run("r", chain.platform.cluster(), chain.suite, chain.out, taken=Taken(("node-0",), ()))
    testbed = replace(chain.platform.launch(run), blameless_reason=lambda _: gone)
    chain.platform.teardown(run.run_id)
    nodes = [ServiceNode("node-0", "busy" if user else "idle", why=user)]
    monkeypatch.setattr(launch, "node_service", lambda _: PlayedCluster.of(nodes))
    failed = Check("devices", Verdict.FAIL, uncoded("it gave no usable answer"))
    assert str(launch.gave_way(run, testbed, [failed])) == str(why)
    assert launch.gave_way(run, testbed, [Check("devices", Verdict.PASS, Reason())]) is None
