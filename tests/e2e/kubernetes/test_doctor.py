"""`seatrial doctor CLUSTER` on a real cluster, with the role that ships and no more."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from seatrial.config.cluster import load_cluster
from tests.e2e.conftest import Console
from tests.e2e.kubernetes.cluster import Cluster

Ask = Callable[..., list[str]]


@pytest.fixture
def ask(console: Console, least_rights: None, cluster: Cluster, namespace: str) -> Ask:
    """What doctor says of a cluster file for the test's namespace: the lines that name something
    missing.
    """

    def missing(nodes: int = 2, image: str = cluster.image, **platform: Any) -> list[str]:
        fields = platform.pop("fields", {})
        settings = {
            "kind": "kubernetes",
            "namespace": namespace,
            "image_pull_policy": cluster.pull_policy,
            **platform,
        }
        doctor = console.run(
            "doctor", console.cluster(nodes, platform=settings, image=image, **fields)
        )
        lines = [
            line.split(maxsplit=1)[1]
            for line in doctor.out.splitlines()
            if line.startswith("missing")
        ]
        assert doctor.status == (1 if lines else 0), doctor.output
        return lines

    return missing


@pytest.fixture
def claims(own_cluster: Cluster, namespace: str) -> Iterator[None]:
    """`late` waits for its first pod, `never` for a class that is not there."""
    late = {"metadata": {"name": namespace}, "provisioner": "example.com/none"}
    storage = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "volumeBindingMode": "WaitForFirstConsumer",
    }

    def claim(name: str, storage_class: str) -> dict[str, Any]:
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {**spec, "storageClassName": storage_class},
        }

    own_cluster.apply(
        {**storage, **late}, claim("late", namespace), claim("never", "no-such-class")
    )
    yield
    own_cluster.kubectl("delete", "storageclass", namespace)


def test_doctor_reports_a_pending_claim_and_no_object_that_exists(
    ask: Ask, cluster: Cluster, namespace: str, claims: None
) -> None:
    cluster.kubectl(
        "create", "secret", "generic", "plain", "--from-literal=token=x", "-n", namespace
    )
    assert not ask(
        secret_env=[{"name": "HF_TOKEN", "secret": "plain", "key": "token"}],
        service_account="seatrial",
        volumes=[{"kind": "pvc", "mount": "/data", "claim": "late"}],
    )
    (line,) = ask(volumes=[{"kind": "pvc", "mount": "/data", "claim": "never"}])
    assert "claim never is Pending, so no pod can have it" in line


@pytest.fixture
def gpu_machines(own_cluster: Cluster) -> Iterator[None]:
    """Its nodes as a site's: a product's label, devices of a fabric, a team's taint, a processor
    for each GPU.
    """
    key, device = "nvidia.com/gpu.product", "rdma/rdma_shared_device_a"
    own_cluster.kubectl("label", "node", *own_cluster.nodes, f"{key}=NVIDIA-H100-80GB-HBM3")
    own_cluster.kubectl("taint", "node", *own_cluster.nodes, "team=ml:NoSchedule")
    _patch_status(own_cluster, {device: "63", "nvidia.com/gpu": "2"})
    yield
    _patch_status(own_cluster, {device: None, "nvidia.com/gpu": "8"})
    own_cluster.kubectl("taint", "node", *own_cluster.nodes, "team=ml:NoSchedule-")
    own_cluster.kubectl("label", "node", *own_cluster.nodes, f"{key}-")


def _patch_status(cluster: Cluster, resources: dict[str, str | None]) -> None:
    patch = json.dumps({"status": {"capacity": resources, "allocatable": resources}})
    for node in cluster.nodes:
        cluster.kubectl(
            "patch", "node", node, "--subresource", "status", "--type", "merge", "--patch", patch
        )


def test_init_writes_a_cluster_file_from_which_nothing_is_missing(
    console: Console, own_cluster: Cluster, gpu_machines: None
) -> None:
    file = console.folder / "site.yaml"
    console.environment["KUBECONFIG"] = str(own_cluster.kubeconfig)
    done = console.run("init", file, "--platform", "kubernetes", "--yes")
    assert done.status == 0, done.output
    drafted = load_cluster(file)
    assert (drafted.nodes, drafted.gpus, drafted.hardware.name) == (2, 2, "H100-SXM")
    assert drafted.image
    # The nodes have it, by two names
    assert drafted.image.planned.startswith("localhost/seatrial/cpu:")
    assert drafted.platform.model_dump()["resources"] == {"rdma/rdma_shared_device_a": "1"}
    doctor = console.run("doctor", file)
    assert doctor.status == 0, doctor.output
    assert "ok      platform kubernetes" in doctor.out
