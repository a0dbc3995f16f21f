"""JobSet (jobset.x-k8s.io/v1alpha2): Jobs of the replicated jobs, a headless Service, and a status
out of theirs.

It ends as ours do: complete with all of its Jobs (successPolicy All), failed with the first that
fails, which nothing starts again.
"""

import hashlib
from collections.abc import Iterator

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
    controlled_by,
    holds,
    resume,
    set_status,
    suspend,
    with_condition,
)

JOBSET = Kind("jobset.x-k8s.io/v1alpha2", "JobSet")
TENDS = (JOBSET,)
FOLLOWS = (JOB, SERVICE)
_PREFIX = "jobset.sigs.k8s.io"


def reconcile(jobset: Object, world: World) -> Iterator[Action]:
    """Service and Jobs of a JobSet that is under way; of one that has ended, the Jobs that have not
    go.
    """
    jobs = world.owned(jobset, JOB)
    yield from set_status(jobset, **status(jobset, jobs, world))
    if holds(jobset, "Completed", "Failed"):
        yield from (Delete(job) for job in jobs if not holds(job, "Complete", "Failed"))
        return
    if not world.get(SERVICE, jobset["metadata"]["namespace"], subdomain(jobset)):
        yield Create(service(jobset))
    if any(holds(job, "Failed") for job in jobs):
        return
    there = {job["metadata"]["name"]: job for job in jobs}
    for desired in desired_jobs(jobset):
        existing = there.get(desired["metadata"]["name"])
        if existing is None:
            text = f'job "{desired["metadata"]["name"]}" creation failed with error: {{}}'
            yield Create(desired, refused=Complaint(jobset, "JobCreationFailed", text))
        elif existing["spec"].get("suspend", False) != is_suspended(jobset):
            yield from suspend(existing) if is_suspended(jobset) else resume(existing, desired)


def status(jobset: Object, jobs: list[Object], world: World) -> Object:
    """The status of a JobSet with these Jobs; of one that has ended, no new condition."""
    names = [each["name"] for each in jobset["spec"]["replicatedJobs"]]
    mark = f"{_PREFIX}/replicatedjob-name"
    of = {name: [job for job in jobs if job["metadata"]["labels"][mark] == name] for name in names}
    fields: Object = {
        "restarts": 0,
        "replicatedJobsStatus": [_counts(*each) for each in of.items()],
    }
    failures = {
        job["metadata"]["name"]: failure for job in jobs if (failure := holds(job, "Failed"))
    }
    if holds(jobset, "Completed", "Failed"):
        return fields
    if failures:
        first = min(failures, key=lambda name: str(failures[name]["lastTransitionTime"]))
        message = f"jobset failed due to one or more job failures (first failed job: {first})"
        news, fields["terminalState"] = ("Failed", True, "FailedJobs", message), "Failed"
    elif sum(holds(job, "Complete") is not None for job in jobs) == len(desired_jobs(jobset)):
        message = "jobset completed successfully"
        news, fields["terminalState"] = (
            ("Completed", True, "AllJobsCompleted", message),
            "Completed",
        )
    elif is_suspended(jobset):
        news = ("Suspended", True, "SuspendedJobs", "jobset is suspended")
    elif holds(jobset, "Suspended"):
        news = ("Suspended", False, "ResumeJobs", "jobset is resumed")
    else:
        return fields
    return {**fields, "conditions": with_condition(conditions(jobset), world.now, *news)}


def _counts(name: str, jobs: list[Object]) -> Object:
    """The status of the Jobs of one replicated job."""
    alive = [job for job in jobs if not holds(job, "Complete", "Failed")]
    return {
        "name": name,
        "ready": sum(
            job.get("status", {}).get("ready", 0) >= job["spec"]["parallelism"] for job in alive
        ),
        "succeeded": sum(holds(job, "Complete") is not None for job in jobs),
        "failed": sum(holds(job, "Failed") is not None for job in jobs),
        "active": sum(job.get("status", {}).get("active", 0) > 0 for job in alive),
        "suspended": sum(job["spec"].get("suspend", False) for job in alive),
    }


def service(jobset: Object) -> Object:
    """The headless Service that gives the pods their names."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(jobset, subdomain(jobset)),
        "spec": {
            "clusterIP": "None",
            "selector": {f"{_PREFIX}/jobset-name": jobset["metadata"]["name"]},
            "publishNotReadyAddresses": jobset["spec"]["network"].get(
                "publishNotReadyAddresses", True
            ),
        },
    }


def desired_jobs(jobset: Object) -> list[Object]:
    """The Jobs of all replicated jobs, suspended as the JobSet is."""
    replicated = jobset["spec"]["replicatedJobs"]
    return [
        _job(jobset, each, index) for each in replicated for index in range(each.get("replicas", 1))
    ]


def _job(jobset: Object, replicated: Object, index: int) -> Object:
    name = f"{jobset['metadata']['name']}-{replicated['name']}-{index}"
    marks, template = _marks(jobset, replicated, index, name), replicated["template"]
    pod = template["spec"]["template"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**_metadata(jobset, name), **_marked(template, marks)},
        "spec": {
            # The real one's webhook sets this, and the pods' restart policy
            "completionMode": "Indexed",
            **template["spec"],
            "suspend": is_suspended(jobset),
            "template": {
                "metadata": _marked(pod, marks),
                "spec": {
                    "restartPolicy": "OnFailure",
                    **pod["spec"],
                    "subdomain": subdomain(jobset),
                },
            },
        },
    }


def _marks(jobset: Object, replicated: Object, index: int, job: str) -> dict[str, str]:
    """Labels and annotations alike of Jobs and their pods."""
    metadata = jobset["metadata"]
    values = {
        "jobset-name": metadata["name"],
        "jobset-uid": metadata["uid"],
        "replicatedjob-name": replicated["name"],
        "replicatedjob-replicas": replicated.get("replicas", 1),
        "job-index": index,
        "job-key": hashlib.sha1(f"{metadata['namespace']}/{job}".encode()).hexdigest(),
        "restart-attempt": 0,
    }
    return {f"{_PREFIX}/{key}": str(value) for key, value in values.items()}


def _marked(template: Object, marks: dict[str, str]) -> Object:
    metadata = template.get("metadata", {})
    return {part: {**metadata.get(part, {}), **marks} for part in ("labels", "annotations")}


def is_suspended(jobset: Object) -> bool:
    return bool(jobset["spec"].get("suspend", False))


def subdomain(jobset: Object) -> str:
    return str(jobset["spec"]["network"].get("subdomain") or jobset["metadata"]["name"])


def _metadata(jobset: Object, name: str) -> Object:
    return {
        "name": name,
        "namespace": jobset["metadata"]["namespace"],
        "ownerReferences": controlled_by(jobset),
    }
