"""`seatrial run` on a real Kubernetes: from pods to verdict, healthy and broken; nothing is left
behind.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.closing_lines import without_extent
from tests.e2e.conftest import Console
from tests.e2e.kubernetes.cluster import Cluster
from tests.e2e.kubernetes.kinds import OURS, left
from tests.e2e.kubernetes.runs import (
    TRAINING,
    Going,
    check_of,
    in_the_middle_of_a_sweep,
    seconds_to_ready,
)
from tests.e2e.kubernetes.standins import definitions

ROOT = Path(__file__).parents[3]


def test_a_healthy_cluster_passes_with_the_least_rights(
    console: Console,
    trial: Callable[..., Path],
    least_rights: None,
    cluster: Cluster,
    namespace: str,
) -> None:
    file = trial()
    doctor = console.run("doctor", file)
    assert doctor.status == 0, doctor.output
    run = Going(console, file, devices={"seconds": 0.1}, training=TRAINING)
    run.until_logged("2 of 2 nodes answer")
    cluster_s = seconds_to_ready(cluster.get("pods", "-n", namespace, "-l", OURS)["items"])
    status, document, terminal = run.end()
    assert status == 0, terminal
    assert (
        without_extent(terminal.splitlines()[-1])
        == "pass: connectivity, devices, collectives, training: all pass"
    )
    assert "all_reduce over 4 ranks" in check_of(document, "collectives")["reason"]
    names = {node["name"] for node in document["nodes"]}
    assert len(names) == 2
    assert names <= set(cluster.nodes)
    assert {node["port"] for node in document["nodes"]} == {222}
    assert document["fingerprint"]["image"].startswith(cluster.image)
    print(f"timings: {document['timings']}")
    print(f"beyond the cluster: {document['timings']['launch'] - cluster_s:.1f} s")
    assert left(cluster, namespace) == ""


REFUSED = "127.0.0.1:9/nothing:1"  # no registry listens there


@pytest.mark.parametrize(
    ("platform", "image", "reason"),
    [
        ({"image_pull_policy": "Never"}, "localhost/nothing:1", "the image is not on the node"),
        ({"image_pull_policy": "Always"}, REFUSED, "the image cannot be pulled ("),
        (
            {"node_selector": {"pool": "none"}, "queue_timeout_s": 3},
            None,
            "0 of 2 pods have a node",
        ),
    ],
    ids=["image", "registry", "selector"],
)
def test_reason_of_a_run_names_what_keeps_pods_from_starting(
    console: Console,
    trial: Callable[..., Path],
    cluster: Cluster,
    namespace: str,
    platform: dict[str, Any],
    image: str | None,
    reason: str,
) -> None:
    run = console.check(trial(image=image or cluster.image, **platform), console.suite())
    assert run.status == 3, run.output
    assert run.document["verdict"] == "inconclusive"
    assert run.document["reason"].startswith("launch: ")
    assert reason in run.document["reason"]
    assert left(cluster, namespace) == ""


@pytest.mark.parametrize(
    ("platform", "kind"), [({"launcher": "jobset"}, "JobSet"), ({"queue": "night"}, "Workload")]
)
def test_reason_names_a_resource_kind_that_the_cluster_does_not_have(
    console: Console,
    trial: Callable[..., Path],
    own_cluster: Cluster,
    namespace: str,
    platform: dict[str, str],
    kind: str,
) -> None:
    run = console.check(trial(**platform), console.suite())
    assert (run.status, run.document["verdict"]) == (3, "not_run"), run.output
    assert f"launch: the cluster does not know {kind}" in run.document["reason"]
    assert left(own_cluster, namespace) == ""


def test_doctor_notices_that_a_resource_kind_was_removed(
    console: Console, trial: Callable[..., Path], own_cluster: Cluster, namespace: str
) -> None:
    with definitions(own_cluster, "jobset"):
        doctor = console.run("doctor", trial(launcher="jobset"))
        assert doctor.status == 0, doctor.output
    doctor = console.run("doctor", trial(launcher="jobset"))
    assert doctor.status == 1
    assert "the cluster does not know JobSet" in doctor.out


def test_reason_names_the_quota_that_forbids_pods(
    console: Console, trial: Callable[..., Path], cluster: Cluster, namespace: str
) -> None:
    cluster.kubectl("create", "quota", "none", "--hard=pods=0", "-n", namespace)
    run = console.check(trial(), console.suite())
    assert run.status == 3, run.output
    assert "its pods are not admitted" in run.document["reason"]
    assert "exceeded quota: none" in run.document["reason"]
    assert left(cluster, namespace) == ""


def test_doctor_names_the_missing_rights_of_a_user(
    console: Console, trial: Callable[..., Path], own_cluster: Cluster
) -> None:
    console.environment["KUBECONFIG"] = str(own_cluster.kubeconfig_without_rights)
    run = console.check(trial(), console.suite())
    assert run.status == 3, run.output
    assert "may not" in run.document["reason"]
    doctor = console.run("doctor", trial())
    assert doctor.status == 1
    assert "may not create, list, watch, deletecollection jobs.batch" in doctor.out


def test_a_pod_deleted_in_the_middle_of_a_sweep_is_nobodys_fault(
    console: Console, trial: Callable[..., Path], cluster: Cluster, namespace: str
) -> None:
    run = in_the_middle_of_a_sweep(console, trial())
    pods = cluster.get("pods", "-n", namespace, "-l", OURS)["items"]
    second = next(
        pod
        for pod in pods
        if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    )
    cluster.kubectl("delete", "pod", second["metadata"]["name"], "-n", namespace, "--wait=false")
    status, document, _ = run.end()
    # Whoever deleted it, the node did not break
    assert (status, document["verdict"]) == (3, "inconclusive")
    assert (
        f"pod {second['metadata']['name']} was deleted while the run used it" in document["reason"]
    )
    assert not document["suspects"]
    assert left(cluster, namespace) == ""


def test_an_api_server_that_restarts_is_no_failure_of_the_cluster(
    console: Console, trial: Callable[..., Path], own_cluster: Cluster, namespace: str
) -> None:
    run = in_the_middle_of_a_sweep(console, trial())
    own_cluster.restart_apiserver()
    status, document, _ = run.end()
    assert (status, document["verdict"]) == (3, "inconclusive")
    assert "the connection to the head node broke" in document["reason"]
    assert not document["suspects"]
    assert left(own_cluster, namespace) == ""


def test_a_node_that_falls_silent_in_the_middle_of_a_sweep_is_named(
    console: Console, trial: Callable[..., Path], own_cluster: Cluster, namespace: str
) -> None:
    run = in_the_middle_of_a_sweep(console, trial())
    own_cluster.stop_kubelet("node-1")  # its containers live on, so that everything can be measured
    try:
        status, document, _ = run.end()
        assert (status, document["verdict"]) == (1, "fail"), document["reason"]
        assert "node-1 (100 % sure): NotReady since" in document["reason"]
        assert [suspect["name"] for suspect in document["suspects"]] == ["node-1"]
        assert left(own_cluster, namespace) == ""  # also what the silent kubelet has not ended yet
    finally:
        own_cluster.resume_kubelet("node-1")
        own_cluster.kubectl("wait", "--for", "condition=Ready", "node/node-1", "--timeout=60s")


@pytest.mark.parametrize("launcher", ["job", "pytorchjob"])
def test_nodes_are_reached_by_name_when_host_names_is_set(
    console: Console,
    trial: Callable[..., Path],
    cluster: Cluster,
    namespace: str,
    launcher: str,
    request: pytest.FixtureRequest,
) -> None:
    if launcher == "pytorchjob":
        request.getfixturevalue("training_operator")
    run = console.check(
        trial(launcher=launcher, host_names=True),
        console.suite(training=TRAINING),
    )
    assert run.status == 0, run.output
    addresses = [node["address"] for node in run.document["nodes"]]
    assert all(address.endswith(f".{namespace}.svc") for address in addresses), addresses
    assert left(cluster, namespace) == ""
