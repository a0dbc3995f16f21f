"""Kueue (kueue.x-k8s.io): a Workload for every job with a queue's label, quota, priorities, and what statuses say.

The scheduler runs for each ClusterQueue by itself; what it decides is in kueue_quota.py. The last step of an eviction,
letting the quota go, comes when the job has no pods any more, as with the real one. Reasons are those of release 0.19
as it comes, with its feature gate UnadmittedWorkloadsObservability off.
"""

from collections import Counter
from collections.abc import Iterator

from tests.e2e.kubernetes.standins import kueue_jobs as jobs
from tests.e2e.kubernetes.standins import kueue_quota as quota
from tests.e2e.kubernetes.standins.kueue_jobs import (
    CLASS,
    CLUSTER_QUEUE,
    FLAVOR,
    GROUP,
    LOCAL_QUEUE,
    POD_CLASS,
    TOPOLOGY,
    WORKLOAD,
)
from tests.e2e.kubernetes.standins.world import (
    NODE,
    Action,
    Create,
    Kind,
    Object,
    World,
    conditions,
    holds,
    kind_of,
    set_status,
    stamp,
    with_condition,
)

TENDS = (*jobs.KINDS, WORKLOAD, LOCAL_QUEUE, CLUSTER_QUEUE)
FOLLOWS = (FLAVOR, TOPOLOGY, CLASS, POD_CLASS, NODE)
Said = tuple[str, bool, str, str]  # a condition: type, whether it holds, reason, message


def reconcile(thing: Object, world: World) -> Iterator[Action]:
    """Of a job, a Workload or a queue, as it is after what was done for the others."""
    metadata = thing["metadata"]
    thing = world.get(kind_of(thing), metadata.get("namespace"), metadata["name"]) or thing
    if kind_of(thing) == WORKLOAD:
        return _workload(thing, world)
    if kind_of(thing) == LOCAL_QUEUE:
        return _local_queue(thing, world)
    if kind_of(thing) == CLUSTER_QUEUE:
        return _cluster_queue(thing, world)
    return _job(thing, world)


def _job(job: Object, world: World) -> Iterator[Action]:
    """Starts and stops a job as its Workload stands, and says in the Workload what has become of the job."""
    metadata = job["metadata"]
    if f"{GROUP}/queue-name" not in metadata.get("labels", {}) or metadata.get("ownerReferences"):
        return
    workload = next(iter(world.owned(job, WORKLOAD)), None)
    if workload is None:
        if not jobs.end(job) and (made := jobs.workload(job, world)):
            yield Create(made)
    elif ended := jobs.end(job):
        if not holds(workload, "Finished"):
            yield from _say(workload, world, ("Finished", True, *ended))
    elif (evicted := holds(workload, "Evicted")) or not holds(workload, "Admitted"):
        yield from jobs.stopped(job, workload)
        if evicted and holds(workload, "QuotaReserved") and not jobs.is_active(job):
            yield from _let_go(workload, evicted, world)
    elif jobs.is_suspended(job):
        yield jobs.started(job, _placing(workload, world))


def _placing(workload: Object, world: World) -> dict[str, Object]:
    """What the flavors say of nodes, by pod set."""
    placing: dict[str, Object] = {}
    for part in workload["status"]["admission"]["podSetAssignments"]:
        specs = [
            (world.get(FLAVOR, None, name) or {}).get("spec", {}) for name in set(part.get("flavors", {}).values())
        ]
        labels = {key: value for spec in specs for key, value in spec.get("nodeLabels", {}).items()}
        tolerations = [each for spec in specs for each in spec.get("tolerations", ())]
        placing[part["name"]] = {"nodeLabels": labels, "tolerations": tolerations}
    return placing


def _let_go(workload: Object, evicted: Object, world: World) -> Iterator[Action]:
    again = evicted["reason"] == "Preempted"
    yield from _say(
        workload,
        world,
        ("Requeued", again, evicted["reason"], evicted["message"]),
        ("QuotaReserved", False, "Pending", evicted["message"]),
        ("Admitted", False, "NoReservation", "The workload has no reservation"),
        admission=None,
    )


