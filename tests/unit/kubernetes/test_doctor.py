"""Which nodes can take a pod, and what the others lack."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from seatrial.config.cluster import Cluster
from seatrial.model.reason import Reason
from seatrial.platforms.kubernetes.api import Api, Permission
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.doctor import _queue, nodes_that_fit
from seatrial.platforms.kubernetes.kueue import LOCAL_QUEUE
from seatrial.platforms.kubernetes.launchers import LAUNCHERS
from seatrial.platforms.kubernetes.machines import MACHINES
from seatrial.platforms.kubernetes.plan import Kind
from seatrial.platforms.kubernetes.pod import is_fabric, not_requested
from seatrial.platforms.kubernetes.rights import qualify_rights, rights
from tests.unit.kubernetes.golden import CLUSTERS

LOOKUPS = {  # of `seatrial doctor`, which says nothing of what it may not see
    ("Role", "", "persistentvolumeclaims", "list"),
    ("Role", "", "serviceaccounts", "list"),
    ("ClusterRole", "scheduling.k8s.io", "priorityclasses", "list"),
    ("ClusterRole", "storage.k8s.io", "storageclasses", "list"),
    ("ClusterRole", "storage.k8s.io", "csidrivers", "list"),
}
DEPLOYMENTS = Path(__file__).parents[3] / "deployments" / "kubernetes"


def node(
    name: str,
    gpus: int = 8,
    ready: str = "True",
    cpu: str = "224",
    memory: str = "4Ti",
    **more: Any,
) -> dict[str, Any]:
    labels = {
        "kubernetes.io/hostname": name,
        "cloud.google.com/gke-accelerator": "nvidia-b200",
        "kubernetes.io/arch": "amd64",
    }
    return {
        "metadata": {"name": name, "labels": labels | more.pop("labels", {})},
        "spec": more,
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus), "cpu": cpu, "memory": memory},
            "conditions": [
                {"type": "Ready", "status": ready, "message": "kubelet stopped posting node status"}
            ],
        },
    }


def lacking(*nodes: dict[str, Any], **settings: Any) -> str:
    asked = {**CLUSTERS["a4"], "platform": {**CLUSTERS["a4"]["platform"], **settings}}
    cluster = Cluster.model_validate(asked)
    assert isinstance(cluster.platform, KubernetesPlatform)
    return " | ".join(map(str, nodes_that_fit(list(nodes), cluster, cluster.platform)))


def test_doctor_reports_nothing_with_enough_nodes() -> None:
    assert not lacking(node("a"), node("b"), node("c", gpus=0))


def test_a_gpu_that_is_missing_is_named() -> None:
    assert lacking(node("a"), node("b", gpus=7)) == (
        "2 nodes are asked for, 1 could take one if idle: 2 of 2 nodes are meant"
        " (kubernetes.io/arch=amd64, cloud.google.com/gke-accelerator=nvidia-b200); b: offers 7 "
        "of 8 nvidia.com/gpu"
    )
    assert "b: offers 0 of 8 nvidia.com/gpu: is the device plugin running?" in lacking(
        node("a"), node("b", gpus=0)
    )


def test_unready_cordoned_and_tainted_nodes_are_named() -> None:
    assert "b: is not ready: kubelet stopped posting" in lacking(
        node("a"), node("b", ready="Unknown")
    )
    assert "b: is cordoned" in lacking(node("a"), node("b", unschedulable=True))
    taint = {"key": "team", "value": "ml", "effect": "NoSchedule"}
    assert "b: taint team=ml:NoSchedule is not in platform.tolerations" in lacking(
        node("a"), node("b", taints=[taint])
    )


def on_any(*nodes: dict[str, Any], **settings: Any) -> tuple[str, Reason | None]:
    """What nodes of no machine family lack, and which devices of theirs the run does without."""
    asked = {**CLUSTERS["job"], "platform": {**CLUSTERS["job"]["platform"], **settings}}
    cluster = Cluster.model_validate(asked)
    assert isinstance(cluster.platform, KubernetesPlatform)
    missing = not_requested(nodes, cluster, cluster.platform)
    return " | ".join(map(str, nodes_that_fit(list(nodes), cluster, cluster.platform))), missing


def offering(name: str, **devices: int) -> dict[str, Any]:
    one = node(name)
    one["status"]["allocatable"] |= {
        key.replace("__", "/"): str(count) for key, count in devices.items()
    }
    return one


def test_a_device_that_is_requested_and_not_offered_is_named() -> None:
    nodes = offering("a", rdma__ib=8), offering("b", rdma__ib=1)
    assert on_any(*nodes, resources={"rdma/ib": 2})[0].endswith("b: offers 1 of 2 rdma/ib")
    assert (
        "b: offers 0 of 1 rdma/x: is the device plugin running?"
        in on_any(*nodes, resources={"rdma/x": 1})[0]
    )
    assert on_any(*nodes, resources={"rdma/ib": 1}) == ("", None)


def test_devices_of_the_fabric_that_the_run_does_without_are_named() -> None:
    nodes = offering("a", rdma__ib=8), offering("b", rdma__ib=63)
    reason = on_any(*nodes)[1]
    assert reason and reason.code == "fabric-device-not-requested"
    assert "rdma/ib (63 per node)" in str(reason)
    container = {"resources": {"limits": {"rdma/ib": 1}}}
    assert on_any(*nodes, container=container)[1] is None
    assert on_any(offering("a", smarter__fuse=20, nvidia__gpu=8), node("b"))[1] is None
    assert on_any(offering("a", rdma__ib=0), node("b"))[1] is None


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("rdma/hca_shared_devices_a", True),
        ("vpc.amazonaws.com/efa", True),
        ("nvidia.com/mlnxnics", True),
        ("openshift.io/sriov-ib", True),
        ("nvidia.com/gpu", False),
        ("devices.kubevirt.io/kvm", False),
        ("hugepages-2Mi", False),
        ("example.com/fabric-efax", False),
    ],
)
def test_fabric_devices_are_recognised_by_resource_name(resource: str, expected: bool) -> None:
    assert is_fabric(resource) is expected


def test_tolerated_taints_are_not_reported() -> None:
    taint = {"key": "team", "value": "ml", "effect": "NoSchedule"}
    gpu = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    soft = {"key": "x", "effect": "PreferNoSchedule"}
    tolerated = [{"key": "team", "operator": "Equal", "value": "ml"}]
    assert not lacking(
        node("a", taints=[gpu, soft]), node("b", taints=[taint]), tolerations=tolerated
    )


def test_nodes_outside_the_selection_do_not_count() -> None:
    other = node("b", labels={"cloud.google.com/gke-accelerator": "nvidia-l4"})
    assert "1 of 2 nodes are meant" in lacking(node("a"), other)
    assert "1 of 2 nodes are meant" in lacking(node("a"), node("b"), avoid_nodes=["b"])
    assert "1 of 3 nodes are meant" in lacking(
        node("a"), node("b"), node("c"), target_nodes=["a", "d"]
    )


def test_a_node_that_is_too_small_is_named() -> None:
    assert "b: offers 4 CPUs for 8 GPUs; each rank needs one of its own" in lacking(
        node("a"), node("b", cpu="4")
    )
    assert "b: offers 7900m CPUs for 8 GPUs" in lacking(node("a"), node("b", cpu="7900m"))
    small = node("b", memory="200000000Ki")
    reason = (
        "b: offers 200000000Ki of memory, less than the 250Gi that /dev/shm may take: lower "
        "platform.shared_memory"
    )
    assert reason in lacking(node("a"), small)  # what the machine family has
    assert not lacking(node("a"), small, shared_memory="100Gi")


def test_nodes_without_gpus_are_listed_last_and_only_beside_a_problem() -> None:
    others = [node(f"cpu-{i}", gpus=0) for i in range(9)]
    assert not lacking(*others, node("a"), node("b"))
    text = lacking(*others, node("a"), node("b", gpus=7))
    assert (
        "; b: offers 7 of 8 nvidia.com/gpu; cpu-0, cpu-1, cpu-2, cpu-3 and 5 more: offers 0 of 8"
        in text
    )


def granted_by(file: str) -> set[tuple[str, str, str, str]]:
    """Kind of the role, group, resource and verb of each right."""
    granted = set()
    for document in yaml.safe_load_all((DEPLOYMENTS / file).read_text()):
        for rule in document.get("rules", ()):
            granted |= {
                (document["kind"], group, resource, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return granted


def needed(permissions: Iterable[Permission]) -> set[tuple[str, str, str, str]]:
    """The same of what is asked for."""
    kinds = {True: "ClusterRole", False: "Role"}
    return {
        (kinds[p.cluster_wide], p.group, p.resource, verb) for p in permissions for verb in p.verbs
    }


def test_the_roles_that_ship_grant_what_is_needed_and_no_more() -> None:
    every = [
        rights(launcher, queue=True, profile=MACHINES["a4x-max"]) for launcher in LAUNCHERS.values()
    ]
    assert granted_by("role.yaml") == needed(chain(*every)) | LOOKUPS
    acts = Cluster.model_validate({**CLUSTERS["a4"], "qualify": {"dry_run": False}})
    looks = Cluster.model_validate({**CLUSTERS["a4"], "qualify": {}})
    assert granted_by("qualify.yaml") == needed(qualify_rights(acts))
    assert {verb for *_, verb in needed(qualify_rights(looks))} == {"list"}
    assert qualify_rights(Cluster.model_validate(CLUSTERS["a4"])) == []


class Queues:
    """An API server that has these LocalQueues."""

    def __init__(self, *queues: dict[str, Any]) -> None:
        self._queues = queues

    def list(self, kind: Kind, selector: str | None = None) -> list[dict[str, Any]]:
        assert kind is LOCAL_QUEUE
        return list(self._queues)


def queue(name: str, **active: str) -> dict[str, Any]:
    conditions = [{"type": "Active", **active}] if active else []
    return {"metadata": {"name": name}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("queues", "messages"),
    [
        ((queue("night", status="True"), queue("day")), []),
        ((), ["queue night: no such LocalQueue in namespace default; there is none"]),
        (
            (queue("week"), queue("day")),
            ["queue night: no such LocalQueue in namespace default; there are: day, week"],
        ),
        (
            (queue("night"),),
            ["queue night: Kueue has not looked at it yet: does its controller run?"],
        ),
        (
            (queue("night", status="False", reason="Stopped", message="LocalQueue is stopped"),),
            ["queue night: is not active (Stopped): LocalQueue is stopped"],
        ),
    ],
)
def test_missing_or_inactive_queue_is_named(
    queues: tuple[dict[str, Any], ...], messages: list[str]
) -> None:
    settings = KubernetesPlatform(kind="kubernetes", queue="night")
    assert list(map(str, _queue(cast(Api, Queues(*queues)), settings))) == messages
