"""The probe `devices` on this machine's processors."""

import inspect
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.devices.answers import DeviceMeasurement, DevicesAnswer
from seatrial.remote.answers import read_answer

GPU = any(Path("/dev").glob("nvidia[0-9]*"))


@pytest.fixture
def program(probes: Path) -> Path:
    return probes / "devices.py"


def start(program: Path, *options: str, **env: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, str(program), *options]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})


def answer_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    document: dict[str, Any] = json.loads(output)
    return document


def measured(program: Path) -> DeviceMeasurement:
    """The processors, as the probe measures them."""
    document = answer_of(start(program, "--seconds", "0.05", CUDA_VISIBLE_DEVICES=""))
    (cpu,) = read_answer(DevicesAnswer, json.dumps(document)).devices
    return cpu


def test_probe_measures_the_cpu_of_the_node(program: Path) -> None:
    cpu = measured(program)
    assert (cpu.device, cpu.dtype, cpu.size, cpu.problem()) == ("cpu", "float32", 1024, None)
    assert len(cpu.matmul_tflops) >= 5
    assert {m.metric for m in cpu.measurements("node-0")} == {"matmul", "memory_copy"}


def test_nodes_on_one_machine_take_turns_measuring(program: Path) -> None:
    """While one process holds the lock of the machine, another gives up at its timeout without
    measuring.
    """
    holder = """if True:
        import fcntl, runpy, sys, time
        lock = runpy.run_path(sys.argv[1])["MachineLock"]()
        assert lock.acquire(fcntl.LOCK_EX, time.monotonic())
        print("held", flush=True)
        sys.stdin.read()
    """
    argv = [sys.executable, "-c", holder, str(program.with_name("machine_lock.py"))]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout
        assert held.stdout.readline() == "held\n"
        waiting = start(program, "--timeout-s", "0.2", CUDA_VISIBLE_DEVICES="")
        assert answer_of(waiting) == {"devices": []}
        held.communicate(timeout=60)


def test_probes_do_not_wait_for_a_stopped_process_that_holds_the_lock(program: Path) -> None:
    """Processes that would wait for the stopped one take another lock, one after another."""
    holder = """if True:
        import fcntl, runpy, sys, time
        lock = runpy.run_path(sys.argv[1])["MachineLock"]()
        lock.acquire.__globals__["SILENT_S"] = 1.5
        print(lock.acquire(fcntl.LOCK_EX, time.monotonic() + 60), lock.number, flush=True)
        sys.stdin.read()
    """
    argv = [sys.executable, "-c", holder, str(program.with_name("machine_lock.py"))]

    def started() -> "subprocess.Popen[str]":
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with started() as stopped:
        try:
            assert stopped.stdout
            assert stopped.stdout.readline() == "True 0\n"
            stopped.send_signal(signal.SIGSTOP)
            with started() as second, started() as third:
                streams = {process.stdout: process for process in (second, third) if process.stdout}
                (stream, *more), _, _ = select.select(streams, [], [], 60)
                assert (stream.readline(), more) == ("True 1\n", [])
                next_stream = next(other for other in streams if other is not stream)
                streams[stream].communicate(timeout=60)
                assert next_stream.readline() == "True 1\n"
                streams[next_stream].communicate(timeout=60)
        finally:
            stopped.kill()


def without(program: Path, *packages: str) -> None:
    """Python next to the program finds these packages missing."""
    for package in packages:
        (program.parent / f"{package}.py").write_text(
            f"raise ModuleNotFoundError('no {package} here')"
        )


@pytest.mark.skipif(GPU, reason="GPUs need torch")
def test_processors_are_measured_without_torch(program: Path) -> None:
    without(program, "torch")
    assert measured(program).library == "numpy"


@pytest.mark.skipif(GPU, reason="GPUs need torch")
def test_without_numpy_torch_measures_the_processors(program: Path) -> None:
    without(program, "numpy")
    cpu = measured(program)
    assert (cpu.library, cpu.problem()) == ("torch", None)


def test_a_node_that_should_have_gpus_is_measured_with_torch(program: Path) -> None:
    without(program, "torch")
    assert answer_of(start(program, "--gpus", "1")) == {
        "error": "torch cannot be imported: no torch here"
    }


def test_changed_product_or_copy_is_detected(device: Any) -> None:
    """Changes the target of the copy and the repeated product behind the back of each library."""
    for name in ("product", "copy"):
        work, same = getattr(device, name)()
        work(2)
        assert same()
        result = work_target(work)
        result[0] += 1
        assert not same()
        work(1)
        assert same()


def work_target(work: Any) -> Any:
    """The array or tensor that the function writes to."""
    cells = inspect.getclosurevars(work).nonlocals
    if "work" in cells:  # TorchDevice.repeat
        return work_target(cells["work"])
    return (
        cells["product"]
        if "product" in cells
        else cells["parts"][0][0]
        if "parts" in cells
        else cells["target"]
    )


def test_without_numpy_and_torch_the_probe_says_so(program: Path) -> None:
    without(program, "numpy", "torch")
    assert answer_of(start(program)) == {"error": "torch cannot be imported: no torch here"}
