"""What Kueue knows of the kinds it queues: whether one is suspended, its Workload, how it is started and stopped.

All pure. A TrainJob's pods are those of the JobSet that the Trainer makes of it; where they go is not said there,
because the real one does that by a field whose name changes with every release of the Trainer.
"""

import copy
import hashlib
from collections.abc import Iterator
from typing import Any

from tests.e2e.kubernetes.standins.world import JOB, Kind, Object, Patch, World, controlled_by, holds, kind_of

JOBSET = Kind("jobset.x-k8s.io/v1alpha2", "JobSet")
PYTORCHJOB = Kind("kubeflow.org/v1", "PyTorchJob")
MPIJOB = Kind("kubeflow.org/v2beta1", "MPIJob")
TRAINJOB = Kind("trainer.kubeflow.org/v1alpha1", "TrainJob")
KINDS = (JOB, JOBSET, PYTORCHJOB, MPIJOB, TRAINJOB)
GROUP = "kueue.x-k8s.io"
WORKLOAD, LOCAL_QUEUE = Kind(f"{GROUP}/v1beta2", "Workload"), Kind(f"{GROUP}/v1beta2", "LocalQueue")
CLUSTER_QUEUE, FLAVOR = Kind(f"{GROUP}/v1beta2", "ClusterQueue"), Kind(f"{GROUP}/v1beta2", "ResourceFlavor")
TOPOLOGY, CLASS = Kind(f"{GROUP}/v1beta2", "Topology"), Kind(f"{GROUP}/v1beta2", "WorkloadPriorityClass")
POD_CLASS = Kind("scheduling.k8s.io/v1", "PriorityClass")
_REPLICAS = {PYTORCHJOB: "pytorchReplicaSpecs", MPIJOB: "mpiReplicaSpecs"}
_ASKED = GROUP + "/podset-{}-topology"

Named = Iterator[tuple[str, int, Object]]


def is_suspended(job: Object) -> bool:
    return bool(_policy(job, job["spec"]).get("suspend", False))


def is_active(job: Object) -> bool:
    """Whether it has pods: every kind counts them in its status, somewhere under the name "active"."""
    return _count(job.get("status", {}), "active") > 0


def end(job: Object) -> tuple[str, str] | None:
    """Kueue's reason and the job's own message, once it has ended."""
    ended = holds(job, "Complete", "Completed", "Succeeded", "Failed")
    return ("Failed" if ended["type"] == "Failed" else "Succeeded", ended.get("message", "")) if ended else None


def pod_sets(job: Object, world: World) -> list[Object]:
    """As a Workload has them; none as long as they are not known."""
    source = next(iter(world.owned(job, JOBSET)), None) if kind_of(job) == TRAINJOB else job
    return [_pod_set(*each) for each in _templates(kind_of(source), source["spec"])] if source else []


def workload(job: Object, world: World) -> Object | None:
    """A job's Workload; None while its pods, or what its priority is, are not known."""
    metadata, sets = job["metadata"], pod_sets(job, world)
    importance = _priority(job, sets, world)
    if not sets or importance is None:
        return None
    kind = kind_of(job)
    told_apart = "\n".join((kind.kind, kind.api_version.rpartition("/")[0], metadata["name"], metadata["uid"]))
    ending = hashlib.sha1(told_apart.encode()).hexdigest()[:5]
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {
            "name": f"{kind.kind.lower()}-{metadata['name']}"[:57] + f"-{ending}",
            "namespace": metadata["namespace"],
            "labels": {f"{GROUP}/job-uid": metadata["uid"]},
            "ownerReferences": controlled_by(job),
        },
        "spec": {"queueName": metadata["labels"][f"{GROUP}/queue-name"], "podSets": sets, **importance},
    }


def _priority(job: Object, pod_sets: list[Object], world: World) -> Object | None:
    """Of the job's WorkloadPriorityClass, else of its pods' PriorityClass; None where there is no such class."""
    label = job["metadata"]["labels"].get(f"{GROUP}/priority-class")
    named = (each["template"]["spec"].get("priorityClassName") for each in pod_sets)
    name, kind = (label, CLASS) if label else (next(filter(None, named), None), POD_CLASS)
    if not name:
        return {"priority": 0}
    priority_class = world.get(kind, None, name)
    reference = {"group": kind.api_version.partition("/")[0], "kind": kind.kind, "name": name}
    return {"priority": priority_class["value"], "priorityClassRef": reference} if priority_class else None


def started(job: Object, placing: dict[str, Object]) -> Patch:
    """Not suspended, and with what is said there of each pod set's nodeSelector and tolerations."""
    spec = copy.deepcopy(job["spec"])
    _policy(job, spec)["suspend"] = False
    for name, _, template in _templates(kind_of(job), spec):
        pods, more = template["spec"], placing[name]
        pods["nodeSelector"] = {**pods.get("nodeSelector", {}), **more.get("nodeLabels", {})}
        pods["tolerations"] = [*pods.get("tolerations", ()), *more.get("tolerations", ())]
    return Patch(job, {"spec": _difference(job["spec"], spec)})


def stopped(job: Object, workload: Object) -> Iterator[Patch]:
    """Suspended; and, as soon as it may be changed, with its templates as they were. Nothing where it is so already."""
    if not is_suspended(job):
        spec = copy.deepcopy(job["spec"])
        _policy(job, spec)["suspend"] = True
        yield Patch(job, {"spec": _difference(job["spec"], spec)})
        return
    if kind_of(job) == JOB and "startTime" in job.get("status", {}):
        yield Patch(job, {"status": {"startTime": None}}, "status")
    spec, before = copy.deepcopy(job["spec"]), {each["name"]: each for each in workload["spec"]["podSets"]}
    for name, _, template in _templates(kind_of(job), spec):
        for key in ("nodeSelector", "tolerations"):
            template["spec"].pop(key, None)
            if key in (old := before[name]["template"]["spec"]):
                template["spec"][key] = old[key]
    if changed := _difference(job["spec"], spec):
        yield Patch(job, {"spec": changed})


def _policy(job: Object, spec: Object) -> Object:
    """Where `suspend` is."""
    policy: Object = spec.setdefault("runPolicy", {}) if kind_of(job) in _REPLICAS else spec
    return policy


def _templates(kind: Kind, spec: Object) -> Named:
    """Name, number of pods and template of each pod set; the templates are those of `spec` itself."""
    if kind == JOB:
        yield "main", spec.get("parallelism", 1), spec["template"]
    elif kind == JOBSET:
        for each in spec["replicatedJobs"]:
            job = each["template"]["spec"]
            yield each["name"], each.get("replicas", 1) * job.get("parallelism", 1), job["template"]
    elif kind in _REPLICAS:
        for name, each in sorted(spec[_REPLICAS[kind]].items()):  # Launcher before Worker, Master before Worker
            yield name.lower(), each.get("replicas", 1), each["template"]


def _pod_set(name: str, count: int, template: Object) -> Object:
    annotations = template.get("metadata", {}).get("annotations", {})
    asked = {how: annotations.get(_ASKED.format(how)) for how in ("required", "preferred", "unconstrained")}
    request: Object = {how: value for how, value in asked.items() if value}
    if "unconstrained" in request:
        request["unconstrained"] = request["unconstrained"] == "true"
    return {
        "name": name,
        "count": count,
        "template": template,
        **({"topologyRequest": request} if request else {}),
    }


def _count(status: Any, key: str) -> int:
    if isinstance(status, dict):
        return sum(value if name == key else _count(value, key) for name, value in status.items())
    return sum(_count(each, key) for each in status) if isinstance(status, list) else 0


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
