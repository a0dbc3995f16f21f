"""Kueue (kueue.x-k8s.io): a Workload for every job with a queue's label, a quota of pods,
priorities, and statuses.

Of a ClusterQueue it knows one flavor, its quota of "pods", and preemption of lower priorities
within the queue; of a topology, whether it has the level that is asked for. The last step of an
eviction, releasing the quota, comes when the job has no pods any more, as with the real one.
Reasons and messages are those of release 0.19 as it comes, with its feature gate
UnadmittedWorkloadsObservability off. Where a TrainJob's pods go is not said: the real one does that
by a field whose name changes with every release of the Trainer.
"""

import copy
import hashlib
from collections.abc import Iterator
from typing import Any

from tests.e2e.kubernetes.standins.jobset import JOBSET
from tests.e2e.kubernetes.standins.mpijob import MPIJOB
from tests.e2e.kubernetes.standins.trainjob import TRAINJOB
from tests.e2e.kubernetes.standins.world import (
    JOB,
    Action,
    Create,
    Kind,
    Object,
    Patch,
    World,
    conditions,
    controlled_by,
    holds,
    kind_of,
    set_status,
    with_condition,
)

GROUP = "kueue.x-k8s.io"
PYTORCHJOB = Kind("kubeflow.org/v1", "PyTorchJob")
KINDS = (JOB, JOBSET, PYTORCHJOB, MPIJOB, TRAINJOB)
WORKLOAD, LOCAL_QUEUE, CLUSTER_QUEUE, FLAVOR, TOPOLOGY, CLASS = (
    Kind(f"{GROUP}/v1beta2", kind)
    for kind in (
        "Workload",
        "LocalQueue",
        "ClusterQueue",
        "ResourceFlavor",
        "Topology",
        "WorkloadPriorityClass",
    )
)
TENDS = (*KINDS, WORKLOAD, LOCAL_QUEUE, CLUSTER_QUEUE)
FOLLOWS = (FLAVOR, TOPOLOGY, CLASS)
_REPLICAS = {PYTORCHJOB: "pytorchReplicaSpecs", MPIJOB: "mpiReplicaSpecs"}
Condition = tuple[str, bool, str, str]  # type, whether it holds, reason, message


def reconcile(resource: Object, world: World) -> Iterator[Action]:
    """Of a job, a Workload or a queue, as it is after what was done for the others."""
    metadata = resource["metadata"]
    resource = world.get(kind_of(resource), metadata.get("namespace"), metadata["name"]) or resource
    if kind_of(resource) == WORKLOAD:
        if (
            holds(resource, "QuotaReserved")
            and not holds(resource, "Admitted")
            and not holds(resource, "Evicted")
        ):
            yield from _set(
                resource, world, ("Admitted", True, "Admitted", "The workload is admitted")
            )
    elif kind_of(resource) == LOCAL_QUEUE:
        if world.get(CLUSTER_QUEUE, None, resource["spec"]["clusterQueue"]):
            yield from _set(
                resource, world, ("Active", True, "Ready", "Can submit new workloads to localQueue")
            )
    elif kind_of(resource) == CLUSTER_QUEUE:
        yield from _schedule(resource, world)
    elif f"{GROUP}/queue-name" in metadata.get("labels", {}) and not metadata.get(
        "ownerReferences"
    ):
        yield from _job(resource, world)


def _job(job: Object, world: World) -> Iterator[Action]:
    """Start and stop a job as its Workload says."""
    workload = next(iter(world.owned(job, WORKLOAD)), None)
    if workload is None:
        if made := _workload(job, world):
            yield Create(made)
    elif (evicted := holds(workload, "Evicted")) or not holds(workload, "Admitted"):
        yield from _stop(job, workload)
        if evicted and holds(workload, "QuotaReserved") and not _active(job.get("status", {})):
            yield from _release(workload, evicted, world)
    elif _policy(job, job["spec"]).get("suspend", False):
        (flavor,) = {
            part["flavors"]["pods"] for part in workload["status"]["admission"]["podSetAssignments"]
        }
        yield _start(
            job, (world.get(FLAVOR, None, flavor) or {}).get("spec", {}).get("nodeLabels", {})
        )


