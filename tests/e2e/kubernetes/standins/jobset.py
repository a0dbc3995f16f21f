"""JobSet (jobset.x-k8s.io/v1alpha2): Jobs of the replicated jobs, a headless Service, and a status out of theirs.

Of its policies it knows one: every Job must complete, nothing is started again.
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
    Patch,
    World,
    conditions,
    controlled_by,
    holds,
    seconds_since,
    set_status,
    with_condition,
)

JOBSET = Kind("jobset.x-k8s.io/v1alpha2", "JobSet")
TENDS = (JOBSET,)
FOLLOWS = (JOB, SERVICE)
PREFIX = "jobset.sigs.k8s.io"


def reconcile(jobset: Object, world: World) -> Iterator[Action]:
    """Service and Jobs of a JobSet that is under way; of one that has ended, what is left of them goes."""
    jobs = world.owned(jobset, JOB)
    yield from set_status(jobset, **status(jobset, jobs, world))
    if holds(jobset, "Completed") or holds(jobset, "Failed"):
        yield from (Delete(job) for job in jobs if not _ended(job))
        yield from _expire(jobset, world)
        return
    if _has_names(jobset) and not world.get(SERVICE, jobset["metadata"]["namespace"], _subdomain(jobset)):
        yield Create(service(jobset))
    if any(holds(job, "Failed") for job in jobs):
        return
    there = {job["metadata"]["name"]: job for job in jobs}
    for wanted in desired_jobs(jobset):
        found = there.get(wanted["metadata"]["name"])
        if found is None:
            text = f'job "{wanted["metadata"]["name"]}" creation failed with error: {{}}'
            yield Create(wanted, refused=Complaint(jobset, "JobCreationFailed", text))
        elif not _ended(found) and found["spec"].get("suspend", False) != _suspended(jobset):
            yield from _suspend(found) if _suspended(jobset) else _resume(found, wanted)


def service(jobset: Object) -> Object:
    """The headless Service that gives the pods their names."""
    network = jobset["spec"].get("network", {})
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(jobset, _subdomain(jobset)),
        "spec": {
            "clusterIP": "None",
            "selector": {f"{PREFIX}/jobset-name": jobset["metadata"]["name"]},
            "publishNotReadyAddresses": network.get("publishNotReadyAddresses", True),
        },
    }


def desired_jobs(jobset: Object) -> list[Object]:
    """The Jobs of all replicated jobs, suspended as the JobSet is."""
    return [
        _job(jobset, replicated, index)
        for replicated in jobset["spec"].get("replicatedJobs", ())
        for index in range(replicated.get("replicas", 1))
    ]


def _job(jobset: Object, replicated: Object, index: int) -> Object:
    name = f"{jobset['metadata']['name']}-{replicated['name']}-{index}"
    marks, template = _marks(jobset, replicated, index, name), replicated["template"]
    pod = template["spec"]["template"]
    subdomain = {"subdomain": _subdomain(jobset)} if _has_names(jobset) else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**_metadata(jobset, name), **_marked(template, marks)},
        "spec": {
            "completionMode": "Indexed",  # the real one's webhook sets this, and the pods' restart policy
            **template["spec"],
            "suspend": _suspended(jobset),
            "template": {
                "metadata": _marked(pod, marks),
                "spec": {"restartPolicy": "OnFailure", **pod["spec"], **subdomain},
            },
        },
    }


def _marks(jobset: Object, replicated: Object, index: int, job: str) -> dict[str, str]:
    """Labels and annotations alike of Jobs and their pods."""
    metadata, all_of_it = jobset["metadata"], jobset["spec"]["replicatedJobs"]
    before = all_of_it[: all_of_it.index(replicated)]
    values = {
        "jobset-name": metadata["name"],
        "jobset-uid": metadata["uid"],
        "replicatedjob-name": replicated["name"],
        "replicatedjob-replicas": replicated.get("replicas", 1),
        "global-replicas": sum(each.get("replicas", 1) for each in all_of_it),
        "job-index": index,
        "job-global-index": sum(each.get("replicas", 1) for each in before) + index,
        "job-key": hashlib.sha1(f"{metadata['namespace']}/{job}".encode()).hexdigest(),
        "group-name": replicated.get("groupName", "default"),
        "restart-attempt": 0,
        "job-restart-attempt": 0,
    }
    if chief := jobset["spec"].get("coordinator"):
        place = f"{chief['replicatedJob']}-{chief.get('jobIndex', 0)}-{chief.get('podIndex', 0)}"
        values["coordinator"] = f"{metadata['name']}-{place}.{_subdomain(jobset)}"
    return {f"{PREFIX}/{key}": str(value) for key, value in values.items()}


def _marked(template: Object, marks: dict[str, str]) -> Object:
    metadata = template.get("metadata", {})
    return {part: {**metadata.get(part, {}), **marks} for part in ("labels", "annotations")}


def _suspend(job: Object) -> Iterator[Action]:
    yield Patch(job, {"spec": {"suspend": True}})


def _resume(job: Object, wanted: Object) -> Iterator[Action]:
    """With where its pods shall go, which whoever suspended it may have decided meanwhile."""
    if "startTime" in job.get("status", {}):  # or its template cannot be changed
        yield Patch(job, {"status": {"startTime": None}}, "status")
    pod = wanted["spec"]["template"]
    placing = {
        key: pod["spec"][key] for key in ("nodeSelector", "tolerations", "schedulingGates") if key in pod["spec"]
    }
    yield Patch(job, {"spec": {"suspend": False, "template": {"metadata": pod["metadata"], "spec": placing}}})


def status(jobset: Object, jobs: list[Object], world: World) -> Object:
    """What the status of a JobSet with these Jobs is to say; of one that has ended, no new condition."""
    names = [each["name"] for each in jobset["spec"].get("replicatedJobs", ())]
    of = {name: [job for job in jobs if _replicated(job) == name] for name in names}
    found: Object = {"restarts": 0, "replicatedJobsStatus": [_counts(*each) for each in of.items()]}
    if holds(jobset, "Completed") or holds(jobset, "Failed"):
        return found
    if any(holds(job, "Failed") for job in jobs):
        news, found["terminalState"] = ("Failed", True, *_failure(jobset, jobs)), "Failed"
    elif jobs and len(jobs) == len(desired_jobs(jobset)) and all(holds(job, "Complete") for job in jobs):
        news = ("Completed", True, "AllJobsCompleted", "jobset completed successfully")
        found["terminalState"] = "Completed"
    elif _suspended(jobset):
        news = ("Suspended", True, "SuspendedJobs", "jobset is suspended")
    elif holds(jobset, "Suspended"):
        news = ("Suspended", False, "ResumeJobs", "jobset is resumed")
    else:
        return found
    return {**found, "conditions": with_condition(conditions(jobset), world.now, *news)}


def _replicated(job: Object) -> str:
    return str(job["metadata"]["labels"][f"{PREFIX}/replicatedjob-name"])


def _counts(name: str, jobs: list[Object]) -> Object:
    """What is said of the Jobs of one replicated job."""
    alive = [job for job in jobs if not _ended(job)]
    return {
        "name": name,
        "ready": sum(_is_ready(job) for job in alive),
        "succeeded": sum(holds(job, "Complete") for job in jobs),
        "failed": sum(holds(job, "Failed") for job in jobs),
        "active": sum(job.get("status", {}).get("active", 0) > 0 for job in alive),
        "suspended": sum(job["spec"].get("suspend", False) for job in alive),
    }


def _is_ready(job: Object) -> bool:
    """Whether all pods that it is to have are Ready or done."""
    status, spec = job.get("status", {}), job["spec"]
    wanted = min(spec["parallelism"], spec.get("completions", spec["parallelism"]))
    return bool(status.get("ready", 0) + status.get("succeeded", 0) >= wanted)


def _failure(jobset: Object, jobs: list[Object]) -> tuple[str, str]:
    """Reason and message. Without restarts every policy comes to the same, under another name."""
    first = min((_since_failed(job), job["metadata"]["name"]) for job in jobs if holds(job, "Failed"))[1]
    if "failurePolicy" in jobset["spec"]:
        reason, message = "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts"
    else:
        reason, message = "FailedJobs", "jobset failed due to one or more job failures"
    return reason, f"{message} (first failed job: {first})"


def _since_failed(job: Object) -> str:
    return str(next(each["lastTransitionTime"] for each in conditions(job) if each["type"] == "Failed"))


def _expire(jobset: Object, world: World) -> Iterator[Action]:
    ttl_s = jobset["spec"].get("ttlSecondsAfterFinished")
    ended = next(
        each for each in conditions(jobset) if each["type"] in ("Completed", "Failed") and each["status"] == "True"
    )
    if ttl_s is not None and seconds_since(ended["lastTransitionTime"], world.now) >= ttl_s:
        yield Delete(jobset)


def _ended(job: Object) -> bool:
    return holds(job, "Complete") or holds(job, "Failed")


def _suspended(jobset: Object) -> bool:
    return bool(jobset["spec"].get("suspend", False))


def _has_names(jobset: Object) -> bool:
    return bool(jobset["spec"].get("network", {}).get("enableDNSHostnames", True))


def _subdomain(jobset: Object) -> str:
    return str(jobset["spec"].get("network", {}).get("subdomain") or jobset["metadata"]["name"])


def _metadata(jobset: Object, name: str) -> Object:
    return {"name": name, "namespace": jobset["metadata"]["namespace"], "ownerReferences": controlled_by(jobset)}
