"""Volumes of the cluster file's own: what it says of them, and what a pod gets for it. Pure.

Source of what GKE wants: AI-Hypercomputer/gpu-recipes (src/helm-charts) and GoogleCloudPlatform/gcs-fuse-csi-driver.
"""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from seatrial.config.yamlfile import Strict


def text(pattern: str, legal: str) -> AfterValidator:
    """A text of that pattern; `legal` ends the sentence "VALUE is no ..."."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"{value!r} is no {legal}")
        return value

    return AfterValidator(check)


_LABEL = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"

DnsLabel = Annotated[
    str, text(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "Kubernetes name: 1 to 63 of a-z, 0-9 and '-', no '-' at the ends")
]
DnsName = Annotated[
    str, text(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "name of a Kubernetes object: a-z, 0-9, '-' and '.'")
]
LabelKey = Annotated[
    str, text(rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_LABEL}", "label key, such as topology.kubernetes.io/zone")
]
ResourceName = Annotated[
    str,
    text(
        rf"cpu|memory|ephemeral-storage|hugepages-[1-9]\d*[KMGT]i|[a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/{_LABEL}",
        "resource of nodes: cpu, memory, ephemeral-storage, hugepages-SIZE, or DOMAIN/NAME such as rdma/ib",
    ),
]
Quantity = Annotated[
    str, text(r"(0|[1-9]\d{0,17})(\.\d{1,9})?(m|k|[MGTPE]|[KMGTPE]i)?", "quantity, such as 8, 500m or 64Gi")
]
LabelValue = Annotated[str, text(rf"({_LABEL})?", "label value: up to 63 of letters, digits, '-', '_' and '.'")]

GCS_FUSE = "gcsfuse.csi.storage.gke.io"
_LOCAL_SSD = "/mnt/stateful_partition/kube-ephemeral-ssd"  # where GKE puts the disks of a node pool with ephemeral SSD
# Without limits: what a sidecar may use is what the node has, and a small one throttles or ends what reads from it.
_UNLIMITED = {f"gke-gcsfuse/{what}-limit": "0" for what in ("cpu", "memory", "ephemeral-storage")}

# What a node is made of: its keys, shared memory, NCCL's plugins, MPI, where the run works.
_TAKEN = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var/run"),
    *("/opt/hpcx", "/root/.ssh", "/third_party", "/tmp/seatrial"),
)


def _legal_mount(value: str) -> str:
    path = PurePosixPath(value)
    if not path.is_absolute() or str(path) != value or ".." in path.parts or ":" in value:
        raise ValueError(f"{value!r} is no absolute path, such as /data (no '..', no ':', no '/' at the end)")
    for taken in map(PurePosixPath, _TAKEN):
        if path.is_relative_to(taken) or taken.is_relative_to(path):
            raise ValueError(f"{value!r} is over or in {taken}, which the node needs; choose another, such as /data")
    return value


Mount = Annotated[str, AfterValidator(_legal_mount)]


class _Volume(Strict):
    """`mount` is where it appears in every node."""

    mount: Mount = Field(description="absolute path in every node, such as /data")


class _Shared(_Volume):
    read_only: bool = Field(False, description="nodes cannot write to it")


class Gcs(_Shared):
    """A bucket, by Cloud Storage FUSE: GKE's driver, which reads as the pod's service account."""

    kind: Literal["gcs"] = Field(description="Cloud Storage FUSE")
    bucket: Annotated[str, text(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", "name of a bucket (without gs://)")] = Field(
        description="its name, without gs://"
    )
    mount_options: str | None = Field(None, min_length=1, description="of gcsfuse, such as implicit-dirs")


class Nfs(_Shared):
    """An export of an NFS server, such as Filestore's."""

    kind: Literal["nfs"] = Field(description="NFS")
    server: Annotated[str, text(r"[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?", "host name or address")] = Field(
        description="host name or address"
    )
    path: Annotated[str, text(r"/.*", "absolute path, such as /share")] = Field(description="of the export: /share")


class Pvc(_Shared):
    """A PersistentVolumeClaim of the namespace; nodes share it, so it is for many (RWX, or ROX)."""

    kind: Literal["pvc"] = Field(description="a PersistentVolumeClaim")
    claim: DnsName = Field(description="its name; ReadWriteMany, or ReadOnlyMany with read_only")


class LocalSsd(_Volume):
    """The node's own disks, as GKE offers them."""

    kind: Literal["local-ssd"] = Field(description="the node's own disks")


Volume = Annotated[Gcs | Nfs | Pvc | LocalSsd, Field(discriminator="kind")]


def _one_each(volumes: tuple[Volume, ...]) -> tuple[Volume, ...]:
    mounts = [volume.mount for volume in volumes]
    if twice := next((mount for mount in mounts if mounts.count(mount) > 1), None):
        raise ValueError(f"mount {twice} appears twice; each volume needs its own")
    return volumes


Volumes = Annotated[tuple[Volume, ...], AfterValidator(_one_each)]


def sources(volumes: Iterable[Volume], *, host_network: bool) -> list[dict[str, Any]]:
    """The pod's volumes."""
    return [{"name": _name(i), **_source(volume, host_network)} for i, volume in enumerate(volumes)]


def mounts(volumes: Iterable[Volume]) -> list[dict[str, Any]]:
    """Where the container sees them."""
    return [{"name": _name(i), "mountPath": volume.mount, **_read_only(volume)} for i, volume in enumerate(volumes)]


def annotations(volumes: Iterable[Volume]) -> dict[str, str]:
    """What makes GKE put the sidecar that serves the buckets into the pod."""
    return {"gke-gcsfuse/volumes": "true", **_UNLIMITED} if any(volume.kind == "gcs" for volume in volumes) else {}


def _name(index: int) -> str:
    return f"volume-{index}"


def _read_only(volume: Volume) -> dict[str, bool]:
    return {"readOnly": True} if getattr(volume, "read_only", False) else {}


def _source(volume: Volume, host_network: bool) -> dict[str, Any]:
    match volume:
        case Gcs():
            attributes = {"bucketName": volume.bucket}
            if volume.mount_options:
                attributes["mountOptions"] = volume.mount_options
            if host_network:  # the metadata server cannot tell such a pod from its node
                attributes["hostNetworkPodKSA"] = "true"
            return {"csi": {"driver": GCS_FUSE, **_read_only(volume), "volumeAttributes": attributes}}
        case Nfs():
            return {"nfs": {"server": volume.server, "path": volume.path, **_read_only(volume)}}
        case Pvc():
            return {"persistentVolumeClaim": {"claimName": volume.claim, **_read_only(volume)}}
        case LocalSsd():  # a node without them is told, instead of its boot disk used
            return {"hostPath": {"path": _LOCAL_SSD, "type": "Directory"}}
