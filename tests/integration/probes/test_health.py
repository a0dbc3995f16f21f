"""The check for schedulers: one line, the exit status that each expects, and an end in time
whatever hangs.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.probes.conftest import Load
from tests.integration.probes.test_inventory import NVIDIA_SMI, amd_tools

DEPLOYMENTS = Path(__file__).parents[3] / "deployments"


def check(
    probes: Path, *options: str, nvidia_smi: str | None = None, **env: str
) -> tuple[int, str]:
    """The exit status and all that is printed, with that program as nvidia-smi and no other command
    to call.
    """
    folder = probes / "bin"
    folder.mkdir(exist_ok=True)
    for name in ("nvidia-smi", "rocm-smi", "amd-smi", "sinfo", "scontrol", "squeue", "curl"):
        script = (
            nvidia_smi
            if name == "nvidia-smi" and nvidia_smi
            else f"#!/bin/sh\necho {name} >>{probes}/called\nexit 9\n"
        )
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    argv = [sys.executable, str(probes / "check.py"), "--fast", *options]
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **env}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


def test_faults_reported_by_nvidia_smi_fail_the_check_in_one_line(probes: Path) -> None:
    status, line = check(probes, "slurm", "--gpus", "2", nvidia_smi=NVIDIA_SMI)
    assert status == 1
    assert line.startswith(
        "seatrial fault: gpu-0 asks for recovery: Reset; gpu-0 has 1 of 2 NVLinks down; "
        "gpu-1 has 2 un"
    )
    assert line.count("\n") == 1
    assert check(probes, "kubernetes", "--gpus", "2", nvidia_smi=NVIDIA_SMI)[0] == 1


def test_a_gpu_or_port_that_is_missing_is_a_fault(probes: Path) -> None:
    assert check(probes, "slurm", "--gpus", "4", nvidia_smi=NVIDIA_SMI)[1].startswith(
        "seatrial fault: 2 of 4 GPUs; "
    )
    status, line = check(probes, "slurm", "--ports", "99")
    assert status == 1
    assert " of 99 ports are active" in line


NO_LINK_UP = "NVML: Unable to retrieve NVLink information as all links are inActive"
UP, DOWN = "\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s", "\t Link 0: <inactive>"


@pytest.mark.parametrize(
    ("first", "second", "faults"),
    [
        (UP, NO_LINK_UP, ["gpu-1 has 2 of 2 NVLinks down"]),
        (UP, DOWN, ["gpu-1 has 1 of 1 NVLinks down"]),
        (NO_LINK_UP, NO_LINK_UP, []),
        (DOWN, DOWN, []),
    ],
)
def test_a_gpu_without_links_is_a_fault_where_others_have_some(
    load: Load, monkeypatch: pytest.MonkeyPatch, first: str, second: str, faults: list[str]
) -> None:
    """PCIe cards without a bridge have none."""
    health = load("health")
    lines = f"GPU 0: A (UUID: GPU-00000000)\n{first}\nGPU 1: A (UUID: GPU-11111111)\n{second}"
    links = health.inventory.nvlinks(lines.splitlines())
    gpus = [
        {"name": f"gpu-{i}", "pci": "", "rows_failed": False, "nvlinks": links.get(uuid, [])}
        for i, uuid in enumerate(("GPU-00000000", "GPU-11111111"))
    ]
    monkeypatch.setattr(health.inventory, "gpu_list", lambda _: gpus)
    monkeypatch.setattr(health.inventory, "kernel_log", lambda *_: None)
    assert health.look(2, 0, 0.0)[0] == faults


def test_gpus_of_amd_are_counted_and_their_faults_told(probes: Path, tmp_path: Path) -> None:
    assert check(probes, "slurm", "--gpus", "1", **amd_tools(tmp_path, "rocm-7.1")) == (
        1,
        "seatrial fault: gpu-0 has 1 of 7 XGMI links down\n",
    )
    assert check(probes, "slurm", "--gpus", "2", **amd_tools(tmp_path, "rocm-smi-6.0"))[
        1
    ].startswith("seatrial ok: 2 GPUs without a fault")


def test_gpus_of_amd_on_the_bus_without_an_answer_of_a_tool_are_no_fault(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host bridge is of AMD too."""
    health = load("health")
    for number, pci_class in enumerate(("0x120000", "0x038000", "0x060000")):
        device = tmp_path / f"bus/pci/devices/0000:0{number}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x1002\n")
        (device / "class").write_text(f"{pci_class}\n")
    monkeypatch.setattr(health.ports, "SYS", str(tmp_path))
    monkeypatch.setattr(health.inventory, "gpu_list", lambda _: [])
    assert health.look(2, 0, 0.0)[:2] == ([], ["neither nvidia-smi nor amd-smi lists a GPU"])
    assert health.look(3, 0, 0.0)[0] == ["2 of 3 GPUs"]


