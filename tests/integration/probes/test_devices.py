"""The probe `devices` on this machine's processors."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.devices import DevicesAnswer
from seatrial.remote.answers import read_answer
from seatrial.remote.probes import probe


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The probe alone in a folder, as one copies it to a machine by hand."""
    return Path(shutil.copy(probe("devices"), tmp_path))


def start(program: Path, *options: str, **env: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, str(program), *options]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})


def answer_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    document: dict[str, Any] = json.loads(output)
    return document


def test_the_processors_are_measured(program: Path) -> None:
    document = answer_of(start(program, "--seconds", "0.05", CUDA_VISIBLE_DEVICES=""))
    (cpu,) = read_answer(DevicesAnswer, json.dumps(document)).devices
    assert (cpu.device, cpu.dtype, cpu.size, cpu.problem()) == ("cpu", "float32", 1024, None)
    assert len(cpu.matmul_tflops) >= 5
    assert {m.metric for m in cpu.measurements("node-0")} == {"matmul", "memory_copy"}


def test_nodes_of_one_machine_wait_for_each_other(program: Path) -> None:
    """While one holds the machine, another says at the end of its patience that it did not get it."""
    holder = """if True:
        import fcntl, runpy, sys, time
        probe = runpy.run_path(sys.argv[1])
        lock = open(probe["lock_file"](), "a+")
        fcntl.flock(lock, fcntl.LOCK_EX)
        print("held", flush=True)
        sys.stdin.read()
    """
    argv = [sys.executable, "-c", holder, str(program)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout
        assert held.stdout.readline() == "held\n"
        waiting = start(program, "--timeout-s", "0.2", CUDA_VISIBLE_DEVICES="")
        assert answer_of(waiting) == {"devices": []}
        held.communicate(timeout=60)


def test_without_torch_the_probe_says_so(program: Path) -> None:
    (program.parent / "torch.py").write_text("raise ImportError('no torch here')")
    assert answer_of(start(program)) == {"error": "torch cannot be imported: no torch here"}