def _workload(job: Object, world: World) -> Object | None:
    """A job's Workload; None while its pods, or its priority, are not known."""
    metadata, kind = job["metadata"], kind_of(job)
    source = next(iter(world.owned(job, JOBSET)), None) if kind == TRAINJOB else job
    sets = (
        [_pod_set(*each) for each in _templates(kind_of(source), source["spec"])] if source else []
    )
    priority: Object | None = {"priority": 0}
    if name := metadata["labels"].get(f"{GROUP}/priority-class"):
        known = world.get(CLASS, None, name)
        reference = {"group": GROUP, "kind": CLASS.kind, "name": name}
        priority = {"priority": known["value"], "priorityClassRef": reference} if known else None
    if not sets or priority is None:
        return None
    identity = "\n".join(
        (kind.kind, kind.api_version.rpartition("/")[0], metadata["name"], metadata["uid"])
    )
    ending = hashlib.sha1(identity.encode()).hexdigest()[:5]
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {
            "name": f"{kind.kind.lower()}-{metadata['name']}"[:57] + f"-{ending}",
            "namespace": metadata["namespace"],
            "labels": {f"{GROUP}/job-uid": metadata["uid"]},
            "ownerReferences": controlled_by(job),
        },
        "spec": {
            "queueName": metadata["labels"][f"{GROUP}/queue-name"],
            "podSets": sets,
            **priority,
        },
    }


def _pod_set(name: str, count: int, template: Object) -> Object:
    level = (
        template.get("metadata", {}).get("annotations", {}).get(f"{GROUP}/podset-required-topology")
    )
    request = {"topologyRequest": {"required": level}} if level else {}
    return {"name": name, "count": count, "template": template, **request}


def _templates(kind: Kind, spec: Object) -> Iterator[tuple[str, int, Object]]:
    """Name, number of pods and template of each pod set; the templates are those of `spec`
    itself.
    """
    if kind == JOB:
        yield "main", spec.get("parallelism", 1), spec["template"]
    elif kind == JOBSET:
        for each in spec["replicatedJobs"]:
            job = each["template"]["spec"]
            yield each["name"], each.get("replicas", 1) * job.get("parallelism", 1), job["template"]
    elif kind in _REPLICAS:
        # Launcher before Worker, Master before Worker
        for name, each in sorted(spec[_REPLICAS[kind]].items()):
            yield name.lower(), each.get("replicas", 1), each["template"]


def _policy(job: Object, spec: Object) -> Object:
    """Where `suspend` is."""
    policy: Object = spec.setdefault("runPolicy", {}) if kind_of(job) in _REPLICAS else spec
    return policy


def _active(status: Any) -> int:
    """How many pods there are: every kind counts them in its status, somewhere under the name
    "active".
    """
    if isinstance(status, dict):
        return sum(value if name == "active" else _active(value) for name, value in status.items())
    return sum(map(_active, status)) if isinstance(status, list) else 0


def _start(job: Object, labels: dict[str, str]) -> Patch:
    """Not suspended, and on nodes with these labels."""
    spec = copy.deepcopy(job["spec"])
    _policy(job, spec)["suspend"] = False
    for *_, template in _templates(kind_of(job), spec):
        template["spec"]["nodeSelector"] = {**template["spec"].get("nodeSelector", {}), **labels}
    return Patch(job, {"spec": _difference(job["spec"], spec)})


def _stop(job: Object, workload: Object) -> Iterator[Patch]:
    """Suspended; and, as soon as it may be changed, with its templates as they were.

    Nothing where it is so already.
    """
    spec = copy.deepcopy(job["spec"])
    if not _policy(job, spec).get("suspend", False):
        _policy(job, spec)["suspend"] = True
        yield Patch(job, {"spec": _difference(job["spec"], spec)})
        return
    if kind_of(job) == JOB and "startTime" in job.get("status", {}):
        yield Patch(job, {"status": {"startTime": None}}, "status")
    before = {
        each["name"]: each["template"]["spec"].get("nodeSelector")
        for each in workload["spec"]["podSets"]
    }
    for name, _, template in _templates(kind_of(job), spec):
        template["spec"].pop("nodeSelector", None)
        if before[name] is not None:
            template["spec"]["nodeSelector"] = before[name]
    if changed := _difference(job["spec"], spec):
        yield Patch(job, {"spec": changed})


def _difference(old: Object, new: Object) -> Object:
    """The merge patch that makes `new` of `old`."""
    changes: Object = {key: None for key in old if key not in new}
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            if deeper := _difference(old[key], value):
                changes[key] = deeper
        elif old.get(key) != value:
            changes[key] = value
    return changes


def _schedule(queue: Object, world: World) -> Iterator[Action]:
    """One pass of the scheduler over all that wait for a ClusterQueue: by priority, then by age."""
    yield from _set(queue, world, ("Active", True, "Ready", "Can admit new workloads"))
    name = queue["metadata"]["name"]
    behind = {
        _place(each) for each in world.all(LOCAL_QUEUE) if each["spec"]["clusterQueue"] == name
    }
    everything = [
        each
        for each in world.all(WORKLOAD)
        if (each["metadata"]["namespace"], each["spec"]["queueName"]) in behind
        and "deletionTimestamp" not in each["metadata"]
    ]
    reserving = [each for each in everything if holds(each, "QuotaReserved")]
    waiting = [each for each in everything if not holds(each, "QuotaReserved")]
    waiting.sort(key=lambda each: (-_priority(each), each["metadata"]["creationTimestamp"]))
    used = sum(map(_pods, reserving))
    for workload in waiting:
        if missing := _missing(workload, queue, used, world):
            going = _victims(workload, queue, reserving, used, world)
            pending = f". Pending the preemption of {len(going)} workload(s)" if going else ""
            yield from _set(workload, world, ("QuotaReserved", False, "Pending", missing + pending))
            for victim in going:
                if not holds(victim, "Evicted"):
                    yield from _preempt(victim, workload, name, world)
        else:
            used += _pods(workload)
            yield from _reserve(workload, queue, world)


