"""What JobSet makes of a JobSet. Pure."""

import hashlib

from tests.e2e.kubernetes.standins.world import Object, controlled_by

PREFIX = "jobset.sigs.k8s.io"


def service(jobset: Object) -> Object:
    """The headless Service that gives the pods their names."""
    network = jobset["spec"].get("network", {})
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(jobset, subdomain(jobset)),
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
    domain = {"subdomain": subdomain(jobset)} if has_names(jobset) else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**_metadata(jobset, name), **_marked(template, marks)},
        "spec": {
            "completionMode": "Indexed",  # the real one's webhook sets this, and the pods' restart policy
            **template["spec"],
            "suspend": is_suspended(jobset),
            "template": {
                "metadata": _marked(pod, marks),
                "spec": {"restartPolicy": "OnFailure", **pod["spec"], **domain},
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
        values["coordinator"] = f"{metadata['name']}-{place}.{subdomain(jobset)}"
    return {f"{PREFIX}/{key}": str(value) for key, value in values.items()}


def _marked(template: Object, marks: dict[str, str]) -> Object:
    metadata = template.get("metadata", {})
    return {part: {**metadata.get(part, {}), **marks} for part in ("labels", "annotations")}


def replicated_job(job: Object) -> str:
    return str(job["metadata"]["labels"][f"{PREFIX}/replicatedjob-name"])


def is_suspended(jobset: Object) -> bool:
    return bool(jobset["spec"].get("suspend", False))


def has_names(jobset: Object) -> bool:
    return bool(jobset["spec"].get("network", {}).get("enableDNSHostnames", True))


def subdomain(jobset: Object) -> str:
    return str(jobset["spec"].get("network", {}).get("subdomain") or jobset["metadata"]["name"])


def _metadata(jobset: Object, name: str) -> Object:
    return {"name": name, "namespace": jobset["metadata"]["namespace"], "ownerReferences": controlled_by(jobset)}
