"""`seatrial run` under every launcher whose controller is no part of Kubernetes: pods of its making, verdict, nothing left."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Console, until
from tests.e2e.kubernetes.cluster import Cluster
from tests.e2e.kubernetes.conftest import OURS

EVERYTHING = "jobs,pods,secrets,services,configmaps"
NODES = f"{OURS},seatrial/role=node"


@pytest.fixture
def untouched(cluster: Cluster, namespace: str) -> Iterator[None]:
    """At the end the namespace has what it had, also of what a controller made for the run."""
    before = _things(cluster, namespace)
    yield
    until(lambda: _things(cluster, namespace) == before, timeout_s=60)


def _things(cluster: Cluster, namespace: str) -> set[str]:
    return set(cluster.kubectl("get", EVERYTHING, "-n", namespace, "--output", "name").split())


@pytest.fixture
def passes(
    console: Console, trial: Callable[..., Path], cluster: Cluster, namespace: str, untouched: None
) -> Callable[..., list[dict[str, str]]]:
    """A whole run with that launcher that passes; the environment that every node gives to its ranks, by node's rank."""

    def run(launcher: str, **suite: Any) -> list[dict[str, str]]:
        out = console.folder / "out"
        process = console.start("run", trial(launcher=launcher), "--suite", console.suite(**suite), "--out", out)
        log = out / "logs" / "run.log"
        until(lambda: process.poll() is not None or (log.exists() and "2 of 2 nodes answer" in log.read_text()))
        pods = cluster.get("pods", "-n", namespace, "-l", NODES)["items"]
        saved = [_environment(cluster, pod) for pod in sorted(pods, key=_index)]
        said = process.communicate(timeout=240)
        assert process.returncode == 0, said
        document = json.loads((out / "run.json").read_text())
        assert document["verdict"] == "pass"
        assert {node["name"] for node in document["nodes"]} == set(cluster.nodes)
        collectives = next(check for check in document["checks"] if check["name"] == "collectives")
        assert "all_reduce over 4 ranks" in collectives["reason"]
        return saved

    return run


def _index(pod: dict[str, Any]) -> int:
    labels = pod["metadata"]["labels"]
    return int(labels.get("batch.kubernetes.io/job-completion-index", labels.get("training.kubeflow.org/replica-index")))


def _environment(cluster: Cluster, pod: dict[str, Any]) -> dict[str, str]:
    """What the entry point has saved for the sessions of sshd."""
    metadata = pod["metadata"]
    shell = ("sh", "-c", ". /run/seatrial/environment; env -0")
    said = cluster.kubectl("exec", metadata["name"], "-n", metadata["namespace"], "--", "env", "-i", *shell)
    return dict(line.split("=", 1) for line in said.split("\0") if "=" in line)


def test_a_jobset(jobset: None, passes: Callable[..., list[dict[str, str]]]) -> None:
    nodes = passes("jobset")
    assert [node["JOB_COMPLETION_INDEX"] for node in nodes] == ["0", "1"]
