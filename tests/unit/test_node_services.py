"""Nodes in and out of service by each scheduler: what counts as idle, what a test asks for, and
what is touched.
"""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run, Taken
from seatrial.model.errors import InputError
from seatrial.model.reason import uncoded
from seatrial.platforms import platform_for
from seatrial.platforms.kubernetes.api import Api
from seatrial.platforms.local.stage import read
from seatrial.platforms.service import node_service
from seatrial.platforms.slurm.login import CommandError, Login
from seatrial.qualify.choose import Selection, candidates, may_test
from seatrial.qualify.evidence import Evidence
from tests import busy

SINFO = """\
n0|idle|none
n1|idle*|none
n2|planned|none
n3|drained|seatrial gate: new
n4|drained|seatrial gate: failed gpu-ecc in run r
n5|drained|seatrial run r: gpu-ecc
n6|drained|broken fan
n7|draining|seatrial gate: new
n8|allocated|none
n9|reserved|none
"""


def cluster(kind: str, qualify: dict[str, Any], **platform: Any) -> Cluster:
    described = {
        "name": "c",
        "nodes": 10,
        "platform": {"kind": kind, **platform},
        "qualify": qualify,
    }
    return Cluster.model_validate(
        described if kind != "kubernetes" else {**described, "image": "r/i:1"}
    )


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The calls of Slurm's commands that change something."""
    calls: list[tuple[str, ...]] = []
    reasons = {line.split("|")[0]: line.split("|")[2] for line in SINFO.splitlines()}

    def run(self: Login, argv: Sequence[str], **_: object) -> str:
        match argv[0], argv[-1]:
            case "sinfo", "--format=%E":
                return reasons[argv[2].removeprefix("--nodes=")] + "\n"
            case "sinfo", "--format=%T":
                return "idle\n"
            case "sinfo", _:
                return SINFO
            case "squeue", _:
                return "7|n8|train\n8|n9|seatrial-r\nnonsense\n"
            case "scontrol", "topology":
                leaf, top = (
                    "SwitchName=s0 Level=0 Nodes=n[0-4]",
                    "SwitchName=top Level=1 Nodes=n[0-9]",
                )
                return f"{leaf}\n{top}\n"
            case "scontrol", "seatrial-r1":
                return "ReservationName=seatrial-r1 Nodes=n[3-4] Flags=MAINT\n"
            case "scontrol", "seatrial-none":
                raise CommandError(uncoded("not found"), "not found")
        calls.append(tuple(argv))
        return ""

    monkeypatch.setattr(Login, "run", run)
    return calls


def test_slurm_leaves_planned_reserved_and_draining_nodes_alone(
    slurm: list[tuple[str, ...]],
) -> None:
    nodes = node_service(cluster("slurm", {"qos": "low"})).nodes()
    states = {node.name: node.state for node in nodes}
    assert [name for name, state in states.items() if state == "idle"] == ["n0"]
    assert [(node.name, node.has_failed) for node in nodes if node.state == "gated"] == [
        ("n3", False),
        ("n4", True),
    ]
    assert [(node.name, node.is_ours) for node in nodes if node.state == "out"] == [
        ("n5", True),
        ("n6", False),
    ]
    assert {node.name: node.group for node in nodes if node.name in ("n0", "n9")} == {
        "n0": "s0",
        "n9": "top",
    }
    assert {node.name: node.why for node in nodes if node.name in ("n8", "n9")} == {
        "n8": "job 7",
        "n9": "reserved",
    }


def test_a_job_of_slurm_is_short_and_may_be_preempted(
    slurm: list[tuple[str, ...]], tmp_path: Path
) -> None:
    at_work = cluster(
        "slurm",
        {"qos": "low", "account": "ops"},
        partition="gpu",
        exclude="n9",
        time_limit="02:00:00",
    )
    taken = node_service(at_work).take(("n0", "n3"))
    run = Run("r1", taken, load_suite("qualify"), tmp_path, taken=Taken(("n0", "n3"), ("n3",)))
    script = platform_for(taken).render(run).files["job.sbatch"]
    asked = {
        line.removeprefix("#SBATCH --")
        for line in script.splitlines()
        if line.startswith("#SBATCH")
    }
    assert {
        "nodes=2",
        "nodelist=n0,n3",
        "time=00:05:00",
        "qos=low",
        "account=ops",
        "partition=gpu",
    } <= asked
    assert "reservation=seatrial-r1" in asked
    assert not any(line.startswith("exclude") for line in asked)
    assert slurm == []


