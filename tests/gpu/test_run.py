"""Whole runs with a real GPU and real NCCL; skipped where they cannot be.

Four nodes share the GPU of this machine. Each is a host of its own to NCCL, which therefore takes
one GPU four times and sends all data over the sockets of the nodes. The numbers are those of
sockets and of taking turns; NCCL, CUDA, nccl-tests, torch and every fault are real.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
yaml = pytest.importorskip("yaml")
pytest.importorskip("prefect")
REQUIRED = ("all_reduce_perf", "mpirun", "ssh", "ip", "tc", "unshare")
LACKING = [program for program in REQUIRED if not shutil.which(program)]
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces have no GPU otherwise"),
    pytest.mark.skipif(bool(LACKING), reason=f"not on PATH: {', '.join(LACKING)}"),
]

FIRST_ROW = re.compile(r"^ +1048576 ", re.MULTILINE)
# Of the run, in the command line that a log begins with
STATE_FOLDER = re.compile(r"/seatrial-local/([\w-]+)/")

CONNECTIVITY = {"timeout_s": 15}
DEVICES = {"seconds": 0.3, "timeout_s": 60}
SIZES = {
    "min_bytes": "1M",
    "max_bytes": "16M",
    "step_factor": 4,
    "warmup_iterations": 1,
    "iterations": 5,
}
COLLECTIVES = {"operations": ["all_reduce"], "gpu": SIZES, "cpu": SIZES, "timeout_s": 60}
MODEL = {"layers": 2, "width": 256, "heads": 4}
TRAINING = {
    "timeout_s": 90,
    "min_loss_drop": 0.2,
    "gpu": {
        "model": "transformer",
        "precision": "bf16",
        "steps": 40,
        "warmup_steps": 4,
        "transformer": MODEL,
    },
}


@contextmanager
def started(
    folder: Path, cluster: dict[str, Any], suite: dict[str, Any]
) -> Iterator["subprocess.Popen[str]"]:
    """`seatrial run` on four nodes that share the GPU; its result will be in `out`."""
    shared = {"name": "shared", "nodes": 4, "gpus_per_node": 1, "hardware": {"name": "shared-gpu"}}
    files = {
        "cluster": {**shared, "platform": {"kind": "local"}, **cluster},
        "suite": {"name": "gpu", **suite},
    }
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    argv = ["run", "cluster.yaml", "--suite", "suite.yaml", "--out", "out", "--no-notify"]
    own_state = {
        "PREFECT_HOME": str(folder / "prefect"),
        "SEATRIAL_HISTORY": f"sqlite:///{folder}/history.db",
    }
    source = {
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        )
    }
    with (folder / "terminal.log").open("w") as terminal:
        process = subprocess.Popen(
            [sys.executable, "-m", "seatrial", *argv],
            cwd=folder,
            env={**os.environ, **own_state, **source},
            stdout=terminal,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        yield process
    finally:
        process.terminate()  # it takes its nodes down
        process.wait(60)


def finish(process: "subprocess.Popen[str]", folder: Path) -> tuple[int, dict[str, Any]]:
    """The exit status, and the result."""
    status = process.wait(240)
    print((folder / "terminal.log").read_text())  # pytest shows it with a failure
    result: dict[str, Any] = json.loads((folder / "out" / "run.json").read_text())
    return status, result


def run(folder: Path, cluster: dict[str, Any], **suite: Any) -> tuple[int, dict[str, Any]]:
    """The exit status of a whole run, and its result."""
    with started(folder, cluster, suite) as process:
        return finish(process, folder)


def suspects(result: dict[str, Any]) -> set[str]:
    return {suspect["name"] for suspect in result["suspects"]}


def test_healthy_nodes_pass(tmp_path: Path) -> None:
    status, result = run(
        tmp_path,
        {},
        connectivity=CONNECTIVITY,
        devices=DEVICES,
        collectives=COLLECTIVES,
        training=TRAINING,
    )
    assert {check["name"]: check["verdict"] for check in result["checks"]} == dict.fromkeys(
        ("connectivity", "devices", "collectives", "training"), "pass"
    )
    assert (status, result["suspects"]) == (0, [])
    assert "NVIDIA" in (tmp_path / "out" / "logs" / "all_reduce.log").read_text()


def test_a_slow_node_is_named(tmp_path: Path) -> None:
    slow = {"faults": [{"node": "node-2", "rate": "2gbit"}]}
    status, result = run(tmp_path, slow, connectivity=CONNECTIVITY, collectives=COLLECTIVES)
    assert (status, suspects(result)) == (1, {"node-2"})


def test_a_gpu_that_cannot_allocate_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    """torch reserves more address space than SSH, MPI and TCP need."""
    broken = {"faults": [{"node": "node-2", "memory": "16G"}]}
    status, result = run(
        tmp_path, broken, connectivity=CONNECTIVITY, devices=DEVICES, collectives=COLLECTIVES
    )
    verdicts = {check["name"]: check["verdict"] for check in result["checks"]}
    assert verdicts == {"connectivity": "pass", "devices": "fail", "collectives": "pass"}
    (suspect,) = result["suspects"]
    assert (status, suspect["name"], suspect["code"]) == (1, "node-2/gpu-0", "probe-failed")
    assert suspect["evidence"].endswith("CUDA error: out of memory"), (
        "without the advice to programmers below it"
    )


def test_a_rank_that_is_killed_while_nccl_sums_is_named(tmp_path: Path) -> None:
    """Only NCCL sees that: the other ranks wait for data inside a kernel of the GPU."""
    collectives = {**COLLECTIVES, "gpu": {**SIZES, "iterations": 100}, "timeout_s": 40}
    with started(
        tmp_path, {}, {"connectivity": CONNECTIVITY, "collectives": collectives}
    ) as process:
        log = tmp_path / "out" / "logs" / "all_reduce.log"
        deadline = time.monotonic() + 120
        while not (log.exists() and FIRST_ROW.search(log.read_text())):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        folder = STATE_FOLDER.search(log.read_text())
        assert folder
        os.kill(rank_on(f"seatrial-{folder[1]}-node-2"), signal.SIGKILL)
        status, result = finish(process, tmp_path)
    assert (status, suspects(result)) == (1, {"node-2"})


def rank_on(namespace: str) -> int:
    """The process id of the rank on a node."""
    asked = subprocess.run(
        ["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True
    )
    return next(
        int(pid)
        for pid in asked.stdout.split()
        if Path(f"/proc/{pid}/comm").read_text() == "all_reduce_perf\n"
    )


def test_a_gpu_that_computes_wrongly_is_corrupt(tmp_path: Path) -> None:
    status, result = run(
        tmp_path,
        {"faults": [{"node": "node-1", "computes": "wrong"}]},
        connectivity=CONNECTIVITY,
        devices=DEVICES,
    )
    assert (status, result["verdict"], suspects(result)) == (1, "corrupt", {"node-1/gpu-0"})