def _workload(workload: Object, world: World) -> Iterator[Action]:
    """What does not need the scheduler."""
    if holds(workload, "Finished") or (holds(workload, "Evicted") and holds(workload, "QuotaReserved")):
        return
    if not workload["spec"].get("active", True):
        if not holds(workload, "Evicted"):
            yield from _say(workload, world, ("Evicted", True, "Deactivated", "The workload is deactivated"))
    elif holds(workload, "QuotaReserved"):
        checks = workload["status"].get("admissionChecks", ())
        if not holds(workload, "Admitted") and all(check["state"] == "Ready" for check in checks):
            yield from _say(workload, world, ("Admitted", True, "Admitted", "The workload is admitted"))
    elif blocker := _blocker(workload, world):
        yield from _say(workload, world, ("QuotaReserved", False, "Inadmissible", blocker))


def _blocker(workload: Object, world: World) -> str | None:
    """What is wrong with its queue."""
    name = workload["spec"]["queueName"]
    queue = world.get(LOCAL_QUEUE, workload["metadata"]["namespace"], name)
    if queue is None:
        return f"LocalQueue {name} doesn't exist"
    if queue["spec"].get("stopPolicy", "None") != "None":
        return f"LocalQueue {name} is inactive"
    behind = world.get(CLUSTER_QUEUE, None, queue["spec"]["clusterQueue"])
    if behind is None:
        return f"ClusterQueue {queue['spec']['clusterQueue']} doesn't exist"
    return f"ClusterQueue {behind['metadata']['name']} is inactive" if _inactive(behind, world) else None


def _inactive(queue: Object, world: World) -> tuple[str, str] | None:
    """Reason and message of a ClusterQueue that admits nothing."""
    if queue["spec"].get("stopPolicy", "None") != "None":
        return "Stopped", "Can't admit new workloads: is stopped."
    names = [each["name"] for group in queue["spec"].get("resourceGroups", ()) for each in group["flavors"]]
    if lost := [name for name in names if not world.get(FLAVOR, None, name)]:
        return "FlavorNotFound", f"Can't admit new workloads: references missing ResourceFlavor(s): {','.join(lost)}."
    for name in names:
        topology = (world.get(FLAVOR, None, name) or {}).get("spec", {}).get("topologyName")
        if topology and not world.get(TOPOLOGY, None, topology):
            lost_one = f'there is no Topology "{topology}" for TAS flavor "{name}"'
            return "TopologyNotFound", f"Can't admit new workloads: {lost_one}."
    return None


