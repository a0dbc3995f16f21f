"""What a cluster file names and its cluster must have: secrets, claims, an account, a class, an image.

Nothing is said of what may not be looked at, or does not answer: it may well be there.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from platform import machine as this_machine
from typing import TYPE_CHECKING

from seatrial.config.architecture import wrong_architecture
from seatrial.config.image import Prebuilt
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms.kubernetes.api import SECRET, Api
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.launchers import Kind
from seatrial.platforms.kubernetes.plan import Object
from seatrial.platforms.kubernetes.volumes import GCS_FUSE, Pvc

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

_ACCOUNT, _CLAIM = Kind("v1", "ServiceAccount"), Kind("v1", "PersistentVolumeClaim")
_PRIORITY = Kind("scheduling.k8s.io/v1", "PriorityClass")
_STORAGE, _DRIVER = Kind("storage.k8s.io/v1", "StorageClass"), Kind("storage.k8s.io/v1", "CSIDriver")
_PULLS = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
_FOR_MANY = {"ReadWriteMany", "ReadOnlyMany"}

Look = Callable[[Api, "Cluster", KubernetesPlatform], Iterator[str]]


def prerequisites(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[str]:
    """What is not there, or is not what the nodes need, each with the next step."""
    for look in _LOOKS:
        with suppress(SeatrialError):
            yield from look(api, cluster, settings)


def _pull_secrets(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[str]:
    where = "platform.image_pull_secrets"
    for name in settings.image_pull_secrets:
        create = f"kubectl -n {api.namespace} create secret docker-registry {name}"
        secret = api.find(SECRET, name)
        if secret is None:
            yield Reason.of("secret-missing", where=where, name=name, namespace=api.namespace, create=create)
        elif (kind := secret.get("type")) not in _PULLS:
            yield Reason.of("secret-wrong-type", where=where, name=name, kind=kind, create=create)


def _secret_env(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[str]:
    for variable in settings.secret_env:
        where = f"platform.secret_env: {variable.name}"
        secret = api.find(SECRET, variable.secret)
        if secret is None:
            create = f"kubectl -n {api.namespace} create secret generic {variable.secret}"
            yield Reason.of("secret-missing", where=where, name=variable.secret, namespace=api.namespace, create=create)
        elif variable.key not in (secret.get("data") or {}):
            has = ", ".join(sorted(secret.get("data") or {})) or "none"
            yield Reason.of("secret-key-missing", where=where, secret=variable.secret, key=variable.key, has=has)


def _account(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[str]:
    name = settings.service_account
    if name and api.find(_ACCOUNT, name) is None:
        create = f"kubectl -n {api.namespace} create serviceaccount {name}"
        yield Reason.of("service-account-missing", name=name, namespace=api.namespace, create=create)


def _priority(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[str]:
    if not (name := settings.priority_class):
        return
    known = sorted(each["metadata"]["name"] for each in api.list(_PRIORITY))
    if name not in known:
        yield Reason.of("priority-class-missing", name=name, known=", ".join(known))


def _claims(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[str]:
    for volume in settings.volumes:
        if isinstance(volume, Pvc) and (wrong := _claim(api, volume, cluster.nodes)):
            yield wrong


def _claim(api: Api, volume: Pvc, nodes: int) -> str | None:
    unusable = partial(Reason.of, "volume-claim-unusable", claim=volume.claim)
    claim = api.find(_CLAIM, volume.claim)
    if claim is None:
        return unusable(wrong=f"is not in namespace {api.namespace}: create it, or correct the name")
    phase, modes = claim.get("status", {}).get("phase"), set(claim["spec"].get("accessModes", ()))
    if phase == "Lost" or (phase == "Pending" and not _binds_late(api, claim)):
        look = f"kubectl -n {api.namespace} describe pvc {volume.claim}"
        return unusable(wrong=f"is {phase}, so no pod can have it: {look}")
    if nodes > 1 and not modes & _FOR_MANY:
        return unusable(wrong=f"is {', '.join(sorted(modes))}, for one node; {nodes} need one that is ReadWriteMany")
    if modes == {"ReadOnlyMany"} and not volume.read_only:
        return unusable(wrong="is ReadOnlyMany: say read_only: true")
    return None


def _binds_late(api: Api, claim: Object) -> bool:
    """Whether it gets its volume with the first pod, or that cannot be told."""
    with suppress(SeatrialError):
        storage_class = api.find(_STORAGE, claim["spec"].get("storageClassName") or "")
        return bool(storage_class and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer")
    return True


def _bucket_driver(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[str]:
    if any(volume.kind == "gcs" for volume in settings.volumes) and api.find(_DRIVER, GCS_FUSE) is None:
        add = "gcloud container clusters update NAME --update-addons GcsFuseCsiDriver=ENABLED"
        yield Reason.of("gcs-fuse-missing", add=add)


def _image(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[str]:
    """Of an image that nodes pull and nobody builds."""
    from seatrial.builders.registry import look_up

    if not isinstance(cluster.image, Prebuilt) or settings.image_pull_policy == "Never":
        return
    reference = cluster.image.reference
    stored = look_up(reference)
    if stored is None:
        yield Reason.of("image-missing", image=reference)
    elif wrong := wrong_architecture(reference, stored.architectures, cluster, this_machine()):
        yield wrong


_LOOKS: tuple[Look, ...] = (_pull_secrets, _secret_env, _account, _priority, _claims, _bucket_driver, _image)
