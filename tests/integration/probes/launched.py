"""Probes as the nodes run them: real gloo over loopback, by mpirun or forked."""

import importlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seatrial.nccl.collectives import SWEPT
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.probes import probe
from tests.integration.probes import spoilt
from tests.site import free_port

PROBE_FOLDER = str(probe("collective").parent)
OPERATIONS = SWEPT
PATIENCE_S = 800  # of a rank for the others: every one imports torch, and the machine may be busy
needs_mpirun = pytest.mark.skipif(
    shutil.which("mpirun") is None, reason="needs mpirun (openmpi-bin)"
)

# What takes time is that every rank imports torch: these are forked from one process that has it.
_RANKS = multiprocessing.get_context("forkserver")
# The latter by the first optimizer
_RANKS.set_forkserver_preload(["torch.distributed", "torch._dynamo"])


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
    """Several runs of a probe whose ranks meet once."""
    where = meeting()
    environments = [
        {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank)}
        for rank in range(ranks)
    ]
    return forked(name, [[*run, *where] for run in runs], environments)


def by_hand(name: str, *arguments: str) -> Ended:
    """One process, which needs no launcher."""
    return forked(name, [arguments], [{}])


def forked(
    name: str, runs: Sequence[Sequence[str]], environments: Sequence[Mapping[str, str]]
) -> Ended:
    """What the ranks came to; each is `{name}.py` with its environment beside this process's
    own.
    """
    began = time.monotonic()
    with tempfile.NamedTemporaryFile() as output:
        processes = [
            _RANKS.Process(target=_be_rank, args=(output.name, name, runs, {**os.environ, **own}))
            for own in environments
        ]
        try:
            for process in processes:
                process.start()
            for process in processes:
                process.join(max(0, began + PATIENCE_S + 40 - time.monotonic()))
        finally:
            for process in processes:
                process.kill()
                process.join()
        lines = Path(output.name).read_text().splitlines()
    return Ended(
        max(processes, key=lambda each: abs(each.exitcode or 0)).exitcode or 0,
        lines,
        time.monotonic() - began,
    )


def _be_rank(
    output: str, name: str, runs: Sequence[Sequence[str]], environment: Mapping[str, str]
) -> None:
    # The workers of a rank end with it, as theirs do on a node
    multiprocessing.set_start_method("fork", force=True)
    os.environ.clear()
    os.environ.update(environment)
    written = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(written, 1)
    os.dup2(written, 2)
    # Those of several ranks would wait by spinning
    importlib.import_module("torch").set_num_threads(1)
    sys.path.insert(0, PROBE_FOLDER)
    rendezvous: Any = importlib.import_module("rendezvous")
    program = importlib.import_module(name)
    join = rendezvous.join
    rendezvous.join = lambda *where: None if rendezvous.dist.is_initialized() else join(*where)
    rendezvous.dist.destroy_process_group = lambda: None
    rendezvous.run(name, lambda _: [spoilt.run(program, run) for run in runs][-1])


def sweep_argv(operation: str, *more: str) -> list[str]:
    sizes = ["--min-bytes", "64", "--max-bytes", "262144", "--step-factor", "64"]
    return ["--operation", operation, *sizes, "--iterations", "2", *more]
