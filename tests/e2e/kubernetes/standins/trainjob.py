"""TrainJob (trainer.kubeflow.org/v1alpha1) on a runtime with mlPolicy.torch or none: a JobSet of
the same name.
"""

import copy
from collections.abc import Iterator
from typing import Any

from tests.e2e.kubernetes.standins.jobset import JOBSET
from tests.e2e.kubernetes.standins.world import (
    Action,
    Complaint,
    Create,
    Kind,
    Object,
    Patch,
    World,
    conditions,
    controlled_by,
    holds,
    set_status,
    with_condition,
)

API = "trainer.kubeflow.org/v1alpha1"
TRAINJOB, RUNTIME = Kind(API, "TrainJob"), Kind(API, "TrainingRuntime")
TENDS = (TRAINJOB,)
FOLLOWS = (RUNTIME, JOBSET)
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def reconcile(trainjob: Object, world: World) -> Iterator[Action]:
    """The JobSet of a TrainJob that is under way, resumed and suspended as the TrainJob is."""
    existing = next(iter(world.owned(trainjob, JOBSET)), None)
    yield from set_status(trainjob, **status(trainjob, existing, world))
    runtime = world.get(
        RUNTIME, trainjob["metadata"]["namespace"], trainjob["spec"]["runtimeRef"]["name"]
    )
    if holds(trainjob, "Failed") or runtime is None:
        return
    desired = jobset(trainjob, runtime)
    if existing is None:
        text = "TrainJob resources reconciliation failed: {}"
        yield Create(desired, Complaint(trainjob, "TrainJobResourcesCreationFailed", text))
    elif existing["spec"].get("suspend", False) != desired["spec"]["suspend"]:
        yield Patch(existing, {"spec": {"suspend": desired["spec"]["suspend"]}})


def jobset(trainjob: Object, runtime: Object) -> Object:
    """The JobSet of the runtime's template, with the TrainJob's own in the step that trains."""
    template = runtime["spec"]["template"]
    spec = copy.deepcopy(template["spec"])
    for replicated in spec["replicatedJobs"]:
        if replicated["template"].get("metadata", {}).get("labels", {}).get(STEP) == "trainer":
            _train(replicated, trainjob, runtime)
    metadata = trainjob["metadata"]
    return {
        "apiVersion": JOBSET.api_version,
        "kind": JOBSET.kind,
        "metadata": {
            **{
                key: template["metadata"][key]
                for key in ("labels", "annotations")
                if key in template.get("metadata", {})
            },
            **{key: metadata[key] for key in ("name", "namespace")},
            "ownerReferences": controlled_by(trainjob),
        },
        "spec": {**spec, "suspend": trainjob["spec"].get("suspend", False)},
    }


def _train(replicated: Object, trainjob: Object, runtime: Object) -> None:
    trainer, policy = trainjob["spec"].get("trainer", {}), runtime["spec"].get("mlPolicy", {})
    nodes = trainer.get("numNodes") or policy.get("numNodes") or 1
    job = replicated["template"]["spec"]
    job |= {"parallelism": nodes, "completions": nodes}
    for container in job["template"]["spec"]["containers"]:
        if container["name"] == "node":
            container |= {
                key: trainer[key] for key in ("image", "command", "args") if key in trainer
            }
            torch = torch_env(trainjob, nodes) if "torch" in policy and trainer else []
            container["env"] = _upserted(
                container.get("env", []), [*trainer.get("env", []), *torch]
            )
            if torch:
                container["ports"] = [
                    *container.get("ports", ()),
                    {"containerPort": 29500, "protocol": "TCP"},
                ]


def torch_env(trainjob: Object, nodes: int) -> list[Object]:
    """What torchrun reads in place of its flags."""
    name = trainjob["metadata"]["name"]
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    values: dict[str, Any] = {
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": str(trainjob["spec"]["trainer"].get("numProcPerNode", "auto")),
        "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
        "PET_MASTER_PORT": "29500",
    }
    rank = {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": index}}}
    return [rank, *({"name": key, "value": value} for key, value in values.items())]


def _upserted(env: list[Object], more: list[Object]) -> list[Object]:
    return list({each["name"]: each for each in (*env, *more)}.values())


def status(trainjob: Object, existing: Object | None, world: World) -> Object:
    """The status of a TrainJob with this JobSet: mostly what the JobSet's says."""
    if holds(trainjob, "Failed"):
        return {}
    now = conditions(trainjob)
    if trainjob["spec"].get("suspend", False):
        now = with_condition(
            now, world.now, "Suspended", True, "Suspended", "TrainJob is suspended"
        )
    elif holds(trainjob, "Suspended"):
        now = with_condition(now, world.now, "Suspended", False, "Resumed", "TrainJob is resumed")
    if existing and (failed := holds(existing, "Failed")):
        now = with_condition(now, world.now, "Failed", True, failed["reason"], failed["message"])
    counts = list((existing or {}).get("status", {}).get("replicatedJobsStatus", ()))
    return {**({"conditions": now} if now else {}), **({"jobsStatus": counts} if counts else {})}