def test_slurm_changes_only_gated_idle_or_own_nodes(slurm: list[tuple[str, ...]]) -> None:
    service = node_service(cluster("slurm", {"qos": "low"}))
    service.put_out("n0", "r", "gpu-ecc")
    service.put_out("n3", "r", "gpu-ecc")
    service.put_out("n6", "r", "gpu-ecc")
    service.let_in("n3")
    service.let_in("n5")
    for name in ("n0", "n6"):
        with pytest.raises(InputError, match=f"node {name}: does not wait at the gate"):
            service.let_in(name)
    assert [call[2:] for call in slurm] == [
        ("nodename=n0", "state=drain", "reason=seatrial run r: gpu-ecc"),
        ("nodename=n3", "state=drain", "reason=seatrial gate: failed gpu-ecc in run r"),
        ("nodename=n3", "state=resume"),
        ("nodename=n5", "state=resume"),
    ]


def test_the_gate_of_slurm_opens_for_the_test_alone_and_closes_again(
    slurm: list[tuple[str, ...]],
) -> None:
    from seatrial.platforms.slurm.gate import close_gate, open_gate

    open_gate(Login(), "r1", ("n3", "n4"))
    assert slurm[0][:4] == ("scontrol", "create", "reservation", "reservationname=seatrial-r1")
    assert "nodes=n3,n4" in slurm[0]
    assert slurm[1] == ("scontrol", "update", "nodename=n3,n4", "state=resume")
    slurm.clear()
    close_gate(Login(), "r1", {"n3": "seatrial gate: new"})
    assert [call[2:] for call in slurm] == [
        ("nodename=n3", "state=drain", "reason=seatrial gate: new"),
        ("nodename=n4", "state=drain", "reason=seatrial gate"),
        ("reservationname=seatrial-r1",),
    ]
    slurm.clear()
    close_gate(Login(), "none", {})
    assert slurm == []


@pytest.mark.parametrize(
    ("kind", "qualify", "message"),
    [
        ("slurm", {}, "qualify.qos: is required on Slurm, or qualify.partition"),
        (
            "docker",
            {},
            "qualify: is only for platforms kubernetes, slurm, baremetal and local, not docker",
        ),
        ("local", {"at_once": 17}, "qualify.at_once"),
        ("local", {"max_age_days": 0}, "qualify.max_age_days"),
    ],
)
def test_invalid_qualify_section_is_refused(
    kind: str, qualify: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        cluster(kind, qualify)


READY = [{"type": "Ready", "status": "True"}]


def kube_node(
    name: str, *taints: str, ready: str = "True", failed: bool = False, **spec: Any
) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}]
    if failed:
        conditions.append(
            {"type": "SeatrialQualified", "status": "False", "message": "gpu-ecc in run r"}
        )
    return {
        "metadata": {
            "name": name,
            "resourceVersion": "7",
            "labels": {"kubernetes.io/hostname": name, "cloud.google.com/gce-topology-block": "b1"},
        },
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints], **spec},
        "status": {"conditions": conditions},
    }


def pod(
    name: str, node: str, owner: str = "", phase: str = "Running", **labels: str
) -> dict[str, Any]:
    owners = [{"kind": owner}] if owner else []
    metadata = {"name": name, "namespace": "work", "labels": labels, "ownerReferences": owners}
    return {
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": phase},
    }


