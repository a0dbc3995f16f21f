"""`seatrial run` on a real Kubernetes: from pods to verdict, healthy and broken; nothing is left behind."""

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Console, until
from tests.e2e.kubernetes.cluster import Cluster
from tests.e2e.kubernetes.conftest import OURS, left
from tests.e2e.kubernetes.standins import definitions

ROOT = Path(__file__).parents[3]
LONG = {  # about twenty seconds, so that there is a middle to break
    "operations": ["all_reduce", "broadcast"],
    "gpu": {"min_bytes": "1M", "max_bytes": "1M"},
    "cpu": {"min_bytes": "1M", "max_bytes": "4M", "step_factor": 4, "warmup_iterations": 1, "iterations": 200},
    "timeout_s": 60,
}


def account(cluster: Cluster, namespace: str, folder: Path) -> Path:
    """A kubeconfig of a service account that has the role that ships, and no more."""
    cluster.kubectl("create", "serviceaccount", "seatrial", "-n", namespace)
    role = (ROOT / "deployments" / "kubernetes" / "role.yaml").read_text()
    role = role.replace("namespace: seatrial}", f"namespace: {namespace}}}")
    cluster.kubectl("apply", "-n", namespace, "--filename", "-", stdin=role)
    token = cluster.kubectl("create", "token", "seatrial", "-n", namespace).strip()
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_healthy_cluster_passes_with_the_least_rights(
    console: Console, trial: Callable[..., Path], cluster: Cluster, namespace: str
) -> None:
    console.environment["KUBECONFIG"] = str(account(cluster, namespace, console.folder))
    file = trial()
    doctor = console.run("doctor", file)
    assert doctor.status == 0, doctor.said
    run = console.check(file, console.suite(training={"steps": 8, "batch_per_rank": 4, "min_loss_drop": 0.05}))
    assert run.status == 0, run.said
    assert run.out.splitlines()[-1] == "pass: connectivity, collectives, training: all pass"
    assert "all_reduce over 4 ranks" in run.check("collectives")["reason"]
    assert {node["name"] for node in run.document["nodes"]} == set(cluster.nodes)
    assert {node["port"] for node in run.document["nodes"]} == {222}
    assert run.document["fingerprint"]["image"].startswith(cluster.image)
    print(f"timings: {run.document['timings']}")
    assert left(cluster, namespace) == ""


def test_a_pytorchjob_under_its_operator(
    console: Console, trial: Callable[..., Path], cluster: Cluster, namespace: str, training_operator: None
) -> None:
    run = console.check(trial(launcher="pytorchjob"), console.suite())
    assert run.status == 0, run.said
    assert "all_reduce over 4 ranks" in run.check("collectives")["reason"]
    assert left(cluster, namespace) == ""
    assert cluster.kubectl("get", "pytorchjobs", "-n", namespace, "--output", "name") == ""


@pytest.mark.parametrize(
    ("platform", "image", "verdict", "reason"),
    [
        ({}, "localhost/nothing:1", "inconclusive", "the image is not on the node"),
        ({"launcher": "jobset"}, None, "not_run", "the cluster does not know JobSet"),
        ({"queue": "night"}, None, "not_run", "the cluster does not know Workload"),
        ({"namespace": "no-such-namespace"}, None, "not_run", "kubectl create namespace no-such-namespace"),
        ({"node_selector": {"pool": "none"}, "queue_timeout_s": 3}, None, "inconclusive", "0 of 2 pods have a node"),
        ({"context": "elsewhere"}, None, "not_run", "platform.context 'elsewhere' is not in the kubeconfig; known:"),
    ],
    ids=["image", "crd", "kueue", "namespace", "selector", "context"],
)
def test_what_keeps_nodes_from_coming_up_is_the_reason(
    console: Console,
    trial: Callable[..., Path],
    cluster: Cluster,
    namespace: str,
    platform: dict[str, Any],
    image: str | None,
    verdict: str,
    reason: str,
) -> None:
    run = console.check(trial(image=image or cluster.image, **platform), console.suite())
    assert run.status == 3, run.said
    assert run.document["verdict"] == verdict
    assert run.document["reason"].startswith("launch: ")
    assert reason in run.document["reason"]
    assert left(cluster, namespace) == ""


def test_a_kind_that_went_is_not_remembered(
    console: Console, trial: Callable[..., Path], own_cluster: Cluster, namespace: str
) -> None:
    with definitions(own_cluster, "jobset"):
        doctor = console.run("doctor", trial(launcher="jobset"))
        assert doctor.status == 0, doctor.said
    doctor = console.run("doctor", trial(launcher="jobset"))
    assert doctor.status == 1
    assert "the cluster does not know JobSet" in doctor.out


def test_a_quota_that_forbids_pods_is_the_reason(
    console: Console, trial: Callable[..., Path], cluster: Cluster, namespace: str
) -> None:
    cluster.kubectl("create", "quota", "none", "--hard=pods=0", "-n", namespace)
    run = console.check(trial(), console.suite())
    assert run.status == 3, run.said
    assert "its pods are not admitted" in run.document["reason"]
    assert "exceeded quota: none" in run.document["reason"]
    assert left(cluster, namespace) == ""


def test_a_user_without_rights_is_told_which(
    console: Console, trial: Callable[..., Path], own_cluster: Cluster
) -> None:
    console.environment["KUBECONFIG"] = str(own_cluster.kubeconfig_without_rights)
    run = console.check(trial(), console.suite())
    assert run.status == 3, run.said
    assert "may not" in run.document["reason"]
    doctor = console.run("doctor", trial())
    assert doctor.status == 1
    assert "may not create, list, watch, deletecollection jobs.batch" in doctor.out


