"""Machines for the quick check: one whose probes only answer, and one of real processes in place of
the probes.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from seatrial.remote.probes import probe

OWN = ("check", "command_line", "probe_answers", "processes", "placement")
FACTS = {
    "hostname": "node-0",
    "cpus": 2,
    "gpus": 0,
    "memory_gb": 25.3,
    "versions": {"torch": "2.6.0", "nccl": ""},
}
RESULTS = {
    "model": "resnet50",
    "precision": "fp32",
    "throughput_samples_per_second": 1000.0,
    "median_step_time_seconds": 0.1,
    "loss_start": 7.0,
    "loss_end": 3.0,
    "improved": True,
}
ROW = "  {size}  2097152  float  sum  -1  120.0  69.9  {busbw}  {wrong}  120.0  69.9  69.9  0"
LARGEST = ROW.format(size=1 << 30, busbw=480.5, wrong=0)
GLOO = ROW.format(size=16 << 20, busbw=1.5, wrong=0)
TRAIN = (
    "import sys; open(sys.argv[sys.argv.index('--results') + 1], "
    f"'w').write({json.dumps(RESULTS)!r})"
)
PASSED = "[RESULT] pass: all results are right; rates are not judged"


def device(name: str, **values: object) -> dict[str, Any]:
    rates = {"matmul_tflops": [700.0, 690.0, 710.0], "copy_gb_s": [2700.0]}
    return {
        "device": name,
        "model": "NVIDIA H100",
        "dtype": "bfloat16",
        **rates,
        "wrong": "",
        "error": "",
        **values,
    }


def gpus(count: int, **last: object) -> list[dict[str, Any]]:
    return [device(f"cuda:{i}", **(last if i == count - 1 else {})) for i in range(count)]


def printing(answer: object) -> str:
    return f"print({json.dumps(answer)!r})"


def check_module() -> ModuleType:
    """check.py, which finds what it imports in its own folder, as on a node."""
    with pytest.MonkeyPatch.context() as patched, mock.patch.dict(sys.modules):
        patched.syspath_prepend(probe("check").parent)
        return import_module("check")


class Probes:
    """check.py in this process, with answers in place of the programs that it would start."""

    def __init__(self, work: Path, patch: pytest.MonkeyPatch) -> None:
        self._check, self._ended = check_module(), dict[str, Any]()
        patch.setattr(self._check, "run_probe", self._run_probe)
        patch.setattr(self._check, "run", lambda command, timeout_s: self._ended[command[0]])
        patch.setattr(self._check, "shutil", SimpleNamespace(which=self._ended.get))
        patch.setattr(self._check, "signal", SimpleNamespace(signal=lambda *_: None, SIGTERM=15))
        patch.chdir(work)
        self.says("facts", FACTS)
        self.says("devices", {"devices": [device("cpu")]})
        self.says("collective", GLOO)
        self.says("training", "")

    def says(self, name: str, output: object, status: int | None = 0, problem: str = "") -> None:
        """What a program prints, text or JSON, and how it ends."""
        printed = output if isinstance(output, str) else json.dumps(output)
        self._ended[name] = self._check.Ended(printed, status, problem)

    def has_gpus(self, devices: Sequence[object], perf: str | None = LARGEST) -> None:
        self.says("devices", {"devices": devices})
        if perf is not None:
            self.says("all_reduce_perf", perf)

    def _run_probe(
        self, name: str, arguments: Sequence[str], timeout_s: float, ranks: int = 1
    ) -> Any:
        if name == "training" and self._ended[name].status == 0:
            Path(arguments[arguments.index("--results") + 1]).write_text(json.dumps(RESULTS))
        return self._ended[name]

    def check(self, *arguments: str) -> tuple[int, list[str]]:
        """(exit status, lines)."""
        with redirect_stdout(StringIO()) as printed:
            status: int = self._check.main(arguments)
        return status, printed.getvalue().splitlines()


class Machine:
    """A folder with the check and programs in place of probes, and a PATH with programs in place of
    nccl-tests.
    """

    def __init__(self, folder: Path) -> None:
        self.probes, self.programs, self.work = (
            folder / name for name in ("probes", "programs", "work")
        )
        for each in (self.probes, self.programs, self.work):
            each.mkdir()
        for name in OWN:
            shutil.copy(probe(name), self.probes)
        self.has(
            facts=printing(FACTS), devices=printing({"devices": [device("cpu")]}), training=TRAIN
        )
        self.has(collective=f"print({GLOO!r})")

    def has(self, **probes: str) -> None:
        for name, text in probes.items():
            (self.probes / f"{name}.py").write_text(text)

    def has_gpus(self, devices: Sequence[object]) -> None:
        self.has(devices=printing({"devices": devices}))
        program = self.programs / "all_reduce_perf"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{LARGEST}\nEND\n")
        program.chmod(0o755)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-S", "-E", str(self.probes / "check.py"), *arguments]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {"PATH": f"{self.programs}:/usr/bin:/bin", **(more or {})}

    def check(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> tuple[int, list[str]]:
        """(exit status, lines); it never says more than that."""
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment(environment),
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    def results(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.work / "results.json").read_text())
        return document
