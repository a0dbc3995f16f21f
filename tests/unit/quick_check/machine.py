"""A machine for the quick check: real processes, with programs in place of the probes that it starts."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.remote.probes import probe

OWN = ("check", "processes", "placement")
FACTS = {"hostname": "node-0", "cpus": 2, "gpus": 0, "memory_gb": 25.3, "versions": {"torch": "2.6.0", "nccl": ""}}
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
TRAIN = f"import sys; open(sys.argv[sys.argv.index('--results') + 1], 'w').write({json.dumps(RESULTS)!r})"


def device(name: str, **values: object) -> dict[str, Any]:
    rates = {"matmul_tflops": [700.0, 690.0, 710.0], "copy_gb_s": [2700.0]}
    return {"device": name, "model": "NVIDIA H100", "dtype": "bfloat16", **rates, "wrong": "", "error": "", **values}


def gpus(count: int, **last: object) -> list[dict[str, Any]]:
    return [device(f"cuda:{i}", **(last if i == count - 1 else {})) for i in range(count)]


def printing(answer: object) -> str:
    return f"print({json.dumps(answer)!r})"


class Machine:
    """A folder with the check and programs in place of probes, and a PATH with programs in place of nccl-tests."""

    def __init__(self, folder: Path) -> None:
        self.probes, self.programs, self.work = (folder / name for name in ("probes", "programs", "work"))
        for each in (self.probes, self.programs, self.work):
            each.mkdir()
        for name in OWN:
            shutil.copy(probe(name), self.probes)
        self.has(facts=printing(FACTS), devices=printing({"devices": [device("cpu")]}), training=TRAIN)
        self.has(collective=f"print({GLOO!r})")

    def has(self, **probes: str) -> None:
        for name, text in probes.items():
            (self.probes / f"{name}.py").write_text(text)

    def has_gpus(self, devices: Sequence[object], perf: str | None = LARGEST) -> None:
        self.has(devices=printing({"devices": devices}))
        if perf is not None:
            program = self.programs / "all_reduce_perf"
            program.write_text(f"#!/bin/sh\ncat <<'END'\n{perf}\nEND\n")
            program.chmod(0o755)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-S", "-E", str(self.probes / "check.py"), *arguments]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {"PATH": f"{self.programs}:/usr/bin:/bin", **(more or {})}

    def check(self, *arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, list[str]]:
        """(exit status, lines); it never says more than that."""
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment(environment),
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    def results(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.work / "results.json").read_text())
        return document
