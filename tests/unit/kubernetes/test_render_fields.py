"""Every field of a manifest is one that Kubernetes knows."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob
from kubeflow_trainer_api.models.trainer_v1alpha1_training_runtime import (
    TrainerV1alpha1TrainingRuntime,
)

from tests.unit.kubernetes.golden import rendered

Model = (
    type[JobsetV1alpha2JobSet]
    | type[TrainerV1alpha1TrainJob]
    | type[TrainerV1alpha1TrainingRuntime]
)
MODELS: dict[str, Model] = {
    "JobSet": JobsetV1alpha2JobSet,
    "TrainJob": TrainerV1alpha1TrainJob,
    "TrainingRuntime": TrainerV1alpha1TrainingRuntime,
}
SUBMITTED = [
    ("jobset", "JobSet"),
    ("everything", "JobSet"),
    ("trainjob", "TrainJob"),
    ("trainjob", "TrainingRuntime"),
]


def submitted(name: str, kind: str) -> dict[str, Any]:
    (body,) = (body for body in yaml.safe_load_all(rendered(name)) if body["kind"] == kind)
    typed: dict[str, Any] = body
    return typed


def lost(body: dict[str, Any]) -> list[str]:
    """Where the model reads something else than was sent: it drops fields it does not know.

    Raises on wrong types.
    """
    read = MODELS[body["kind"]].from_dict(body)
    assert read is not None
    return list(_differences(body, read.to_dict()))


def _differences(sent: Any, read: Any, path: str = "") -> Iterator[str]:
    """Paths of what was sent and is not read so. What is only read is a default."""
    if isinstance(sent, dict) and isinstance(read, dict):
        for key, value in sent.items():
            yield from _differences(value, read.get(key), f"{path}/{key}")
    elif isinstance(sent, list) and isinstance(read, list) and len(sent) == len(read):
        for index, (one, other) in enumerate(zip(sent, read, strict=True)):
            yield from _differences(one, other, f"{path}/{index}")
    elif sent != read:
        yield path


@pytest.mark.parametrize(("name", "kind"), SUBMITTED)
def test_submitted_objects_have_only_known_fields(name: str, kind: str) -> None:
    assert lost(submitted(name, kind)) == []


@pytest.mark.parametrize(
    ("name", "kind", "path"),
    [
        ("jobset", "JobSet", "/spec/ttlSecondsAfterFinish"),
        ("jobset", "JobSet", "/spec/network/publishNotReady"),
        ("jobset", "JobSet", "/spec/replicatedJobs/0/template/spec/mode"),
        (
            "jobset",
            "JobSet",
            "/spec/replicatedJobs/0/template/spec/template/spec/containers/0/probe",
        ),
        ("trainjob", "TrainJob", "/spec/trainer/nodes"),
        ("trainjob", "TrainingRuntime", "/spec/mlPolicy/pytorch"),
    ],
)
def test_unknown_field_is_found_with_its_path(name: str, kind: str, path: str) -> None:
    body = submitted(name, kind)
    place: Any = body
    *steps, field = path.strip("/").split("/")
    for step in steps:
        place = place[int(step) if step.isdigit() else step]
    place[field] = 1
    assert lost(body) == [path]
