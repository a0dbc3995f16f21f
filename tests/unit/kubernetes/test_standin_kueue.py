"""Kueue's stand-in against a cluster in memory: whom it admits, whom it preempts, and in which words it refuses."""

from typing import Any

import pytest
import yaml

from seatrial.platforms.kubernetes.waiting import waits_for
from tests.e2e.kubernetes.standins import kueue
from tests.e2e.kubernetes.standins.kueue_jobs import (
    CLASS,
    CLUSTER_QUEUE,
    FLAVOR,
    KINDS,
    LOCAL_QUEUE,
    TOPOLOGY,
    WORKLOAD,
)
from tests.e2e.kubernetes.standins.world import JOB, NODE, Kind, Object, Patch, World, conditions, holds
from tests.unit.kubernetes.golden import rendered
from tests.unit.kubernetes.test_standins import NAMESPACE, NOON, carry_out, created

SET = "couldn't assign flavors to pod set main: "


def settle(world: World) -> None:
    """As the framework does it: what is done for one is seen by the next."""
    for _ in range(10):
        done = 0
        for thing in [thing for kind in kueue.TENDS for thing in world.all(kind)]:
            for action in list(kueue.reconcile(thing, world)):
                carry_out(world, action)
                done += 1
        if not done:
            return
    raise AssertionError("it never has enough")


