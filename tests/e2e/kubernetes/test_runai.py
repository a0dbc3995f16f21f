"""RunAI by a stand-in for its command, whose submits become real PyTorchJobs and MPIJobs; see
runai.py.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import load_cluster
from seatrial.config.run import Run
from seatrial.model.testbed import Testbed
from seatrial.platforms.runai import RunaiPlatform
from seatrial.platforms.runai.platform import Client, pod_names, submit_argv, workload_name
from seatrial.remote.node_setup import NodeConnection, set_up_node
from seatrial.remote.ssh import on_each
from tests.contract.promises import Promises
from tests.e2e.conftest import Console, until
from tests.e2e.kubernetes.cluster import Cluster
from tests.e2e.kubernetes.runs import TRAINING, check_of
from tests.quick_run import quick_run

ROOT = Path(__file__).parents[3]
KINDS = "pytorchjobs.kubeflow.org,mpijobs.kubeflow.org"


@pytest.fixture
def calls(
    cluster: Cluster,
    namespace: str,
    training_operator: None,
    mpi_operator: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """Puts `runai` on PATH, for the project that the test's namespace is; the file that lists its
    calls.
    """
    file, folder = tmp_path / "calls", tmp_path / "bin"
    program = [
        sys.executable,
        "-S",
        "-m",
        "tests.e2e.kubernetes.runai",
        str(cluster.tools / "kubectl"),
        namespace,
    ]
    folder.mkdir()
    (folder / "runai").write_text(
        f"#!/bin/sh\nexport KUBECONFIG={cluster.kubeconfig} PYTHONPATH={ROOT} "
        f"RUNAI_STANDIN_CALLS={file}\n"
        f'exec {shlex.join(program)} "$@"\n'
    )
    (folder / "runai").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    yield file
    until(lambda: cluster.get(f"{KINDS},pods", "-n", namespace)["items"] == [])


@pytest.fixture
def settings(calls: Path, cluster: Cluster) -> dict[str, Any]:
    """The section `platform` of a cluster file."""
    return {
        "kind": "runai",
        "project": "infra",
        "args": [f"--image-pull-policy={cluster.pull_policy}"],
    }


@pytest.fixture
def run(settings: dict[str, Any], cluster: Cluster, tmp_path: Path) -> Run:
    return quick_run(tmp_path, nodes=3, slots_per_node=2, image=cluster.image, platform=settings)


class TestPromises(Promises):
    """What every platform promises, and what RunAI's operator adds."""

    def test_training_works_with_the_variables_that_the_operator_sets(
        self, launched: Testbed, run: Run, cluster: Cluster, namespace: str
    ) -> None:
        """Every session has PET_* of a real PyTorchJob and whatever else one process on each node
        needs to train.
        """
        contacts = on_each(launched.nodes, lambda node: set_up_node(launched, node, 30))
        for contact in contacts.values():
            assert isinstance(contact, NodeConnection)
            contact.transport.close()
        environment, others = (
            f"{Path(launched.workdir).parent}/environment",
            "RANK WORLD_SIZE MASTER_ADDR MASTER_PORT",
        )
        program = f". {environment}; unset {others}; env | grep ^PET_; timeout 120 python3"
        options = "--device cpu --steps 4 --warmup 1 --batch 2 --timeout-s 120"

        def train(pod: str) -> str:
            # Debian's torch 1.13 sometimes hangs in destroy_process_group, after the summary;
            # mpirun would end it.
            shell = f"{program} {launched.workdir}/training.py {options} 2>&1 || [ $? = 124 ]"
            return cluster.kubectl(
                "exec", pod, "-n", namespace, "--", "sh", "-c", shell, timeout_s=300
            )

        with ThreadPoolExecutor() as pool:
            printed = list(pool.map(train, [node.name for node in launched.nodes]))
        for rank, text in enumerate(printed):
            variables = dict(
                line.split("=", 1) for line in text.splitlines() if line.startswith("PET_")
            )
            assert (variables["PET_NNODES"], variables["PET_NODE_RANK"]) == (
                str(run.cluster.nodes),
                str(rank),
            )
            assert variables["PET_MASTER_ADDR"] == f"{workload_name(run.run_id)}-master-0"
        result = next(json.loads(line) for line in printed[0].splitlines() if '"summary"' in line)
        assert len(result["ranks"]) == run.cluster.nodes


@pytest.mark.parametrize("framework", ["pytorch", "mpi"])
def test_a_whole_run_passes(
    console: Console, settings: dict[str, Any], cluster: Cluster, calls: Path, framework: str
) -> None:
    console.environment["PATH"] = os.environ["PATH"]
    file = console.cluster(
        2, platform={**settings, "framework": framework}, image=cluster.image, slots_per_node=2
    )
    doctor = console.run("doctor", file)
    assert doctor.status == 0, doctor.output
    finished = console.check(file, console.suite(training=TRAINING))
    assert finished.status == 0, finished.output
    assert finished.document["verdict"] == "pass"
    assert "all_reduce over 4 ranks" in check_of(finished.document, "collectives")["reason"]
    assert check_of(finished.document, "training")["verdict"] == "pass"
    roles = ["worker-0", "worker-1"] if framework == "mpi" else ["master-0", "worker-0"]
    assert [
        re.sub(".*-(?=(master|worker))", "", node["name"]) for node in finished.document["nodes"]
    ] == roles
    assert "PRIVATE KEY" not in calls.read_text()


def test_example_cluster_file_creates_three_pods_of_four_gpus(
    calls: Path, cluster: Cluster, namespace: str
) -> None:
    """The pods stay pending, because no node has such a pool. An MPI workload has a launcher as one
    more pod, without GPUs.
    """
    example = load_cluster(ROOT / "deployments" / "clusters" / "gh200-runai.yaml")
    assert isinstance(example.platform, RunaiPlatform)
    run = Run("example", example, load_suite("quick"), Path())
    for framework, kind, count in (("pytorch", "pytorchjob", 3), ("mpi", "mpijob", 4)):
        settings = example.platform.model_copy(update={"framework": framework})
        Client(settings).run(submit_argv(run, settings))
        until(partial(_has_pods, cluster, namespace, count))
        pods = {
            pod["metadata"]["name"]: pod["spec"]
            for pod in cluster.get("pods", "-n", namespace)["items"]
        }
        for name in pod_names(settings, run.run_id, 3):
            (container,) = pods.pop(name)["containers"]
            assert container["resources"]["limits"] == {
                "nvidia.com/gpu": "4",
                "rdma/rdma_shared_device_a": "4",
            }
            assert container["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}
            assert "/dev/shm" in [mount["mountPath"] for mount in container["volumeMounts"]]
        # MPI's launcher
        assert all("limits" not in spec["containers"][0]["resources"] for spec in pods.values())
        spec = cluster.get(kind, workload_name("example"), "-n", namespace)["spec"]
        assert spec.get("nprocPerNode", spec.get("slotsPerWorker")) in ("4", 4)
        Client(settings).delete("example")
        until(partial(_has_pods, cluster, namespace, 0))


def _has_pods(cluster: Cluster, namespace: str, count: int) -> bool:
    return len(cluster.get("pods", "-n", namespace)["items"]) == count
