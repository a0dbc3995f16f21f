"""What can be added to the cluster, and what a test finds in it then."""

import json
import time
from collections.abc import Callable

from tests.e2e.kubernetes import kwok, testbed
from tests.e2e.kubernetes.cluster import Cluster
from tests.e2e.kubernetes.conftest import until


def test_pods_find_each_other_by_name(own_cluster: Cluster, namespace: str) -> None:
    keys = testbed.new_keys()
    testbed.apply(own_cluster, namespace, testbed.objects(own_cluster, 2, keys))
    head = testbed.wait_for_pods(own_cluster, namespace, 2)[0]["metadata"]["name"]
    assert testbed.ssh(own_cluster, namespace, head, keys, "ssh bed-1.bed hostname; ssh bed-0.bed hostname") == (
        "bed-1\nbed-0\n"
    )
    assert testbed.ssh(own_cluster, namespace, head, keys, "getent hosts no-such-name.example; echo $?") == "2\n"


def test_a_job_runs_on_512_fake_nodes(own_cluster: Cluster, fake_nodes: tuple[str, ...], namespace: str) -> None:
    assert len(fake_nodes) == 512
    objects = testbed.objects(own_cluster, 512, testbed.new_keys())
    objects[-1]["spec"]["template"]["spec"]["tolerations"] = [kwok.TOLERATION]
    objects[-1]["spec"]["template"]["spec"]["nodeSelector"] = {kwok.LABEL: "fake"}
    started = time.monotonic()
    testbed.apply(own_cluster, namespace, objects)
    pods = testbed.wait_for_pods(own_cluster, namespace, 512, timeout_s=240)
    print(f"512 pods: {time.monotonic() - started:.1f} s")
    assert {pod["spec"]["nodeName"] for pod in pods} == set(fake_nodes)


def test_a_pytorchjob_runs_on_both_nodes(own_cluster: Cluster, training_operator: None, namespace: str) -> None:
    own_cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(pytorch_job(own_cluster.image)))
    select = ("-n", namespace, "get", "pods", "--selector=training.kubeflow.org/job-name=bed", "--output", "json")

    def running() -> list[str]:
        pods = json.loads(own_cluster.kubectl(*select))["items"]
        return sorted(pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running")

    until(lambda: running() == list(own_cluster.nodes))
    own_cluster.kubectl("-n", namespace, "delete", "pytorchjob", "bed")
    until(lambda: not json.loads(own_cluster.kubectl(*select))["items"])


def test_helm_knows_the_cluster(own_cluster: Cluster, helm: Callable[..., str]) -> None:
    assert json.loads(helm("list", "--all-namespaces", "--output", "json")) == []


def pytorch_job(image: str) -> dict[str, object]:
    container = {
        "name": "pytorch",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sleep", "600"],
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }
    replica = {
        "replicas": 1,
        "restartPolicy": "Never",
        "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}},
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "bed"},
        "spec": {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}},
    }