class KubeApi:
    """The nodes of a cluster, which take patches."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.pods: list[dict[str, Any]] = []
        self.conditions: list[tuple[str, str, str]] = []

    def patch(self, name: str, patch: dict[str, Any]) -> None:
        spec = {**self.nodes[name]["spec"], **patch["spec"]}
        self.nodes[name]["spec"] = {key: value for key, value in spec.items() if value is not None}

    def patch_status(
        self, name: str, body: dict[str, Any], _content_type: str, **_: object
    ) -> None:
        assert _content_type == "application/strategic-merge-patch+json"
        (condition,) = body["status"]["conditions"]
        assert condition["type"] == "SeatrialQualified"
        self.conditions.append((name, condition["status"], condition["reason"]))


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch) -> KubeApi:
    api = KubeApi(
        kube_node("n0"),
        kube_node("n1"),
        kube_node("n2", "seatrial/gate"),
        kube_node("n3", "seatrial/gate", failed=True),
        kube_node("n4", "seatrial/suspect", unschedulable=True),
        kube_node("n5", unschedulable=True),
        kube_node("n6", "somebody/else"),
        kube_node("n7", ready="False"),
        kube_node("n8"),
    )
    api.pods = [
        pod("user", "n1"),
        pod("daemon", "n0", "DaemonSet"),
        pod("done", "n0", phase="Succeeded"),
        pod("ours", "n0", **{"seatrial/run-id": "r"}),
        {**pod("next", ""), "status": {"phase": "Pending", "nominatedNodeName": "n8"}},
    ]
    monkeypatch.setattr(Api, "client", SimpleNamespace())
    monkeypatch.setattr(Api, "explained", lambda self, doing: nullcontext())
    monkeypatch.setattr(Api, "list", lambda self, kind, selector=None: list(api.nodes.values()))
    monkeypatch.setattr(Api, "list_everywhere", lambda self, kind: api.pods)
    monkeypatch.setattr(Api, "find", lambda self, kind, name: api.nodes.get(name))
    monkeypatch.setattr(Api, "patch", lambda self, doing, kind, name, patch: api.patch(name, patch))
    core = SimpleNamespace(patch_node_status=api.patch_status)
    monkeypatch.setattr("kubernetes.client.CoreV1Api", lambda client: core)
    return api


def test_kubernetes_nodes_without_foreign_pods_are_idle(kube: KubeApi) -> None:
    nodes = {node.name: node for node in node_service(cluster("kubernetes", {})).nodes()}
    assert {name: node.state for name, node in nodes.items()} == {
        "n0": "idle",
        "n1": "busy",
        "n2": "gated",
        "n3": "gated",
        "n4": "out",
        "n5": "out",
        "n6": "out",
        "n7": "busy",
        "n8": "busy",
    }
    assert (nodes["n1"].why, nodes["n8"].why) == ("pod work/user", "pod work/next")
    assert (nodes["n3"].has_failed, nodes["n4"].is_ours, nodes["n5"].is_ours) == (True, True, False)
    assert {node.group for node in nodes.values()} == {"b1"}


def test_gpu_node_is_busy_only_with_pods_that_request_gpus(kube: KubeApi) -> None:
    of_gpus = {"hardware": "H100-SXM", "gpus_per_node": 8, "image": "r/i:1", "qualify": {}}
    at_work = Cluster.model_validate(
        {"name": "c", "nodes": 9, "platform": {"kind": "kubernetes"}, **of_gpus}
    )
    kube.pods[0]["spec"]["containers"] = [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    kube.pods[1]["spec"]["containers"] = [{"resources": {"limits": {"cpu": "1"}}}]
    busy_nodes = {node.name for node in node_service(at_work).nodes() if node.state == "busy"}
    assert busy_nodes == {"n1", "n7"}  # the pod that waits for n8 asks for none


def test_a_job_of_kubernetes_gives_way_and_may_be_evicted(kube: KubeApi, tmp_path: Path) -> None:
    at_work = cluster("kubernetes", {}, tolerations=[{"key": "own", "operator": "Exists"}])
    taken = node_service(at_work).take(("n0", "n2"))
    run = Run("r1", taken, load_suite("qualify"), tmp_path, taken=Taken(("n0", "n2"), ("n2",)))
    job = platform_for(taken).render(run).files["job.yaml"]
    for wanted in (
        "priorityClassName: seatrial-qualify",
        "activeDeadlineSeconds: 300",
        "safe-to-evict: 'true'",
        "key: seatrial/gate",
        "key: own",
        "- n2",
    ):
        assert wanted in job


def test_kubernetes_changes_only_gated_idle_or_own_nodes(kube: KubeApi) -> None:
    service = node_service(cluster("kubernetes", {}))
    service.put_out("n0", "r", "gpu-ecc")
    service.put_out("n2", "r", "gpu-ecc")
    assert kube.nodes["n0"]["spec"]["unschedulable"]
    assert [taint["key"] for taint in kube.nodes["n2"]["spec"]["taints"]] == ["seatrial/gate"]
    service.let_in("n2")
    service.let_in("n4")
    assert [kube.nodes[name]["spec"].get("taints") for name in ("n2", "n4")] == [[], []]
    assert "unschedulable" not in kube.nodes["n4"]["spec"]
    for name, words in (
        ("n1", "has neither taint"),
        ("n5", "has neither taint"),
        ("n99", "is no node"),
    ):
        with pytest.raises(InputError, match=words):
            service.let_in(name)
    assert kube.conditions == [
        ("n0", "False", "GpuEcc"),
        ("n2", "False", "GpuEcc"),
        ("n2", "True", "Passed"),
        ("n4", "True", "Passed"),
    ]


def test_hosts_without_a_scheduler_are_tested_by_their_names_alone() -> None:
    logins = {"gpu-[1-2]": {"port": 2222}}
    described = {"name": "c", "nodes": 4, "qualify": {}}
    platform = {"kind": "baremetal", "hosts": ["gpu-[1-4]"], "host_settings": logins}
    service = node_service(Cluster.model_validate({**described, "platform": platform}))
    nodes = service.nodes()
    assert {node.state for node in nodes} == {"named"}
    nothing = Evidence.of([], datetime.now(UTC))
    assert candidates(nodes, nothing, Selection(), timedelta(days=7)) == []
    (node,) = candidates(nodes, nothing, Selection(("gpu-2",)), timedelta(days=7))
    assert may_test(node)
    taken = Cluster.model_validate(service.take(("gpu-2", "gpu-4")).model_dump())
    assert (taken.nodes, taken.platform.model_dump()["hosts"]) == (2, ("gpu-2", "gpu-4"))
    assert list(taken.platform.model_dump()["host_settings"]) == ["gpu-2"]
    with pytest.raises(InputError, match="has no scheduler"):
        service.put_out("gpu-2", "r", "ecc")
    with pytest.raises(InputError, match="has no scheduler"):
        service.let_in("gpu-2")


def test_local_platform_simulates_busy_gated_and_removed_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    at_work = Cluster.model_validate(
        {"name": "played", "nodes": 5, "platform": {"kind": "local"}, "qualify": {}}
    )
    service = node_service(at_work)
    assert busy.main(["played", "job", "train", "node-1"]) == 0
    assert busy.main(["played", "gate", "node-2"]) == 0
    service.put_out("node-2", "r", "slow")
    service.put_out("node-3", "r", "slow")
    states = {node.name: (node.state, node.why) for node in service.nodes()}
    assert states == {
        "node-0": ("idle", ""),
        "node-1": ("busy", "train"),
        "node-2": ("gated", "slow in run r"),
        "node-3": ("out", "slow in run r"),
        "node-4": ("idle", ""),
    }
    with pytest.raises(InputError, match="node-1: is not free: train"):
        busy.start_job("played", "other", ["node-1"])
    service.let_in("node-2")
    busy.end_job("played", "train")
    assert {node.state for node in service.nodes() if node.name != "node-3"} == {"idle"}
    taken = service.take(("node-4", "node-0"))
    assert (taken.nodes, taken.node_names()) == (2, ["node-4", "node-0"])
    assert json.loads(read("played").model_dump_json())["out"] == {"node-3": "slow in run r"}