def middle_of_the_sweep(console: Console, trial: Callable[..., Path]) -> Any:
    """A run that has just printed the first row of its first operation."""
    out = console.folder / "out"
    process = console.start("run", trial(), "--suite", console.suite(collectives=LONG), "--out", out)
    log = out / "logs" / "run.log"
    until(lambda: log.exists() and "all_reduce     1M" in log.read_text())
    return process


def finish(console: Console, process: Any) -> tuple[int, dict[str, Any]]:
    process.communicate(timeout=240)
    document: dict[str, Any] = json.loads((console.folder / "out" / "run.json").read_text())
    return process.returncode, document


def test_a_pod_deleted_in_the_middle_of_a_sweep_is_nobodys_fault(
    console: Console, trial: Callable[..., Path], cluster: Cluster, namespace: str
) -> None:
    process = middle_of_the_sweep(console, trial)
    pods = cluster.get("pods", "-n", namespace, "-l", OURS)["items"]
    second = next(pod for pod in pods if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1")
    cluster.kubectl("delete", "pod", second["metadata"]["name"], "-n", namespace, "--wait=false")
    status, document = finish(console, process)
    assert (status, document["verdict"]) == (3, "inconclusive")  # whoever deleted it, the node did not break
    assert f"pod {second['metadata']['name']} was deleted while the run used it" in document["reason"]
    assert not document["suspects"]
    assert left(cluster, namespace) == ""


def test_an_api_server_that_restarts_is_no_failure_of_the_cluster(
    console: Console, trial: Callable[..., Path], own_cluster: Cluster, namespace: str
) -> None:
    process = middle_of_the_sweep(console, trial)
    own_cluster.restart_apiserver()
    status, document = finish(console, process)
    assert (status, document["verdict"]) == (3, "inconclusive")
    assert "the connection to the head node broke" in document["reason"]
    assert not document["suspects"]
    assert left(own_cluster, namespace) == ""


def test_a_node_that_falls_silent_in_the_middle_of_a_sweep_is_named(
    console: Console, trial: Callable[..., Path], own_cluster: Cluster, namespace: str
) -> None:
    process = middle_of_the_sweep(console, trial)
    own_cluster.stop_kubelet("node-1")  # its containers live on, so that everything can be measured
    try:
        status, document = finish(console, process)
        assert (status, document["verdict"]) == (1, "fail"), document["reason"]
        assert "node-1: NotReady since" in document["reason"]
        assert [suspect["name"] for suspect in document["suspects"]] == ["node-1"]
        assert left(own_cluster, namespace) == ""  # also what the silent kubelet has not ended yet
    finally:
        own_cluster.resume_kubelet("node-1")
        own_cluster.kubectl("wait", "--for", "condition=Ready", "node/node-1", "--timeout=60s")


def test_a_slow_link_is_judged_against_healthy_runs(
    console: Console, trial: Callable[..., Path], own_cluster: Cluster, namespace: str
) -> None:
    for i in range(3):
        healthy = console.check(trial(), console.suite(), f"healthy-{i}")
        assert healthy.status == 0, healthy.said
    out = console.folder / "slow"
    process = console.start("run", trial(), "--suite", console.suite(), "--out", out)
    log = out / "logs" / "run.log"
    until(lambda: log.exists() and "2 of 2 nodes answer" in log.read_text())
    pod = own_cluster.kubectl("get", "pods", "-n", namespace, "-l", OURS, "--output", "name").split()[1]
    node, link = own_cluster.host_veth_of(pod.partition("/")[2], namespace)
    shape = shlex.split("root tbf rate 100mbit burst 32kbit latency 400ms")
    own_cluster.on_node(node, "tc", "qdisc", "add", "dev", link, *shape)
    _, errors = process.communicate(timeout=240)
    document = json.loads((out / "run.json").read_text())
    assert process.returncode == 1, errors
    assert document["verdict"] in ("degraded", "fail")
    assert left(own_cluster, namespace) == ""


def test_doctor_names_a_node_that_is_silent(console: Console, trial: Callable[..., Path], own_cluster: Cluster) -> None:
    own_cluster.stop_kubelet("node-1")
    try:
        until(lambda: "missing" in console.run("doctor", trial()).out, timeout_s=90)
        assert "2 nodes are asked for, 1 could take one if idle" in (said := console.run("doctor", trial()).out)
        assert "node-1: is not ready" in said
    finally:
        own_cluster.resume_kubelet("node-1")
        own_cluster.kubectl("wait", "--for", "condition=Ready", "node/node-1", "--timeout=60s")


def test_a_killed_run_is_reaped(console: Console, trial: Callable[..., Path], cluster: Cluster, namespace: str) -> None:
    process = middle_of_the_sweep(console, trial)
    process.kill()
    process.communicate()
    # Whatever becomes of seatrial: what owns the others ends by itself and takes them along.
    (secret,) = cluster.get("secrets", "-n", namespace, "-l", OURS)["items"]
    assert [owner["kind"] for owner in secret["metadata"]["ownerReferences"]] == ["Job"]
    started = time.monotonic()
    reaped = console.run("reap", trial())
    assert reaped.status == 0, reaped.said
    assert "1 run reaped" in reaped.out
    print(f"reaped in {time.monotonic() - started:.1f} s")
    assert left(cluster, namespace) == ""