def a_world(quota: int = 16, *, flavors: tuple[str, ...] = ("a4",), **queue: Any) -> World:
    """A queue of GPUs, of which each flavor has so many."""
    world = World(now=NOON)
    offered = [{"name": each, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": quota}]} for each in flavors]
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": offered}
    preemption = {"withinClusterQueue": "LowerPriority"}
    spec = {"resourceGroups": [group], "preemption": preemption, **queue}
    for name in flavors:
        add(world, FLAVOR, name, spec={"nodeLabels": {"flavor": name}})
    add(world, CLUSTER_QUEUE, "gpus", spec=spec)
    add(world, LOCAL_QUEUE, "night", NAMESPACE, spec={"clusterQueue": "gpus"})
    return world


def add(world: World, kind: Kind, name: str, namespace: str | None = None, labels: Any = None, **more: Any) -> None:
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    created(world, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **more})


def submit(world: World, name: str, gpus: int = 8, pods: int = 2, importance: str = "", **template: Any) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "night"}
    labels |= {"kueue.x-k8s.io/priority-class": importance} if importance else {}
    container = {"name": "node", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    pod = {"metadata": template, "spec": {"containers": [container], "nodeSelector": {"pool": "x"}}}
    spec = {"suspend": True, "parallelism": pods, "completions": pods, "template": pod}
    add(world, JOB, name, NAMESPACE, labels=labels, spec=spec)
    settle(world)


def workload(world: World, job: str) -> Object:
    workloads = [each for each in world.all(WORKLOAD) if each["metadata"]["ownerReferences"][0]["name"] == job]
    assert len(workloads) == 1
    return workloads[0]


def job(world: World, name: str) -> Object:
    stored = world.get(JOB, NAMESPACE, name)
    assert stored is not None
    return stored


def refused(world: World, name: str) -> str:
    """What is said of a quota that it does not get."""
    (condition,) = (each for each in conditions(workload(world, name)) if each["type"] == "QuotaReserved")
    assert condition["status"] == "False"
    return str(condition["message"])


def test_a_job_that_fits_is_started_where_its_flavor_is() -> None:
    world = a_world()
    submit(world, "first")
    made = workload(world, "first")
    assert made["metadata"]["labels"] == {"kueue.x-k8s.io/job-uid": job(world, "first")["metadata"]["uid"]}
    assert holds(made, "QuotaReserved")
    assert holds(made, "Admitted")
    (part,) = made["status"]["admission"]["podSetAssignments"]
    assert part["resourceUsage"] == {"nvidia.com/gpu": "16"}
    assert job(world, "first")["spec"]["suspend"] is False
    assert job(world, "first")["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "x", "flavor": "a4"}
    queue = world.get(CLUSTER_QUEUE, None, "gpus")
    assert queue
    assert holds(queue, "Active")
    assert (queue["status"]["admittedWorkloads"], queue["status"]["pendingWorkloads"]) == (1, 0)


def test_a_second_one_waits_until_the_first_is_done() -> None:
    world = a_world(24)
    submit(world, "first")
    submit(world, "second")
    assert refused(world, "second") == f"{SET}insufficient unused quota for nvidia.com/gpu in flavor a4, 8 more needed"
    queued = waits_for(workload(world, "second"))
    assert queued
    assert queued.reason == "queued: 8 more nvidia.com/gpu needed in flavor a4"
    done = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    carry_out(world, Patch(job(world, "first"), {"status": {"conditions": [done]}}))
    settle(world)
    assert holds(workload(world, "first"), "Finished")
    assert job(world, "second")["spec"]["suspend"] is False


def test_a_higher_priority_takes_the_quota_and_gives_it_back() -> None:
    world = a_world()
    add(world, CLASS, "high", value=1000)
    submit(world, "low")
    carry_out(world, Patch(job(world, "low"), {"status": {"active": 2, "startTime": "2026-01-01T12:00:00Z"}}))
    submit(world, "high", importance="high")
    evicted = holds(workload(world, "low"), "Evicted")
    assert evicted
    assert evicted["message"].startswith("Preempted to accommodate a workload (UID: ")
    assert "due to prioritization in the ClusterQueue" in evicted["message"]
    assert job(world, "low")["spec"]["suspend"] is True
    assert refused(world, "high").endswith(". Pending the preemption of 1 workload(s)")  # while there are pods
    carry_out(world, Patch(job(world, "low"), {"status": {"active": 0}}))
    settle(world)
    assert job(world, "low")["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "x"}
    assert job(world, "high")["spec"]["suspend"] is False
    world.drop(workload(world, "high"))
    world.drop(job(world, "high"))
    settle(world)
    assert job(world, "low")["spec"]["suspend"] is False
    assert not holds(workload(world, "low"), "Evicted")


@pytest.mark.parametrize(
    ("annotation", "level", "refusal"),
    [
        ("required", "rack", 'Flavor "a4" does not contain the requested level'),
        ("preferred", "hall", "no topology domains at level: hall"),
        ("required", "host", 'topology "t" allows to fit only 1 out of 2 pod(s)'),
        ("required", "block", None),
        ("preferred", "host", None),
        ("unconstrained", "true", None),
    ],
)
def test_topologies(annotation: str, level: str, refusal: str | None) -> None:
    world = a_world()
    add(world, TOPOLOGY, "t", spec={"levels": [{"nodeLabel": each} for each in ("hall", "block", "host")]})
    flavor = world.get(FLAVOR, None, "a4")
    assert flavor
    flavor["spec"]["topologyName"] = "t"
    ready = {"type": "Ready", "status": "True"}
    for name in ("n-0", "n-1"):
        labels = {"flavor": "a4", "block": "b", "host": name}
        status = {"allocatable": {"nvidia.com/gpu": "8", "pods": "110"}, "conditions": [ready]}
        add(world, NODE, name, labels=labels, status=status)
    submit(world, "first", annotations={f"kueue.x-k8s.io/podset-{annotation}-topology": level})
    if refusal:
        assert refused(world, "first") == f"{SET}{refusal}"
    assert bool(holds(workload(world, "first"), "Admitted")) is (refusal is None)


@pytest.mark.parametrize(
    ("launcher", "pod_sets"),
    [
        ("job", {"main": 2}),
        ("jobset", {"node": 2}),
        ("pytorchjob", {"master": 1, "worker": 1}),
        ("mpijob", {"launcher": 1, "worker": 2}),
    ],
)
def test_what_seatrial_submits_is_queued_whole(launcher: str, pod_sets: dict[str, int]) -> None:
    world = a_world()
    for thing in yaml.safe_load_all(rendered(launcher)):
        if Kind(thing["apiVersion"], thing["kind"]) in KINDS:
            thing["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "night"
            thing["metadata"]["namespace"] = NAMESPACE
            created(world, thing)
    settle(world)
    (queued,) = world.all(WORKLOAD)
    assert {each["name"]: each["count"] for each in queued["spec"]["podSets"]} == pod_sets
    assert holds(queued, "Admitted")
