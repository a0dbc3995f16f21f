"""Pods from their submission to their end, on an API server of a few lines."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import InputError, LaunchError, MissingError, SeatrialError
from seatrial.model.testbed import Node
from seatrial.platforms import state as states
from seatrial.platforms.kubernetes import ending, logs, topology
from seatrial.platforms.kubernetes import platform as kubernetes
from seatrial.platforms.kubernetes.api import Api, RuntimeUnseenError
from seatrial.platforms.kubernetes.bringup import WatchEvent
from seatrial.platforms.kubernetes.plan import Kind
from seatrial.platforms.kubernetes.pod import ROLE
from seatrial.platforms.kubernetes.topology import LEVELS, address, topology_groups
from seatrial.remote.mpi import hostfile
from seatrial.remote.ssh import known_hosts, pinned_keys
from seatrial.text.redact import Secrets
from tests.unit.kubernetes.golden import CLUSTERS
from tests.unit.kubernetes.test_bringup import Played, Step

RUN = "20260101-0000-abcde"
INDEX = "batch.kubernetes.io/job-completion-index"


def pod(index: int, node: str = "n", phase: str = "Running", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"p-{index}",
            "namespace": "default",
            "labels": {ROLE: "node", INDEX: str(index), **labels},
        },
        "spec": {"nodeName": f"{node}-{index}", "containers": [{"name": "node"}]},
        "status": {"phase": phase, "podIP": f"10.0.0.{index}"},
    }


class Server:
    """Objects by kind; remembers what was asked. `refused` are kinds that may not be deleted."""

    context: str | None = None

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.objects: dict[str, Any] = {"Pod": list(pods), "Node": []}
        self.known: list[str] = []
        self.created: list[str] = []
        self.owned: list[str] = []
        self.deleted: list[str] = []
        self.refused: dict[str, SeatrialError] = {}
        self.unseen = 0

    def knows(self, kind: Kind) -> None:
        self.known.append(kind.kind)

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        if manifest["kind"] == "Job" and self.unseen:
            self.unseen -= 1
            raise RuntimeUnseenError("not yet")
        self.created.append(manifest["kind"])
        return {"metadata": {"uid": "u"}}

    def own(self, manifest: dict[str, Any], parent: dict[str, Any]) -> None:
        assert parent["metadata"]["uid"] == "u"
        self.owned.append(manifest["kind"])

    def list(self, kind: Kind, selector: str | None = None) -> Any:
        if isinstance(listed := self.objects.get(kind.kind, []), SeatrialError):
            raise listed
        return listed

    def delete_all(self, kind: Kind, selector: str, **_: Any) -> None:
        if error := self.refused.get(kind.kind):
            raise error
        self.deleted.append(kind.kind)

    def log_tail(self, pod: str, container: str, timeout_s: float) -> bytes:
        assert 0 < timeout_s <= 30
        return f"of {pod}\n".encode()


def platform_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server, **platform: Any
) -> tuple[kubernetes.Kubernetes, Run]:
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / kind)
    monkeypatch.setattr(
        kubernetes, "BringUp", lambda *_: SimpleNamespace(wait=lambda: server.objects["Pod"])
    )
    monkeypatch.setattr(kubernetes, "wait_for_deletion", lambda *_: None)
    monkeypatch.setattr("time.sleep", lambda _: None)
    asked = {**CLUSTERS["job"], "platform": {**CLUSTERS["job"]["platform"], **platform}}
    cluster = Cluster.model_validate(asked)
    made = kubernetes.platform(cluster)
    made._api = cast(Api, server)
    return made, Run(RUN, cluster, load_suite("quick"), tmp_path / "out")


def test_run_is_submitted_attached_collected_and_torn_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(pod(10, "b"), pod(2, "b"), pod(1, "a"))
    server.objects["Node"] = [
        {"metadata": {"name": f"{name}", "labels": {"topology.kubernetes.io/zone": zone}}}
        for name, zone in (("b-10", "z1"), ("b-2", "z1"), ("a-1", "z2"))
    ]
    server.unseen = 3
    platform, run = platform_and_run(tmp_path, monkeypatch, server)
    testbed = platform.launch(run)
    assert [(node.name, node.address) for node in testbed.nodes] == [
        ("b-2", "10.0.0.2"),
        ("b-10", "10.0.0.10"),
        ("a-1", "10.0.0.1"),
    ]
    assert (testbed.network, testbed.workdir) == ("eth0", f"/tmp/seatrial/{RUN}")
    *owned, parent = server.created
    assert parent == "Job"
    assert server.owned == owned
    assert server.known == server.created
    dialled: list[tuple[Any, ...]] = []
    monkeypatch.setattr(kubernetes, "dial_pod", lambda api, *words: dialled.append(words))
    testbed.dial(testbed.nodes[1], 5)
    assert dialled == [("p-10", run.cluster.ssh_port, 5)]

    again = platform.attach(RUN)
    assert (again.nodes, again.user) == (testbed.nodes, "root")
    assert again.key_file.read_text().startswith("-----BEGIN")
    assert platform.keep(RUN, 600)
    platform.collect(RUN, tmp_path / "logs", 30, Secrets(()))
    assert "of p-2" in (tmp_path / "logs" / logs.POD_LOGS / "coordinator.log").read_text()

    for each in server.objects["Pod"]:
        each["status"].pop("podIP")
    with pytest.raises(InputError, match="no node of it is up"):
        platform.attach(RUN)
    for each in server.objects["Pod"]:
        each["metadata"]["deletionTimestamp"] = "now"
    assert not platform.keep(RUN, 600)
    platform.teardown(RUN)
    assert {"Job", "Pod", "Secret"} <= set(server.deleted)
    assert not states.run_folder(RUN, "kubernetes").exists()
    platform.collect(RUN, tmp_path / "none", 30, Secrets(()))
    assert not (tmp_path / "none").exists()


def test_launch_in_a_queue_looks_up_the_workload_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(pod(0), pod(1))
    platform, run = platform_and_run(
        tmp_path, monkeypatch, server, queue="night", host_network=True
    )
    assert platform.launch(run).network is None
    assert "Workload" in server.known


def test_a_webhook_that_never_sees_the_runtime_ends_the_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(pod(0), pod(1))
    server.unseen = 100
    platform, run = platform_and_run(tmp_path, monkeypatch, server)
    with pytest.raises(RuntimeUnseenError):
        platform.launch(run)
    assert server.unseen == 89


def test_without_the_right_to_see_nodes_hosts_are_in_the_order_of_their_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(pod(10), pod(9))
    server.objects["Node"] = MissingError("may not")
    platform, run = platform_and_run(tmp_path, monkeypatch, server)
    assert [node.name for node in platform.launch(run).nodes] == ["n-9", "n-10"]
    kubeflow = {INDEX: "", "training.kubeflow.org/replica-type": "worker"}
    master = {INDEX: "", "training.kubeflow.org/replica-type": "master"}
    workers = [
        pod(i, **kubeflow, **{"training.kubeflow.org/replica-index": str(i)}) for i in (11, 3)
    ]
    first = pod(20, **master, **{"training.kubeflow.org/replica-index": "20"})
    ordered = topology.ordered([*workers, first], {})
    assert [each["metadata"]["name"] for each in ordered] == ["p-20", "p-3", "p-11"]


@pytest.mark.parametrize(
    ("kind", "error", "raised"),
    [
        ("Job", SeatrialError("down"), True),
        ("Secret", SeatrialError("down"), True),
        ("Pod", SeatrialError("slow"), False),  # hundreds take longer than a request may
        ("Pod", MissingError("may not"), True),
        ("TrainJob", MissingError("may not"), False),  # another launcher's
    ],
)
def test_failed_deletion_is_an_error_only_for_kinds_of_the_run(
    kind: str, error: SeatrialError, raised: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    platform, _ = platform_and_run(tmp_path, monkeypatch, server)
    server.refused[kind] = error
    if raised:
        with pytest.raises(SeatrialError, match=str(error)):
            platform.teardown(RUN)
    else:
        platform.teardown(RUN)
    assert {"Job", "Pod", "Secret"} - {kind} <= set(server.deleted)


def gone(monkeypatch: pytest.MonkeyPatch, *steps: Step) -> dict[str, str]:
    """What is left of the pods once the watches have brought that."""
    clock = [0.0]
    monkeypatch.setattr(ending, "Watches", Played(list(steps), clock, 0.0))
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    return ending._wait_until_gone(cast(Api, None), RUN)


def on_watch(change: str, *pods: dict[str, Any]) -> WatchEvent:
    return WatchEvent("Pod", change, {"items": list(pods)} if change == "LISTED" else pods[0])


def test_teardown_waits_while_pods_keep_disappearing(monkeypatch: pytest.MonkeyPatch) -> None:
    both = on_watch("LISTED", pod(0), pod(1))
    assert gone(monkeypatch, on_watch("LISTED")) == {}
    assert (
        gone(
            monkeypatch, both, 20.0, on_watch("DELETED", pod(0)), 20.0, on_watch("DELETED", pod(1))
        )
        == {}
    )
    assert gone(
        monkeypatch, both, 20.0, on_watch("DELETED", pod(0)), 26.0, on_watch("DELETED", pod(1))
    ) == {"p-1": "n-1"}
    late = {**pod(7), "spec": {}}
    assert gone(
        monkeypatch,
        both,
        on_watch("DELETED", pod(0)),
        on_watch("DELETED", pod(9)),
        on_watch("ADDED", late),
    ) == {
        "p-1": "n-1",
        "p-7": "no node",
    }
    # The watch began anew
    assert gone(monkeypatch, both, on_watch("LISTED", pod(1))) == {"p-1": "n-1"}
    with pytest.raises(LaunchError, match=RUN):
        gone(monkeypatch, on_watch("DELETED", pod(0)))  # never listed


def placed_pod(**spec: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "r1-0-x7x", "namespace": "trials"},
        "spec": spec,
        "status": {"podIP": "10.0.0.1"},
    }


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({"hostname": "r1-0", "subdomain": "r1"}, "r1-0.r1.trials.svc"),
        ({}, "r1-0-x7x.trials.svc"),
        ({"hostname": "r1-0"}, "r1-0-x7x.trials.svc"),  # without a subdomain it is in no DNS
    ],
    ids=["job", "pytorchjob", "no-subdomain"],
)
def test_pod_address_is_its_ip_or_dns_name(spec: dict[str, str], name: str) -> None:
    assert address(placed_pod(**spec), by_name=False) == "10.0.0.1"
    assert address(placed_pod(**spec), by_name=True) == name


def test_pod_dns_name_is_in_the_hostfile_and_its_host_key_is_pinned() -> None:
    name = address(placed_pod(hostname="r1-0", subdomain="r1"), by_name=True)
    node = Node("gke-0", name, 222, 8, "ssh-ed25519 AAAA")
    assert hostfile([node]) == "r1-0.r1.trials.svc slots=8 port=222\n"
    assert pinned_keys(known_hosts([node]))[name] == "ssh-ed25519 AAAA"


def test_topology_labels_of_zone_and_block_make_groups() -> None:
    """Blocks of different zones may have the same label."""
    labels = {
        f"gke-{i}": {LEVELS[0]: "ab"[i // 2], LEVELS[1]: "1", "kubernetes.io/hostname": f"gke-{i}"}
        for i in range(4)
    }
    halves = frozenset({"gke-0", "gke-1"}), frozenset({"gke-2", "gke-3"})
    assert topology_groups(labels) == {
        "a": halves[0],
        "a/1": halves[0],
        "b": halves[1],
        "b/1": halves[1],
    }
    assert topology_groups({"gke-0": {}}) == {}


def test_nodes_that_nvlink_joins_are_a_group_within_their_zone() -> None:
    """A tray that lost its label at a reboot is in the zone alone."""
    domains = {"n-0": "0c9f.1", "n-1": "0c9f.1", "n-2": "77aa.1"}
    labels = {
        name: {LEVELS[0]: "a", "nvidia.com/gpu.clique": domain} for name, domain in domains.items()
    }
    groups = topology_groups({**labels, "n-3": {LEVELS[0]: "a"}})
    assert groups == {
        "a": {"n-0", "n-1", "n-2", "n-3"},
        "a/0c9f.1": {"n-0", "n-1"},
        "a/77aa.1": {"n-2"},
    }