def _place(resource: Object) -> tuple[str, str]:
    return resource["metadata"]["namespace"], resource["metadata"]["name"]


def _priority(workload: Object) -> int:
    return int(workload["spec"].get("priority", 0))


def _pods(workload: Object) -> int:
    return sum(each["count"] for each in workload["spec"]["podSets"])


def _flavor(queue: Object) -> Object:
    """The only flavor of a ClusterQueue, with its quota of pods."""
    (group,) = queue["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    assert group["coveredResources"] == ["pods"]
    return {"name": flavor["name"], "quota": int(flavor["resources"][0]["nominalQuota"])}


def _missing(workload: Object, queue: Object, used: int, world: World) -> str:
    """Why the pods of a Workload do not fit beside so many that have quota; empty where they do."""
    flavor, lacks = _flavor(queue), []
    spec = (world.get(FLAVOR, None, flavor["name"]) or {}).get("spec", {})
    topology = world.get(TOPOLOGY, None, spec.get("topologyName", "")) or {"spec": {"levels": []}}
    levels = [level["nodeLabel"] for level in topology["spec"]["levels"]]
    free = flavor["quota"] - used
    for pod_set in workload["spec"]["podSets"]:
        free -= pod_set["count"]
        cannot = f"couldn't assign flavors to pod set {pod_set['name']}: "
        if (request := pod_set.get("topologyRequest")) and request["required"] not in levels:
            lacks.append(f'{cannot}Flavor "{flavor["name"]}" does not contain the requested level')
        elif free < 0:
            lacks.append(
                f"{cannot}insufficient unused quota for pods in flavor {flavor['name']}, "
                f"{-free} more needed"
            )
    return "; ".join(lacks)


def _victims(
    workload: Object, queue: Object, admitted: list[Object], used: int, world: World
) -> list[Object]:
    """The Workloads of lower priority that have to go so that this one fits; none where that would
    not help.
    """
    lower = [each for each in admitted if _priority(each) < _priority(workload)]
    lower.sort(key=lambda each: each["metadata"]["creationTimestamp"], reverse=True)
    lower.sort(key=_priority)
    for count, each in enumerate(lower, start=1):
        used -= _pods(each)
        if not _missing(workload, queue, used, world):
            return lower[:count]
    return []


def _reserve(workload: Object, queue: Object, world: World) -> Iterator[Action]:
    name, flavors = queue["metadata"]["name"], {"pods": _flavor(queue)["name"]}
    parts = [
        {
            "name": each["name"],
            "count": each["count"],
            "flavors": flavors,
            "resourceUsage": {"pods": str(each["count"])},
        }
        for each in workload["spec"]["podSets"]
    ]
    reserved = ("QuotaReserved", True, "QuotaReserved", f"Quota reserved in ClusterQueue {name}")
    yield from _set(
        workload, world, reserved, admission={"clusterQueue": name, "podSetAssignments": parts}
    )


def _preempt(victim: Object, preemptor: Object, queue: str, world: World) -> Iterator[Action]:
    uids = (
        f"(UID: {preemptor['metadata']['uid']}, JobUID: "
        f"{preemptor['metadata']['labels'][f'{GROUP}/job-uid']})"
    )
    paths = f"preemptor path: /{queue}; preemptee path: /{queue}"
    message = (
        f"Preempted to accommodate a workload {uids} due to prioritization in the "
        f"ClusterQueue; {paths}"
    )
    yield from _set(
        victim,
        world,
        ("Preempted", True, "InClusterQueue", message),
        ("Evicted", True, "Preempted", message),
    )


def _release(workload: Object, evicted: Object, world: World) -> Iterator[Action]:
    yield from _set(
        workload,
        world,
        ("Requeued", True, evicted["reason"], evicted["message"]),
        ("QuotaReserved", False, "Pending", evicted["message"]),
        ("Admitted", False, "NoReservation", "The workload has no reservation"),
        admission=None,
    )


def _set(resource: Object, world: World, *news: Condition, **fields: object) -> Iterator[Action]:
    """Set conditions and other fields of a status."""
    merged = conditions(resource)
    for each in news:
        merged = with_condition(merged, world.now, *each)
    yield from set_status(resource, conditions=merged, **fields)
