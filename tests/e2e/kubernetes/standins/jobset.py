"""JobSet (jobset.x-k8s.io/v1alpha2): Jobs of the replicated jobs, a headless Service, and a status out of theirs.

Of its policies it knows one: every Job must complete, nothing is started again.
"""

from collections.abc import Iterator
from math import inf

from tests.e2e.kubernetes.standins.jobset_objects import (
    desired_jobs,
    has_names,
    is_suspended,
    replicated_job,
    service,
    subdomain,
)
from tests.e2e.kubernetes.standins.world import (
    JOB,
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
    resume,
    seconds_since,
    set_status,
    suspend,
    with_condition,
)

JOBSET = Kind("jobset.x-k8s.io/v1alpha2", "JobSet")
TENDS = (JOBSET,)
FOLLOWS = (JOB, SERVICE)


def reconcile(jobset: Object, world: World) -> Iterator[Action]:
    """Service and Jobs of a JobSet that is under way; of one that has ended, what is left of them goes."""
    jobs = world.owned(jobset, JOB)
    yield from set_status(jobset, **status(jobset, jobs, world))
    if ended := holds(jobset, "Completed", "Failed"):
        yield from (Delete(job) for job in jobs if not _ended(job))
        if seconds_since(ended["lastTransitionTime"], world.now) >= jobset["spec"].get("ttlSecondsAfterFinished", inf):
            yield Delete(jobset)
        return
    if has_names(jobset) and not world.get(SERVICE, jobset["metadata"]["namespace"], subdomain(jobset)):
        yield Create(service(jobset))
    if any(holds(job, "Failed") for job in jobs):
        return
    there = {job["metadata"]["name"]: job for job in jobs}
    for desired in desired_jobs(jobset):
        existing = there.get(desired["metadata"]["name"])
        if existing is None:
            text = f'job "{desired["metadata"]["name"]}" creation failed with error: {{}}'
            yield Create(desired, refused=Complaint(jobset, "JobCreationFailed", text))
        elif not _ended(existing) and existing["spec"].get("suspend", False) != is_suspended(jobset):
            yield from suspend(existing) if is_suspended(jobset) else resume(existing, desired)


def status(jobset: Object, jobs: list[Object], world: World) -> Object:
    """What the status of a JobSet with these Jobs is to say; of one that has ended, no new condition."""
    names = [each["name"] for each in jobset["spec"].get("replicatedJobs", ())]
    of = {name: [job for job in jobs if replicated_job(job) == name] for name in names}
    fields: Object = {"restarts": 0, "replicatedJobsStatus": [_counts(*each) for each in of.items()]}
    if holds(jobset, "Completed", "Failed"):
        return fields
    if any(holds(job, "Failed") for job in jobs):
        news, fields["terminalState"] = ("Failed", True, *_failure(jobset, jobs)), "Failed"
    elif jobs and len(jobs) == len(desired_jobs(jobset)) and all(holds(job, "Complete") for job in jobs):
        news = ("Completed", True, "AllJobsCompleted", "jobset completed successfully")
        fields["terminalState"] = "Completed"
    elif is_suspended(jobset):
        news = ("Suspended", True, "SuspendedJobs", "jobset is suspended")
    elif holds(jobset, "Suspended"):
        news = ("Suspended", False, "ResumeJobs", "jobset is resumed")
    else:
        return fields
    return {**fields, "conditions": with_condition(conditions(jobset), world.now, *news)}


def _counts(name: str, jobs: list[Object]) -> Object:
    """What is said of the Jobs of one replicated job."""
    alive = [job for job in jobs if not _ended(job)]
    return {
        "name": name,
        "ready": sum(_is_ready(job) for job in alive),
        "succeeded": sum(holds(job, "Complete") is not None for job in jobs),
        "failed": sum(holds(job, "Failed") is not None for job in jobs),
        "active": sum(job.get("status", {}).get("active", 0) > 0 for job in alive),
        "suspended": sum(job["spec"].get("suspend", False) for job in alive),
    }


def _is_ready(job: Object) -> bool:
    """Whether all pods that it is to have are Ready or done."""
    status, spec = job.get("status", {}), job["spec"]
    needed = min(spec["parallelism"], spec.get("completions", spec["parallelism"]))
    return bool(status.get("ready", 0) + status.get("succeeded", 0) >= needed)


def _failure(jobset: Object, jobs: list[Object]) -> tuple[str, str]:
    """Reason and message. Without restarts every policy comes to the same, under another name."""
    failures = {job["metadata"]["name"]: failure for job in jobs if (failure := holds(job, "Failed"))}
    first = min(failures, key=lambda name: str(failures[name]["lastTransitionTime"]))
    if "failurePolicy" in jobset["spec"]:
        reason, message = "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts"
    else:
        reason, message = "FailedJobs", "jobset failed due to one or more job failures"
    return reason, f"{message} (first failed job: {first})"


def _ended(job: Object) -> bool:
    return holds(job, "Complete", "Failed") is not None
