"""The quick check of one machine, check.py: real processes, with programs in place of the probes that it starts."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from seatrial.remote.probes import probe

OWN = ("check", "processes", "quick_checks", "quick_devices", "placement")
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


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_with_gpus_that_passes(machine: Machine) -> None:
    machine.has_gpus(gpus(4))
    assert machine.check() == (
        0,
        [
            "[ENV] node-0: 2 CPUs, 0 GPUs, 25 GB of memory",
            "[ENV] torch 2.6.0",
            *(f"[COMPUTE] cuda:{i} NVIDIA H100: matmul bfloat16 700 TFLOP/s, memory copy 2700 GB/s" for i in range(4)),
            "[COLLECTIVE] all_reduce over 4 GPUs, NCCL: 480.50 GB/s busbw at 1024 MiB, no wrong elements",
            "[TRAIN] resnet50 fp32 on 4 GPUs: 1000 samples/s, 100 ms a step, loss 7.000 to 3.000",
            "[RESULT] pass: all results are right; rates are within 10% of each other",
        ],
    )
    results = machine.results()
    assert (results["verdict"], results["train"], results["env"]) == ("pass", RESULTS, FACTS)
    assert [figures["matmul_tflops"] for figures in results["compute"]] == [700.0] * 4


def test_a_machine_without_gpus_is_not_run_unless_that_is_allowed(machine: Machine) -> None:
    status, lines = machine.check()
    assert (status, lines[-1]) == (
        3,
        "[RESULT] not_run: GPU: torch sees no GPU; --allow-no-gpu checks the processors alone",
    )
    assert machine.check("--gpus", "8")[1][-1] == "[RESULT] not_run: GPU: torch sees 0 of 8 GPUs"
    passed = "[RESULT] pass: all results are right; rates are compared with nothing"
    for arguments in (["--allow-no-gpu"], ["--allow-no-gpu", "--gpus", "8"]):
        status, lines = machine.check(*arguments)
        assert (status, lines[-1]) == (0, passed)
        assert "[TRAIN] resnet50 fp32 on 2 processes" in lines[-2]
    assert machine.check(environment={"SEATRIAL_ALLOW_NO_GPU": "1"})[0] == 0


def test_fewer_gpus_than_promised_fail_although_none_would_be_allowed(machine: Machine) -> None:
    machine.has_gpus(gpus(2))
    status, lines = machine.check("--gpus", "4", "--allow-no-gpu")
    assert (status, lines[-1]) == (1, "[RESULT] fail: GPU: torch sees 2 of 4 GPUs")


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ({"wrong": "a copy differs from its source"}, "corrupt: COMPUTE: cuda:3: a copy differs from its source"),
        ({"error": "CUDA error:\nECC"}, "fail: COMPUTE: cuda:3: CUDA error: ECC"),
        ({"copy_gb_s": []}, "fail: COMPUTE: cuda:3: no samples"),
        ({"matmul_tflops": [600.0]}, "degraded: COMPUTE: cuda:3: matmul 600 TFLOP/s, others 700"),
        ({"digests": {"float32": "1"}}, "corrupt: COMPUTE: cuda:3: its results differ from those of the devices alike"),
    ],
)
def test_a_bad_gpu_is_named(machine: Machine, last: dict[str, object], reason: str) -> None:
    machine.has_gpus(
        [each | {"digests": {"float32": "0"}} | (last if each["device"] == "cuda:3" else {}) for each in gpus(4)]
    )
    status, lines = machine.check()
    assert (status, lines[-1]) == (1, f"[RESULT] {reason}")
    assert any(line.startswith("[TRAIN] resnet50") for line in lines)  # the rest goes on


@pytest.mark.parametrize(
    ("perf", "status", "reason"),
    [
        (ROW.format(size=1 << 30, busbw=480.5, wrong=3), 1, "corrupt: COLLECTIVE: all_reduce: elements are wrong"),
        (ROW.format(size=1 << 30, busbw=480.5, wrong="N/A"), 1, "corrupt: COLLECTIVE: all_reduce: elements are wrong"),
        (ROW.format(size=1 << 20, busbw=480.5, wrong=0), 3, "inconclusive: COLLECTIVE: no row of 1024 MiB"),
        (ROW.format(size="9" * 5000, busbw=480.5, wrong=0), 3, "inconclusive: COLLECTIVE: no row of 1024 MiB"),
        ("USAGE: all_reduce_perf\n# Out of bounds values : 0 OK", 3, "inconclusive: COLLECTIVE: no row of 1024 MiB"),
    ],
)
def test_nccl_tests_count_by_their_rows(machine: Machine, perf: str, status: int, reason: str) -> None:
    machine.has_gpus(gpus(2), perf)
    assert (machine.check()[0], machine.check()[1][-1]) == (status, f"[RESULT] {reason}")


def test_two_gpus_that_differ_are_both_named(machine: Machine) -> None:
    machine.has_gpus([device(f"cuda:{i}", digests={"float32": str(i)}) for i in range(2)])
    assert machine.check()[1][-1] == "[RESULT] corrupt: COMPUTE: cuda:0, cuda:1: alike, and their results differ"


def summed(*wrong: object) -> str:
    """What the probe all_reduce prints over as many ranks."""
    ranks = [{"rank": i, "host": "node-0", "wrong": each, "first_wrong": None} for i, each in enumerate(wrong)]
    return printing({"event": "all_reduce", "rounds": 10, "elements": 2_000_000, "backend": "nccl", "ranks": ranks})


def test_without_nccl_tests_torch_sums_and_the_rate_stands_beside_the_pass(machine: Machine) -> None:
    machine.has(all_reduce=summed(0, 0))
    machine.has_gpus(gpus(2), perf=None)
    status, lines = machine.check()
    assert status == 0
    assert "[COLLECTIVE] all_reduce over 2 GPUs, torch: 10 sums of 2,000,000 elements, no wrong elements" in lines
    assert lines[-1].endswith("; the rate of all_reduce was not measured: all_reduce_perf (nccl-tests) is not on PATH")


@pytest.mark.parametrize(
    ("program", "status", "reason"),
    [
        (summed(0, 3) + "; raise SystemExit(7)", 1, "corrupt: COLLECTIVE: all_reduce: elements are wrong on rank 1"),
        (summed(0, None), 1, "corrupt: COLLECTIVE: all_reduce: elements are wrong on rank 1"),
        (summed(0), 3, "inconclusive: COLLECTIVE: 1 of 2 ranks told their sums"),
        ("print('[' * 100000)", 3, "inconclusive: COLLECTIVE: 0 of 2 ranks told their sums"),
        ("raise SystemExit('lost a peer')", 1, "fail: COLLECTIVE: rank 0: lost a peer"),
    ],
)
def test_sums_by_torch_that_are_wrong_or_missing(machine: Machine, program: str, status: int, reason: str) -> None:
    machine.has(all_reduce=program)
    machine.has_gpus(gpus(2), perf=None)
    done = machine.check()
    assert (done[0], done[1][-1]) == (status, f"[RESULT] {reason}")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "devices printed no JSON"),
        ("print('null')", "devices printed no JSON"),
        ("print('[' * 100000)", "devices printed no JSON"),
        ("print('{\"devices\": 3}')", "no device was measured"),
        ('print(\'{"devices": [3, null, "x"]}\')', "no device was measured"),
        ("print('{\"devices\": []}')", "no device was measured"),
        ('print(\'{"error": "torch cannot be imported\\\\u001b[2J"}\')', "torch cannot be imported[2J"),
        ("print('{\"devices\": [{}]}')", ": no samples"),
        ('print(\'{"devices": [{"device": "cpu", "matmul_tflops": [NaN, true, -1]}]}\')', "cpu: no samples"),
        ("while True: print('x' * 65536)", "did not end within 2 s"),
        ("raise SystemExit('no driver')", "no driver"),
        ("import os; os.abort()", "ended by SIGABRT"),
    ],
)
def test_what_a_probe_prints_may_be_anything(machine: Machine, answer: str, reason: str) -> None:
    machine.has(devices=answer)
    status, lines = machine.check("--allow-no-gpu", "--timeout-s", "2")
    assert status in (1, 3)
    assert lines[-1].endswith(f"COMPUTE: {reason}")


RANK_1 = """
import json, os, signal, sys, time
if os.environ["RANK"] == "1":
    {}
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("ends", "status", "reason"),
    [
        ("os.abort()", 1, "fail: TRAIN: rank 1: ended by SIGABRT"),
        ("os.kill(os.getpid(), 9)", 1, "fail: TRAIN: rank 1: ended by SIGKILL (out of memory, or killed by hand)"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", 3, "inconclusive: TRAIN: rank 1: is stopped"),
        ("sys.exit('CUDA out of memory')", 1, "fail: TRAIN: rank 1: CUDA out of memory"),
        ("pass", 3, "inconclusive: TRAIN: did not end within 2 s"),
    ],
    ids=["aborted", "killed", "stopped", "out of memory", "hangs"],
)
def test_a_rank_that_breaks_training_is_named(machine: Machine, ends: str, status: int, reason: str) -> None:
    machine.has(training=RANK_1.format(ends))
    began = time.monotonic()
    assert machine.check("--allow-no-gpu", "--timeout-s", "2")[1][-1] == f"[RESULT] {reason}"
    assert time.monotonic() - began < 20
    assert machine.results()["verdict"] == reason.partition(":")[0]