def test_check_calls_only_gpu_tools(probes: Path) -> None:
    check(probes, "slurm")
    called = (probes / "called").read_text().split() if (probes / "called").exists() else []
    assert set(called) <= {"nvidia-smi", "rocm-smi", "amd-smi"}


@pytest.mark.parametrize(("scheduler", "status"), [("slurm", 0), ("kubernetes", 2)])
def test_a_hanging_tool_is_no_fault_and_the_check_ends_in_time(
    probes: Path, scheduler: str, status: int
) -> None:
    began = time.monotonic()
    ended, line = check(probes, scheduler, nvidia_smi="#!/bin/sh\nexec sleep 300\n")
    assert time.monotonic() - began < 30  # 9 s, on a machine that is busy
    assert ended in (status, 0)
    assert line.startswith(("seatrial not known: ", "seatrial ok: 0 GPUs"))


@pytest.mark.parametrize(
    ("faults", "unknown", "status", "line"),
    [
        ([], [], {"slurm": 0, "kubernetes": 0}, "seatrial ok: seen"),
        ([], ["a"], {"slurm": 0, "kubernetes": 2}, "seatrial not known: a"),
        (["a", "b"], ["c"], {"slurm": 1, "kubernetes": 1}, "seatrial fault: a; b"),
        (
            ["\x1b[31m" + "x" * 400],
            [],
            {"slurm": 1, "kubernetes": 1},
            "seatrial fault: [31m" + "x" * 236 + "...",
        ),
    ],
)
def test_result_line_and_exit_status_follow_the_scheduler(
    load: Load,
    capsys: pytest.CaptureFixture[str],
    faults: list[str],
    unknown: list[str],
    status: dict[str, int],
    line: str,
) -> None:
    health = load("health")
    for scheduler, expected in status.items():
        assert health.report(scheduler, faults, unknown, "seen") == expected
        assert capsys.readouterr().out == f"{line}\n"


def test_old_and_harmless_xids_are_no_faults(load: Load) -> None:
    xids = [
        {"kind": "Xid", "number": 79, "pci": "0000:1b:00", "age_s": 10.0},
        {"kind": "Xid", "number": 79, "pci": "0000:1c:00", "age_s": 7200.0},
        {"kind": "Xid", "number": 13, "pci": "0000:1d:00", "age_s": 1.0},
    ]
    assert list(load("health").of_kernel(xids)) == ["Xid 79 at 0000:1b:00"]


def test_errors_of_an_nvswitch_that_are_not_fatal_are_no_faults(load: Load) -> None:
    switch = {"kind": "SXid", "pci": "0000:c1:00.0", "age_s": 1.0}
    egress = (
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 44 egress non-posted"
    )
    ltssm = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    errors = [
        {**switch, "number": 12028, "text": egress},
        {**switch, "number": 20034, "text": ltssm},
    ]
    assert list(load("health").of_kernel(errors)) == ["SXid 20034 at 0000:c1:00.0"]


def test_shipped_hooks_call_the_check_with_its_options() -> None:
    script = (DEPLOYMENTS / "slurm/check.sh").read_text()
    plugin = (DEPLOYMENTS / "kubernetes/node-problem-detector.json").read_text()
    assert "check.pyz --fast slurm --gpus 8 --ports 8" in script
    assert '["--fast", "kubernetes", "--gpus", "8", "--ports", "8"]' in plugin