def _local_queue(queue: Object, world: World) -> Iterator[Action]:
    behind = world.get(CLUSTER_QUEUE, None, queue["spec"]["clusterQueue"])
    condition: Said = ("Active", True, "Ready", "Can submit new workloads to localQueue")
    if queue["spec"].get("stopPolicy", "None") != "None":
        condition = ("Active", False, "Stopped", "LocalQueue is stopped")
    elif behind is None:
        condition = ("Active", False, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue")
    elif _inactive(behind, world):
        condition = ("Active", False, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue")
    yield from _say(queue, world, condition, **_counts(_waiting_in(queue, world)))


def _cluster_queue(queue: Object, world: World) -> Iterator[Action]:
    """Its status, and one pass of the scheduler over all that wait for it: by priority, then by age."""
    behind = [each for each in world.all(LOCAL_QUEUE) if each["spec"]["clusterQueue"] == queue["metadata"]["name"]]
    everything = [workload for each in behind for workload in _waiting_in(each, world)]
    inactive = _inactive(queue, world)
    active = ("Active", False, *inactive) if inactive else ("Active", True, "Ready", "Can admit new workloads")
    yield from _say(queue, world, active, **_counts(everything))
    reserving = [each for each in everything if holds(each, "QuotaReserved")]
    waiting = [each for each in everything if not holds(each, "QuotaReserved") and each["spec"].get("active", True)]
    waiting.sort(key=lambda each: (-quota.priority(each), each["metadata"]["creationTimestamp"]))
    used = sum((quota.taken(each) for each in reserving), Counter[tuple[str, str]]())
    for workload in waiting:
        if not _blocker(workload, world):
            offer = quota.Offer(queue, _by_name(FLAVOR, world), _by_name(TOPOLOGY, world), world.all(NODE), used)
            assignment = quota.assign(workload, offer)
            used = used if assignment.message else used + assignment.usage
            yield from _decide(workload, assignment, offer, reserving, world)


def _decide(
    workload: Object, assignment: quota.Assignment, offer: quota.Offer, reserving: list[Object], world: World
) -> Iterator[Action]:
    """Quota, or others that have to go for it, or what is missing."""
    if not assignment.message:
        yield from _reserve(workload, assignment, offer.queue, world)
        return
    going = [] if assignment.never else quota.victims(workload, offer, reserving)
    pending = f". Pending the preemption of {len(going)} workload(s)" if going else ""
    yield from _say(workload, world, ("QuotaReserved", False, "Pending", assignment.message + pending))
    for victim in going:
        if not holds(victim, "Evicted"):
            yield from _preempt(victim, workload, offer.queue, world)


def _reserve(workload: Object, assignment: quota.Assignment, queue: Object, world: World) -> Iterator[Action]:
    name, checks = (
        queue["metadata"]["name"],
        queue["spec"].get("admissionChecksStrategy", {}).get("admissionChecks", ()),
    )
    over: list[Said] = [
        (each["type"], False, "QuotaReserved", f"Previously: {each['message']}")
        for each in (holds(workload, "Evicted"), holds(workload, "Preempted"))
        if each
    ]
    pending = {"state": "Pending", "message": "", "lastTransitionTime": stamp(world.now)}
    yield from _say(
        workload,
        world,
        ("QuotaReserved", True, "QuotaReserved", f"Quota reserved in ClusterQueue {name}"),
        *over,
        admission={"clusterQueue": name, "podSetAssignments": quota.parts(workload, assignment)},
        **({"admissionChecks": [{"name": each["name"], **pending} for each in checks]} if checks else {}),
    )


def _preempt(victim: Object, preemptor: Object, queue: Object, world: World) -> Iterator[Action]:
    uids = f"(UID: {preemptor['metadata']['uid']}, JobUID: {preemptor['metadata']['labels'][f'{GROUP}/job-uid']})"
    path = f"/{queue['metadata']['name']}"
    paths = f"preemptor path: {path}; preemptee path: {path}"
    message = f"Preempted to accommodate a workload {uids} due to prioritization in the ClusterQueue; {paths}"
    yield from _say(
        victim, world, ("Preempted", True, "InClusterQueue", message), ("Evicted", True, "Preempted", message)
    )


def _waiting_in(queue: Object, world: World) -> list[Object]:
    """What is in a LocalQueue and has not ended."""
    name, namespace = queue["metadata"]["name"], queue["metadata"]["namespace"]
    queued = [each for each in world.all(WORKLOAD, namespace) if each["spec"]["queueName"] == name]
    return [each for each in queued if not holds(each, "Finished") and "deletionTimestamp" not in each["metadata"]]


def _counts(workloads: list[Object]) -> dict[str, int]:
    reserving = sum(bool(holds(each, "QuotaReserved")) for each in workloads)
    admitted = sum(bool(holds(each, "Admitted")) for each in workloads)
    pending = len(workloads) - reserving
    return {"pendingWorkloads": pending, "reservingWorkloads": reserving, "admittedWorkloads": admitted}


def _by_name(kind: Kind, world: World) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in world.all(kind)}


def _say(thing: Object, world: World, *news: Said, **fields: object) -> Iterator[Action]:
    """Set conditions and other fields of a status."""
    merged = conditions(thing)
    for each in news:
        merged = with_condition(merged, world.now, *each)
    yield from set_status(thing, conditions=merged, **fields)
