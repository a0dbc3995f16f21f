"""What check.py makes of processes that hang, break or print anything, of launchers around it, and
of its own end.
"""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from seatrial.remote.probes import processes
from seatrial.text.words import number
from tests.unit.quick_check.machine import (
    FACTS,
    PASSED,
    RESULTS,
    TRAIN,
    Machine,
    check_module,
    gpus,
)


def test_a_machine_with_gpus_that_passes(machine: Machine) -> None:
    machine.has_gpus(gpus(4))
    assert machine.check() == (
        0,
        [
            "[ENV] node-0: 2 CPUs, 0 GPUs, 25 GB of memory",
            "[ENV] torch 2.6.0",
            *(
                (
                    f"[COMPUTE] cuda:{i} NVIDIA H100: matmul bfloat16 700 TFLOP/s, memory "
                    "copy 2,700 GB/s"
                )
                for i in range(4)
            ),
            (
                "[COLLECTIVE] all_reduce over 4 GPUs, NCCL: 480 GB/s busbw at 1024 MiB, no "
                "wrong elements"
            ),
            "[TRAIN] resnet50 fp32 on 4 GPUs: 1,000 samples/s, 100 ms a step, loss 7.000 to 3.000",
            PASSED,
        ],
    )
    results = machine.results()
    assert (results["verdict"], results["train"], results["env"]) == ("pass", RESULTS, FACTS)
    assert [figures["matmul_tflops"] for figures in results["compute"]] == [700.0] * 4


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0123, "0.0123"), (4.5, "4.50"), (99.96, "100"), (480.5, "480"), (999.6, "1,000"), (2700, "2,700"),
     (1_234_567, "1,234,567")],
)  # fmt: skip
def test_figures_are_printed_without_an_exponent(value: float, shown: str) -> None:
    assert (check_module().figure(value), number(value)) == (shown, shown)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("while True: print('x' * 65536)", "did not end within 2 s"),
        ("raise SystemExit('no driver')", "no driver"),
        ("import os; os.abort()", "ended by SIGABRT"),
    ],
)
def test_failed_or_hanging_probe_does_not_pass(machine: Machine, answer: str, reason: str) -> None:
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
        (
            "os.kill(os.getpid(), 9)",
            1,
            "fail: TRAIN: rank 1: ended by SIGKILL (out of memory, or killed by hand)",
        ),
        ("os.kill(os.getpid(), signal.SIGSTOP)", 3, "inconclusive: TRAIN: rank 1: is stopped"),
        ("sys.exit('CUDA out of memory')", 1, "fail: TRAIN: rank 1: CUDA out of memory"),
        ("pass", 3, "inconclusive: TRAIN: did not end within 2 s"),
    ],
    ids=["aborted", "killed", "stopped", "out of memory", "hangs"],
)
def test_a_rank_that_breaks_training_is_named(
    machine: Machine, ends: str, status: int, reason: str
) -> None:
    machine.has(training=RANK_1.format(ends))
    assert machine.check("--allow-no-gpu", "--timeout-s", "2")[1][-1] == f"[RESULT] {reason}"
    assert machine.results()["verdict"] == reason.partition(":")[0]


def test_only_local_rank_0_checks_the_machine(machine: Machine) -> None:
    """Other local ranks print nothing, and processes that the check starts do not inherit the
    launcher's variables.
    """
    machine.has(
        training=f"import os; assert not {{'SLURM_PROCID', 'TORCHELASTIC_RUN_ID'}} & "
        f"os.environ.keys()\n{TRAIN}"
    )
    torchrun = {
        "TORCHELASTIC_RUN_ID": "x",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "1",
    }
    assert machine.check(environment={**torchrun, "LOCAL_RANK": "1"}) == (0, [])
    assert machine.check("--allow-no-gpu", environment={**torchrun, "LOCAL_RANK": "0"})[0] == 0


def test_check_ended_by_sigterm_ends_its_ranks(machine: Machine) -> None:
    machine.has(
        training="import os, pathlib, time\npathlib.Path(f'rank-{os.getpid()}').touch()\n"
        "time.sleep(60)"
    )
    child = subprocess.Popen(
        machine.command("--allow-no-gpu"),
        env=machine.environment(),
        cwd=machine.work,
        stdout=subprocess.DEVNULL,
    )
    while not list(machine.work.glob("rank-*")):
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    assert child.wait() == 128 + signal.SIGTERM
    for started in machine.work.glob("rank-*"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(started.name.removeprefix("rank-")), 0)


def test_a_check_that_is_ended_while_it_starts_ranks_ends_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def popen_and_end(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **options))
        os.kill(os.getpid(), signal.SIGTERM)
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", popen_and_end)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with pytest.raises(SystemExit):
            processes.run(["sleep", "60"], 60, ranks=2)
    finally:
        signal.signal(signal.SIGTERM, before)
        alive = [process for process in started if process.poll() is None]
        for process in started:
            process.kill()
            process.wait()  # its output is read, and closed, by threads
    assert (len(started), alive) == (2, [])


def test_results_that_cannot_be_written_change_no_verdict(machine: Machine) -> None:
    done = subprocess.run(
        machine.command("--allow-no-gpu", "--results", "/nowhere/results.json"),
        env=machine.environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        0,
        "check: /nowhere/results.json cannot be written: No such file or directory\n",
    )
