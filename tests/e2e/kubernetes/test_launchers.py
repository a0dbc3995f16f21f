"""`seatrial run` on pods that JobSet and Kubeflow's operators make, real or stood in for."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Console, until
from tests.e2e.kubernetes.cluster import Cluster
from tests.e2e.kubernetes.kinds import OURS, known, left, workloads
from tests.e2e.kubernetes.runs import TRAINING, check_of, in_the_middle_of_a_sweep
from tests.site import PATIENCE_S

NODES = f"{OURS},seatrial/role=node"


# What makes the pods of each, as the fixture that brings it.
CONTROLLERS = {
    "job": None,
    "jobset": "jobset",
    "pytorchjob": "training_operator",
    "mpijob": "mpi_operator",
    "trainjob": "trainer",
}
KINDS = {
    "job": "Job",
    "jobset": "JobSet",
    "pytorchjob": "PyTorchJob",
    "mpijob": "MPIJob",
    "trainjob": "TrainJob",
}


@pytest.fixture(params=CONTROLLERS)
def launcher(request: pytest.FixtureRequest) -> str:
    """Each of them, with its controller."""
    if controller := CONTROLLERS[request.param]:
        request.getfixturevalue(controller)
    return str(request.param)


@pytest.fixture
def untouched(cluster: Cluster, namespace: str) -> Iterator[None]:
    """At the end the namespace has what it had, also of what a controller made for the run."""
    before = _object_names(cluster, namespace)
    yield
    until(lambda: _object_names(cluster, namespace) == before)


def _object_names(cluster: Cluster, namespace: str) -> set[str]:
    """Of every kind that a run or its controller may make."""
    kinds = ",".join([*known(cluster), "configmaps"])
    names = cluster.kubectl("get", kinds, "-n", namespace, "--output", "name").split()
    return {*names, *workloads(cluster, namespace)}


@pytest.fixture
def passes(
    console: Console,
    trial: Callable[..., Path],
    cluster: Cluster,
    namespace: str,
    least_rights: None,
    untouched: None,
) -> Callable[..., list[dict[str, str]]]:
    """A whole run by the role that ships, which passes; the environment that each node gives its
    ranks, in order.
    """

    def run(launcher: str) -> list[dict[str, str]]:
        out = console.folder / "out"
        process = console.start(
            "run",
            trial(launcher=launcher),
            "--suite",
            console.suite(training=TRAINING),
            "--out",
            out,
        )
        log = out / "logs" / "run.log"
        until(
            lambda: (
                process.poll() is not None
                or (log.exists() and "2 of 2 nodes answer" in log.read_text())
            )
        )
        pods = cluster.get("pods", "-n", namespace, "-l", NODES)["items"]
        saved = [_environment(cluster, pod) for pod in sorted(pods, key=_index)]
        output = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, output
        document = json.loads((out / "run.json").read_text())
        assert document["verdict"] == "pass"
        names = {node["name"] for node in document["nodes"]}
        assert len(names) == 2
        assert names <= set(cluster.nodes)
        assert "all_reduce over 4 ranks" in check_of(document, "collectives")["reason"]
        assert check_of(document, "training")["verdict"] == "pass"
        return saved

    return run


def _index(pod: dict[str, Any]) -> int:
    labels = pod["metadata"]["labels"]
    return int(
        labels.get(
            "batch.kubernetes.io/job-completion-index",
            labels.get("training.kubeflow.org/replica-index"),
        )
    )


def _environment(cluster: Cluster, pod: dict[str, Any]) -> dict[str, str]:
    """What the entry point has saved for the sessions of sshd."""
    metadata = pod["metadata"]
    shell = ("sh", "-c", ". /run/seatrial/environment; env -0")
    output = cluster.kubectl(
        "exec", metadata["name"], "-n", metadata["namespace"], "--", "env", "-i", *shell
    )
    return dict(line.split("=", 1) for line in output.split("\0") if "=" in line)


def test_a_pytorchjob_passes_under_its_operator(
    training_operator: None, passes: Callable[..., list[dict[str, str]]]
) -> None:
    nodes = passes("pytorchjob")
    assert [node["RANK"] for node in nodes] == ["0", "1"]
    # Ranks: the operator knows how many a node has
    assert {node["WORLD_SIZE"] for node in nodes} == {"4"}


def test_a_jobset_passes_with_an_index_for_each_node(
    jobset: None, passes: Callable[..., list[dict[str, str]]]
) -> None:
    nodes = passes("jobset")
    assert [node["JOB_COMPLETION_INDEX"] for node in nodes] == ["0", "1"]


def test_an_mpijob_passes_with_its_workers_as_nodes(
    mpi_operator: None, passes: Callable[..., list[dict[str, str]]]
) -> None:
    nodes = passes("mpijob")
    assert [node["K_MPI_JOB_ROLE"] for node in nodes] == ["worker", "worker"]


def test_a_trainjob_passes_with_the_variables_of_torchrun(
    trainer: None, passes: Callable[..., list[dict[str, str]]]
) -> None:
    """Also the training step: torch reads PET_* where torchrun starts it."""
    nodes = passes("trainjob")
    assert [node["PET_NODE_RANK"] for node in nodes] == ["0", "1"]
    assert [node["JOB_COMPLETION_INDEX"] for node in nodes] == ["0", "1"]
    for node in nodes:
        assert (node["PET_NNODES"], node["PET_NPROC_PER_NODE"], node["PET_MASTER_PORT"]) == (
            "2",
            "2",
            "29500",
        )
        job, _, service = node["PET_MASTER_ADDR"].partition(".")
        assert job == f"{service}-node-0-0"


def test_trainjob_fails_and_names_the_job_below_it_that_failed(
    console: Console,
    trial: Callable[..., Path],
    cluster: Cluster,
    namespace: str,
    trainer: None,
    untouched: None,
) -> None:
    """The pods of the job never get a node before its deadline."""
    out, nowhere = console.folder / "out", {"pool": "none"}
    process = console.start(
        "run",
        trial(launcher="trainjob", node_selector=nowhere),
        "--suite",
        console.suite(),
        "--out",
        out,
    )
    until(lambda: cluster.get("jobs", "-n", namespace)["items"] != [])
    (job,) = (job["metadata"]["name"] for job in cluster.get("jobs", "-n", namespace)["items"])
    cluster.kubectl(
        "patch", "job", job, "-n", namespace, "--patch", '{"spec": {"activeDeadlineSeconds": 1}}'
    )
    output = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3, output
    why = f"jobset failed due to one or more job failures (first failed job: {job})"
    assert (
        json.loads((out / "run.json").read_text())["reason"]
        == f"launch: the TrainJob failed (FailedJobs): {why}"
    )


def test_reason_names_the_quota_that_keeps_the_mpi_operator_from_making_workers(
    console: Console,
    trial: Callable[..., Path],
    cluster: Cluster,
    namespace: str,
    mpi_operator: None,
    untouched: None,
) -> None:
    cluster.kubectl("create", "quota", "none", "--hard=pods=0", "-n", namespace)
    run = console.check(trial(launcher="mpijob"), console.suite())
    assert run.status == 3, run.output
    assert "its pods are not admitted: worker pod created failed: " in run.document["reason"]
    assert "exceeded quota: none" in run.document["reason"]


def test_a_killed_run_is_reaped(
    console: Console, trial: Callable[..., Path], cluster: Cluster, namespace: str, launcher: str
) -> None:
    run = in_the_middle_of_a_sweep(console, trial(launcher=launcher))
    run.process.kill()
    run.process.communicate()
    # Whatever becomes of seatrial: what owns the others ends by itself and takes them along.
    secrets = cluster.get("secrets", "-n", namespace, "-l", OURS)["items"]
    owners = [
        owner["kind"] for secret in secrets for owner in secret["metadata"]["ownerReferences"]
    ]
    assert owners == [KINDS[launcher]]
    started = time.monotonic()
    reaped = console.run("reap", trial(launcher=launcher))
    assert reaped.status == 0, reaped.output
    assert "1 run reaped" in reaped.out
    print(f"reaped in {time.monotonic() - started:.1f} s")
    assert left(cluster, namespace) == ""


def test_node_whose_container_dies_during_a_sweep_is_blamed(
    console: Console, trial: Callable[..., Path], cluster: Cluster, namespace: str, launcher: str
) -> None:
    run = in_the_middle_of_a_sweep(console, trial(launcher=launcher))
    pods = cluster.get("pods", "-n", namespace, "-l", NODES)["items"]
    second = next(
        pod["metadata"]["name"] for pod in pods if pod["spec"]["nodeName"] == cluster.nodes[1]
    )
    # By QUIT sshd, process 1, ends with an error; what sends it must have answered before, for it
    # dies too.
    kill = "(sleep 1; kill -QUIT 1) >/dev/null 2>&1 &"
    cluster.kubectl("exec", second, "-n", namespace, "--", "sh", "-c", kill)
    status, document, _ = run.end()
    assert (status, document["verdict"]) == (1, "fail"), document["reason"]
    assert [suspect["name"] for suspect in document["suspects"]] == [cluster.nodes[1]]
    print(document["reason"])
    assert left(cluster, namespace) == ""
