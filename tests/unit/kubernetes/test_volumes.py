"""Volumes of the cluster file: what a pod gets for them, and what is refused before anything is
submitted.
"""

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from seatrial.config.cluster import Cluster
from seatrial.platforms.container import KEYS
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.machines import MACHINES
from seatrial.platforms.kubernetes.pod import volume_annotations, volume_mounts, volume_sources
from tests.cluster_files import refusal
from tests.unit.kubernetes.golden import CLUSTERS

GCS = {"kind": "gcs", "mount": "/data", "bucket": "b-1"}
NFS = {"kind": "nfs", "mount": "/share", "server": "10.0.0.2", "path": "/vol1"}
PVC = {"kind": "pvc", "mount": "/scratch", "claim": "scratch"}
SSD = {"kind": "local-ssd", "mount": "/ssd"}


def read(*volumes: dict[str, Any]) -> Any:
    asked = {**CLUSTERS["a4"], "platform": {**CLUSTERS["a4"]["platform"], "volumes": list(volumes)}}
    platform = Cluster.model_validate(asked).platform
    assert isinstance(platform, KubernetesPlatform)
    return platform.volumes


def test_every_volume_is_mounted_under_its_own_name() -> None:
    volumes = read(GCS, NFS, PVC, SSD)
    named = {
        volume["name"]: set(volume) - {"name"}
        for volume in volume_sources(volumes, host_network=False)
    }
    assert list(named.values()) == [{"csi"}, {"nfs"}, {"persistentVolumeClaim"}, {"hostPath"}]
    assert [mount["name"] for mount in volume_mounts(volumes)] == list(named)
    assert [mount["mountPath"] for mount in volume_mounts(volumes)] == [
        "/data",
        "/share",
        "/scratch",
        "/ssd",
    ]


def test_read_only_volume_is_read_only_at_source_and_mount() -> None:
    volumes = read(*({**volume, "read_only": True} for volume in (GCS, NFS, PVC)))
    csi, nfs, claim = volume_sources(volumes, host_network=False)
    assert (
        csi["csi"]["readOnly"]
        and nfs["nfs"]["readOnly"]
        and claim["persistentVolumeClaim"]["readOnly"]
    )
    assert all(mount["readOnly"] for mount in volume_mounts(volumes))
    assert not any("readOnly" in mount for mount in volume_mounts(read(GCS, NFS, PVC, SSD)))


def test_only_a_bucket_volume_adds_the_gcsfuse_annotation() -> None:
    assert volume_annotations(read(NFS, PVC, SSD)) == {}
    assert volume_annotations(read(GCS))["gke-gcsfuse/volumes"] == "true"


def test_a_bucket_is_read_as_the_pods_account_on_the_hosts_network_too() -> None:
    (volume,) = volume_sources(read({**GCS, "mount_options": "implicit-dirs"}), host_network=True)
    assert volume["csi"]["volumeAttributes"] == {
        "bucketName": "b-1",
        "mountOptions": "implicit-dirs",
        "hostNetworkPodKSA": "true",
    }
    (volume,) = volume_sources(read(GCS), host_network=False)
    assert volume["csi"]["volumeAttributes"] == {"bucketName": "b-1"}


def test_volume_over_a_path_that_the_node_needs_is_refused() -> None:
    """Covers every path that a machine family mounts."""
    families = get_args(KubernetesPlatform.model_fields["machine"].annotation)
    taken = {KEYS, "/dev/shm"} | {
        mount["mountPath"] for name in families for mount in MACHINES[name].mounts
    }
    assert "/usr/local/gib" in taken
    for mount in taken:
        with pytest.raises(ValueError, match="which the node needs; choose another"):
            read({**SSD, "mount": mount})


@pytest.mark.parametrize(
    ("volumes", "message"),
    [
        ([{"mount": "/data"}], r"volumes\.0: needs a field kind, such as \{kind: gcs\}"),
        ([{**SSD, "kind": "disk"}], r"volumes\.0: .*'disk'.* 'gcs', 'nfs', 'pvc', 'local-ssd'"),
        (
            [{**GCS, "mount": "data"}],
            r"volumes\.0\.mount: 'data' is no absolute path, such as /data",
        ),
        ([{**GCS, "mount": "/a/../etc"}], "is no absolute path"),
        ([{**GCS, "mount": "/a:b"}], "is no absolute path"),
        ([{**GCS, "mount": "/"}], "'/' is over or in /bin, which the node needs"),
        ([{**GCS, "mount": "/root"}], r"is over or in /root/\.ssh"),
        ([{**GCS, "mount": "/tmp"}], r"is over or in /tmp/seatrial"),
        ([{**GCS, "mount": "/etc/seatrial/x"}], "is over or in /etc"),
        (
            [{**GCS, "bucket": "gs://b"}],
            r"bucket: 'gs://b' is no name of a bucket \(without gs://\)",
        ),
        ([{**NFS, "path": "share"}], r"path: 'share' is no absolute path"),
        ([{**PVC, "claim": "A b"}], r"claim: 'A b' is no name of a Kubernetes object"),
        ([{**SSD, "read_only": True}], r"read_only: unknown field; legal: kind, mount"),
        ([GCS, {**PVC, "mount": "/data"}], r"volumes: mount /data appears twice"),
    ],
)
def test_invalid_volume_is_refused_in_one_line(
    tmp_path: Path, volumes: list[dict[str, Any]], message: str
) -> None:
    platform = {**CLUSTERS["a4"]["platform"], "volumes": volumes}
    line = refusal(tmp_path, **{**CLUSTERS["a4"], "platform": platform})
    assert re.match(rf"{tmp_path}/cluster\.yaml: line \d+: platform\..*{message}", line)
