"""MPIJob (kubeflow.org/v2beta1) for Open MPI: Service, ConfigMap, Secret, worker pods, and a launcher that is a Job.

The end of the launcher is the end of the MPIJob.
"""

from collections.abc import Iterator
from typing import Any

from tests.e2e.kubernetes.standins.mpijob_objects import around, is_suspended, launcher, name_of, worker, worker_count
from tests.e2e.kubernetes.standins.world import (
    CONFIG_MAP,
    JOB,
    POD,
    SECRET,
    SERVICE,
    Action,
    Complaint,
    Create,
    Delete,
    Kind,
    Object,
    World,
    conditions,
    holds,
    kind_of,
    resume,
    set_status,
    stamp,
    suspend,
    with_condition,
)

MPIJOB = Kind("kubeflow.org/v2beta1", "MPIJob")
TENDS = (MPIJOB,)
FOLLOWS = (JOB, POD, SERVICE, SECRET, CONFIG_MAP)


def reconcile(mpijob: Object, world: World) -> Iterator[Action]:
    """Everything around the pods, then the pods; of one that has ended, the workers go."""
    launchers, workers = world.owned(mpijob, JOB), world.owned(mpijob, POD)
    yield from set_status(mpijob, **status(mpijob, launchers, workers, world))
    if holds(mpijob, "Succeeded", "Failed"):
        yield from (Delete(pod) for pod in workers if _cleans(mpijob, pod))
        return
    if any(_is_foreign(thing, mpijob, world) for thing in around(mpijob)):
        return  # the real one complains, and tries for ever
    for thing in around(mpijob):
        if not world.get(kind_of(thing), thing["metadata"]["namespace"], thing["metadata"]["name"]):
            yield Create(thing)
    if is_suspended(mpijob):
        yield from (Delete(pod) for pod in workers)
    else:
        there = {pod["metadata"]["name"] for pod in workers}
        complaint = Complaint(mpijob, "MPIJobFailed", "worker pod created failed: {}")
        desired = (worker(mpijob, index) for index in range(worker_count(mpijob)))
        yield from (Create(pod, complaint) for pod in desired if pod["metadata"]["name"] not in there)
    yield from _launch(mpijob, launchers)


def _launch(mpijob: Object, launchers: list[Object]) -> Iterator[Action]:
    job = launcher(mpijob)
    if not launchers:
        yield Create(job, Complaint(mpijob, "MPIJobFailed", "launcher pod created failed: {}"))
    elif launchers[0]["spec"].get("suspend", False) != is_suspended(mpijob):
        yield from suspend(launchers[0]) if is_suspended(mpijob) else resume(launchers[0], job)


def status(mpijob: Object, launchers: list[Object], workers: list[Object], world: World) -> Object:
    """What the status of an MPIJob with these is to say."""
    pods = [pod for job in launchers for pod in world.owned(job, POD)]
    counts = {"Launcher": _counts(pods), "Worker": _counts(workers)}
    fields: Object = {"replicaStatuses": counts}
    old = conditions(mpijob)
    if holds(mpijob, "Succeeded", "Failed"):
        return {}
    for news in _news(mpijob, launchers, pods, workers):
        old = _with(old, world, *news)
        if news[0] in ("Succeeded", "Failed"):
            fields["completionTime"] = stamp(world.now)
    if "startTime" not in mpijob.get("status", {}) and not is_suspended(mpijob):
        fields["startTime"] = stamp(world.now)
    return {**fields, "conditions": old}


def _news(
    mpijob: Object, launchers: list[Object], pods: list[Object], workers: list[Object]
) -> Iterator[tuple[str, bool, str, str]]:
    """Type, whether it holds, reason and message of the conditions as they are now."""
    name = f"MPIJob {mpijob['metadata']['namespace']}/{name_of(mpijob)}"
    yield "Created", True, "MPIJobCreated", f"{name} is created."
    if is_suspended(mpijob):
        yield "Suspended", True, "MPIJobSuspended", "MPIJob suspended"
        yield "Running", False, "MPIJobSuspended", f"{name} is suspended."
    elif holds(mpijob, "Suspended"):
        yield "Suspended", False, "MPIJobResumed", "MPIJob resumed"
    if any(holds(job, "Complete") for job in launchers):
        yield "Succeeded", True, "MPIJobSucceeded", f"{name} successfully completed."
        yield "Running", False, "MPIJobSucceeded", f"{name} successfully completed."
    elif launchers and (failed := holds(launchers[0], "Failed")):
        yield ("Failed", True, *_failure(failed, pods))
    elif _running(pods) and len(_running(workers)) == worker_count(mpijob):
        yield "Running", True, "MPIJobRunning", f"{name} is running."


def _failure(failed: Object, pods: list[Object]) -> tuple[str, str]:
    """The launcher's reason and message; where it was its pod, the pod's too, as empty as they mostly are."""
    reason, message = failed["reason"], failed["message"]
    ended = [pod["status"] for pod in pods if pod["status"].get("phase") == "Failed"]
    if reason == "BackoffLimitExceeded" and ended:
        return f"{reason}/{ended[-1].get('reason', '')}", f"{message}: {ended[-1].get('message', '')}"
    return reason, message


def _with(old: list[Object], world: World, *news: Any) -> list[Object]:
    """The conditions with this one, and when anything in it has changed last."""
    changed = with_condition(old, world.now, *news)
    return [each if each in old else {**each, "lastUpdateTime": stamp(world.now)} for each in changed]


def _counts(pods: list[Object]) -> Object:
    phases = [pod.get("status", {}).get("phase") for pod in pods]
    counts = {"active": "Running", "succeeded": "Succeeded", "failed": "Failed"}
    return {key: phases.count(phase) for key, phase in counts.items()}


def _running(pods: list[Object]) -> list[Object]:
    return [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]


def _cleans(mpijob: Object, pod: Object) -> bool:
    """Whether the pod goes once the launcher has ended."""
    policy = mpijob["spec"].get("runPolicy", {}).get("cleanPodPolicy", "None")
    alive = pod.get("status", {}).get("phase") in ("Pending", "Running")
    return bool(policy == "All" or (policy == "Running" and alive))


def _is_foreign(thing: Object, mpijob: Object, world: World) -> bool:
    """Whether somebody else made what has its name."""
    existing = world.get(kind_of(thing), thing["metadata"]["namespace"], thing["metadata"]["name"])
    return existing is not None and existing not in world.owned(mpijob, kind_of(thing))