@pytest.mark.parametrize(
    ("ranks", "reason"),
    [
        ([{"rank": i, "finite": i != 1, "checksum": "a"} for i in range(3)], "is not finite on rank 1"),
        (
            [{"rank": i, "finite": True, "checksum": str(i == 2)} for i in range(3)],
            "other parameters on rank 2 than on the others",
        ),
        ("nonsense", "other parameters on different ranks"),
    ],
)
def test_wrong_numbers_of_training_name_the_rank(machine: Machine, ranks: object, reason: str) -> None:
    machine.has(training=f"{printing({'event': 'summary', 'ranks': ranks})}\nraise SystemExit(7)")
    status, lines = machine.check("--allow-no-gpu")
    assert status == 1
    assert lines[-1].startswith("[RESULT] corrupt: TRAIN: ")
    assert reason in lines[-1]


def test_one_process_of_a_machine_checks_it(machine: Machine) -> None:
    """The others say nothing, and what the first one starts is not of the launcher's world."""
    machine.has(
        training=f"import os; assert not {{'SLURM_PROCID', 'TORCHELASTIC_RUN_ID'}} & os.environ.keys()\n{TRAIN}"
    )
    torchrun = {"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    assert machine.check(environment={**torchrun, "LOCAL_RANK": "1"}) == (0, [])
    assert machine.check("--allow-no-gpu", environment={**torchrun, "LOCAL_RANK": "0"})[0] == 0


def test_a_check_that_is_ended_ends_what_it_started(machine: Machine) -> None:
    machine.has(training="import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(60)")
    child = subprocess.Popen(
        machine.command("--allow-no-gpu"), env=machine.environment(), cwd=machine.work, stdout=subprocess.DEVNULL
    )
    pid = machine.work / "pid"
    deadline = time.monotonic() + 30
    while not (pid.exists() and pid.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_results_that_cannot_be_written_change_no_verdict(machine: Machine) -> None:
    done = subprocess.run(
        machine.command("--allow-no-gpu", "--results", "/nowhere/results.json"),
        env=machine.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        0,
        "check: /nowhere/results.json cannot be written: No such file or directory\n",
    )
