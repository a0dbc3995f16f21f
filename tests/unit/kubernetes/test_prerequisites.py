"""What a cluster file names and the cluster lacks: objects are played back as the API server would
show them.
"""

from typing import Any, cast

import pytest

from seatrial.builders.stored import StoredImage, UnreachableError
from seatrial.config.cluster import Cluster
from seatrial.model.errors import MissingError
from seatrial.platforms.kubernetes.api import Api
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.doctor import prerequisites
from seatrial.platforms.kubernetes.plan import Kind
from tests.unit.kubernetes.golden import CLUSTERS

CLAIM: dict[str, Any] = {"volumes": [{"kind": "pvc", "mount": "/data", "claim": "tokens"}]}
BUCKET: dict[str, Any] = {"volumes": [{"kind": "gcs", "mount": "/data", "bucket": "tokens"}]}
TOKEN: dict[str, Any] = {
    "secret_env": [{"name": "HF_TOKEN", "secret": "hugging-face", "key": "token"}]
}


class There:
    """A cluster with these objects, by kind; what is forbidden may not be looked at."""

    namespace = "trials"

    def __init__(self, *objects: dict[str, Any], forbidden: tuple[str, ...] = ()) -> None:
        self.objects, self.forbidden = objects, forbidden

    def list(self, kind: Kind, selector: str | None = None) -> Any:
        if kind.kind in self.forbidden:
            raise MissingError(f"may not list {kind.kind}")
        return [body for body in self.objects if body["kind"] == kind.kind]

    def find(self, kind: Kind, name: str) -> Any:
        return next((body for body in self.list(kind) if body["metadata"]["name"] == name), None)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the registry answers; it is silent unless a test says otherwise."""
    answers: dict[str, Any] = {
        "it": UnreachableError("registry registry.example.com cannot be asked")
    }

    def look_up(reference: str) -> StoredImage | None:
        if isinstance(answers["it"], Exception):
            raise answers["it"]
        return cast(StoredImage | None, answers["it"])

    monkeypatch.setattr("seatrial.builders.registry.look_up", look_up)
    return answers


def kubernetes_object(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name}, **more}


def problems(there: There, machine: str = "a4", **settings: Any) -> list[str]:
    asked = {**CLUSTERS[machine], "platform": {**CLUSTERS[machine]["platform"], **settings}}
    cluster = Cluster.model_validate(asked)
    assert isinstance(cluster.platform, KubernetesPlatform)
    return list(map(str, prerequisites(cast(Api, there), cluster, cluster.platform)))


def claim(phase: str = "Bound", *modes: str) -> dict[str, Any]:
    spec = {"accessModes": modes or ["ReadWriteMany"], "storageClassName": "late"}
    return kubernetes_object("PersistentVolumeClaim", "tokens", spec=spec, status={"phase": phase})


LATE = kubernetes_object("StorageClass", "late", volumeBindingMode="WaitForFirstConsumer")
AT_ONCE = kubernetes_object("StorageClass", "late", volumeBindingMode="Immediate")
PULL = kubernetes_object("Secret", "pull", type="kubernetes.io/dockerconfigjson")


@pytest.mark.parametrize(
    ("settings", "objects", "message"),
    [
        (
            {"image_pull_secrets": ["pull"]},
            [],
            "no Secret pull in namespace trials: kubectl -n trials create secret dock",
        ),
        (
            {"image_pull_secrets": ["pull"]},
            [kubernetes_object("Secret", "pull", type="Opaque")],
            "Secret pull is Opaque, with which",
        ),
        (
            TOKEN,
            [],
            (
                "secret_env: HF_TOKEN: no Secret hugging-face in namespace trials: kubectl -n "
                "trials create secret"
            ),
        ),
        (
            TOKEN,
            [kubernetes_object("Secret", "hugging-face", data={"tok": ""})],
            "hugging-face has no key token; it has: tok",
        ),
        (
            {"service_account": "trial"},
            [kubernetes_object("ServiceAccount", "default")],
            "there is no trial in namespace trials: kub",
        ),
        (
            {"priority_class": "low"},
            [kubernetes_object("PriorityClass", "high")],
            "the cluster has no low: it has high",
        ),
        (CLAIM, [], "claim tokens is not in namespace trials: create it"),
        (
            CLAIM,
            [claim("Lost")],
            "claim tokens is Lost, so no pod can have it: kubectl -n trials describe pvc tokens",
        ),
        (CLAIM, [claim("Pending"), AT_ONCE], "claim tokens is Pending, so no pod can have it"),
        (
            CLAIM,
            [claim("Bound", "ReadWriteOnce")],
            "is ReadWriteOnce, for one node; 2 need one that is ReadWriteMany",
        ),
        (CLAIM, [claim("Bound", "ReadOnlyMany")], "is ReadOnlyMany: say read_only: true"),
        (
            BUCKET,
            [kubernetes_object("CSIDriver", "nfs.csi")],
            "gcs needs Cloud Storage FUSE, which the cluster does not have: gcloud",
        ),
    ],
)
def test_missing_objects_are_named_with_the_next_step(
    settings: dict[str, Any], objects: list[dict[str, Any]], message: str
) -> None:
    (problem,) = problems(There(*objects), **settings)
    assert message in problem
    assert problem.startswith(f"platform.{next(iter(settings))}: ")


@pytest.mark.parametrize(
    ("settings", "objects"),
    [
        ({"image_pull_secrets": ["pull"]}, [PULL]),
        (TOKEN, [kubernetes_object("Secret", "hugging-face", data={"token": ""})]),
        ({"service_account": "trial"}, [kubernetes_object("ServiceAccount", "trial")]),
        ({"priority_class": "low"}, [kubernetes_object("PriorityClass", "low")]),
        (CLAIM, [claim()]),
        (CLAIM, [claim("Pending"), LATE]),
        (BUCKET, [kubernetes_object("CSIDriver", "gcsfuse.csi.storage.gke.io")]),
        ({}, []),
    ],
)
def test_existing_objects_are_not_reported(
    settings: dict[str, Any], objects: list[dict[str, Any]]
) -> None:
    assert problems(There(*objects), **settings) == []


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (
            [
                kubernetes_object(
                    "PriorityClass", "seatrial-qualify", value=-1000, preemptionPolicy="Never"
                )
            ],
            "",
        ),
        (
            [kubernetes_object("PriorityClass", "high", value=1)],
            "the cluster has no seatrial-qualify: kubectl apply -f",
        ),
        (
            [
                kubernetes_object(
                    "PriorityClass", "seatrial-qualify", value=5, preemptionPolicy="Never"
                )
            ],
            "would not give way",
        ),
        ([kubernetes_object("PriorityClass", "seatrial-qualify", value=-1)], "or preempt others"),
    ],
)
def test_qualify_requires_a_priority_class_that_yields_to_other_pods(
    classes: list[dict[str, Any]], message: str
) -> None:
    cluster = Cluster.model_validate({**CLUSTERS["a4"], "qualify": {}})
    assert isinstance(cluster.platform, KubernetesPlatform)
    reasons = list(prerequisites(cast(Api, There(*classes)), cluster, cluster.platform))
    assert [message in problem.sentence for problem in reasons] == ([True] if message else [])
    assert all(problem.sentence.startswith("qualify.priority_class: ") for problem in reasons)


def test_objects_that_the_user_may_not_read_are_not_reported() -> None:
    kinds = ("Secret", "ServiceAccount", "PriorityClass", "PersistentVolumeClaim", "CSIDriver")
    both = [*CLAIM["volumes"], {**BUCKET["volumes"][0], "mount": "/b"}]
    asked = {
        "image_pull_secrets": ["p"],
        "service_account": "s",
        "priority_class": "c",
        "volumes": both,
        **TOKEN,
    }
    assert problems(There(forbidden=kinds), **asked) == []
    assert problems(There(claim("Pending"), forbidden=("StorageClass",)), **CLAIM) == []


def test_an_image_that_its_registry_does_not_have_is_named(registry: dict[str, Any]) -> None:
    registry["it"] = None
    (problem,) = problems(There())
    assert problem.startswith(
        "image registry.example.com/testbed:1 does not exist: its registry has no such name or"
    )
    assert problems(There(), image_pull_policy="Never") == []  # then nobody pulls it


def test_an_image_of_another_architecture_is_named(registry: dict[str, Any]) -> None:
    registry["it"] = StoredImage("sha256:1", ("amd64",))
    (problem,) = problems(There(), "a4x")
    assert "is for amd64, the nodes (test) are arm64: build it for linux/arm64" in problem
    assert problems(There(), "a4") == []
