"""Probes as the nodes run them: real mpirun, real gloo over loopback."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from seatrial.nccl.collectives import SWEPT
from seatrial.remote.mpi import MpiResult
from seatrial.remote.probes import probe
from tests.site import free_port

PROBE_FOLDER = str(probe("collective").parent)
OPERATIONS = SWEPT
PATIENCE_S = 800  # of a rank for the others: every one imports torch, and the machine may be busy
needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun (openmpi-bin)")

# Several runs of a probe in one launch whose ranks meet once: what takes time is that every rank imports torch.
DRIVER = """
import json, sys
sys.path.insert(0, sys.argv.pop(1))
import rendezvous
import torch.distributed as dist
join = rendezvous.join
rendezvous.join = lambda *where: None if dist.is_initialized() else join(*where)
dist.destroy_process_group = lambda: None
name, runs = sys.argv.pop(1), json.loads(sys.argv.pop(1))
main = __import__(name).main
rendezvous.run(name, lambda _: [main(run) for run in runs][-1])
"""


@dataclass(frozen=True)
class Ended:
    """What a launch came to."""

    status: int
    lines: list[str]
    seconds: float

    def mpi_result(self) -> MpiResult:
        return MpiResult(self.status, tuple(self.lines), self.seconds)


def meeting(port: int | None = None) -> list[str]:
    where = ["--master-addr", "127.0.0.1", "--master-port", str(port or free_port())]
    return [*where, "--network", "127.0.0.0/8", "--timeout-s", str(PATIENCE_S)]


def mpirun_argv(ranks: int, command: Sequence[str]) -> list[str]:
    options = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
    return ["mpirun", *options, sys.executable, *command]


def start(argv: Sequence[str], **env: str) -> subprocess.Popen[str]:
    """In a process group of its own, so that a failing test leaves nothing behind."""
    return subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **env},
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], began: float) -> Ended:
    try:
        output, _ = process.communicate(timeout=PATIENCE_S + 40)
    except subprocess.TimeoutExpired as late:
        printed = (late.output or b"").decode(errors="replace")
        pytest.fail(f"not done after {late.timeout:g} s; the last lines: {printed[-2000:]}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return Ended(process.returncode, output.splitlines(), time.monotonic() - began)


def launch(ranks: int, *command: str) -> Ended:
    return finish(start(mpirun_argv(ranks, command)), time.monotonic())


def launch_many(ranks: int, name: str, runs: Sequence[Sequence[str]]) -> Ended:
    where = meeting()
    return launch(ranks, "-c", DRIVER, PROBE_FOLDER, name, json.dumps([[*run, *where] for run in runs]))


def sweep_argv(operation: str, *more: str) -> list[str]:
    sizes = ["--min-bytes", "64", "--max-bytes", "262144", "--step-factor", "64"]
    return ["--operation", operation, *sizes, "--iterations", "2", *more]


def one_rank(name: str, arguments: Sequence[str]) -> Ended:
    """A world of one rank, which needs no launcher."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    return finish(start([sys.executable, str(probe(name)), *arguments], **alone), time.monotonic())
