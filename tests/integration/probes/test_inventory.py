"""The probe `inventory`: this machine, and nvidia-smi's answers as drivers print them."""

import importlib
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from seatrial.remote.answers import read_answer
from seatrial.remote.inventory import Inventory
from seatrial.remote.probes import PROBES
from tests.integration.probes.launched import PROBE_FOLDER

# nvidia-smi of two H100s: what a query prints as csv,noheader,nounits. The first driver knows every field; the second
# is older and names the field that it does not know, with exit status 2.
NVIDIA_SMI = """#!/bin/sh
case "$1" in
--query-gpu=*clocks_event_reasons*)
    [ -n "$OLD" ] && { echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; echo; exit 2; } ;;
esac
case "$1" in
--query-gpu=*)
    echo "GPU-22222222-0000-0000-0000-000000000002, 00000000:5D:00.0, 96.00.61.00.01, Enabled, 2,\\
 0x0000000000000048, 1155, 1980, 700.00, 84, 8, 16, 5, Enabled"
    echo "GPU-11111111-0000-0000-0000-000000000001, 00000000:1B:00.0, 96.00.61.00.01, [N/A], [N/A],\\
 0x0000000000000001, 345, 1980, [Not Supported], 31, 16, 16, 5, Enabled" ;;
--query-remapped-rows=*)
    echo "GPU-11111111-0000-0000-0000-000000000001, No, No"
    echo "GPU-22222222-0000-0000-0000-000000000002, Yes, No" ;;
--query-compute-apps=*)
    echo "GPU-22222222-0000-0000-0000-000000000002, 4711"
    echo "GPU-22222222-0000-0000-0000-000000000002, 4712" ;;
nvlink)
    echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-0000-0000-0000-000000000001)"
    printf '\\t Link 0: 26.562 GB/s\\n\\t Link 1: <inactive>\\n' ;;
esac
"""


@pytest.fixture
def probe(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for path in PROBES:
        shutil.copy(path, folder)
    return folder / "inventory.py"


def answer(probe: Path, nvidia_smi: str | None = None, **env: str) -> Inventory:
    """What it prints, with that program as nvidia-smi."""
    path = os.environ["PATH"]
    if nvidia_smi is not None:
        program = probe.parent.parent / "nvidia-smi"
        program.write_text(nvidia_smi)
        program.chmod(stat.S_IRWXU)
        path = f"{program.parent}:{path}"
    argv = [sys.executable, "-S", str(probe)]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=True, timeout=120, env={**os.environ, "PATH": path, **env}
    )
    return read_answer(Inventory, done.stdout)


def test_this_machine_is_described(probe: Path) -> None:
    known = answer(probe)
    assert known.disk_free_gb
    assert known.memlock_kib
    assert known.hugepages is not None


@pytest.mark.parametrize("old", ["", "yes"])
def test_gpus_are_told_in_the_order_of_their_addresses(probe: Path, old: str) -> None:
    """Also by a driver that calls a field by its older name."""
    first, second = answer(probe, NVIDIA_SMI, OLD=old).gpus
    assert (first.name, first.pci, first.ecc, first.ecc_uncorrected) == ("gpu-0", "00000000:1B:00.0", "", None)
    assert (first.power_limit_w, first.slowdown, first.processes, first.nvlinks) == (None, [], 0, [26.562, 0.0])
    assert (second.name, second.vbios, second.ecc, second.ecc_uncorrected) == ("gpu-1", "96.00.61.00.01", "Enabled", 2)
    assert second.slowdown == ["hardware slowdown", "thermal slowdown"]
    assert (second.pcie_width, second.pcie_width_max, second.temperature_c, second.processes) == (8, 16, 84, 2)
    assert (second.rows_pending, second.rows_failed, first.rows_pending) == (True, False, False)


@pytest.mark.parametrize(
    "output",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "No devices were found",
        'Field "uuid" is not a valid field to query.',
        'Field "../../etc" is not a valid field to query.',
        "GPU-1, 2, 3",
    ],
)
def test_a_driver_that_does_not_answer_is_no_gpu(probe: Path, output: str) -> None:
    assert answer(probe, f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit 9\n").gpus == []


@pytest.fixture
def inventory(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(PROBE_FOLDER)
    return importlib.import_module("inventory")


def test_errors_of_these_gpus_and_of_switches_are_counted(inventory: ModuleType) -> None:
    lines = [
        (10.0, "NVRM: Xid (PCI:0000:1b:00): 31, pid=4711, name=python, Ch 00000008, intr 00000000"),
        (20.0, "NVRM: Xid (PCI:0000:1b:00): 31, pid=4712, name=python, Ch 00000008, intr 00000000"),
        (30.0, "NVRM: Xid (PCI:0000:9d:00): 79, pid=1, GPU has fallen off the bus."),
        (40.0, "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 44 egress non-posted PRIV error"),
        (50.0, "usb 1-1: new device"),
    ]
    seen: list[dict[str, Any]] = inventory.summed(lines, {"0000:1b:00.0"})
    assert [(error["kind"], error["number"], error["count"]) for error in seen] == [("Xid", 31, 2), ("SXid", 12028, 1)]
    assert seen[0]["age_s"] > 0


def test_a_line_that_is_long_is_read_quickly(inventory: ModuleType) -> None:
    assert inventory.summed([(0.0, "NVRM: Xid (PCI:" + "0" * 1_000_000)], set()) == []


@pytest.mark.parametrize(
    ("pci", "short"), [("00000000:1B:00.0", "0000:1b:00.0"), ("0000:1B:00.0", "0000:1b:00.0"), ("", "")]
)
def test_addresses_as_sysfs_has_them(inventory: ModuleType, pci: str, short: str) -> None:
    assert inventory.short_address(pci) == short


def test_it_prints_one_line(probe: Path) -> None:
    done = subprocess.run([sys.executable, str(probe)], capture_output=True, text=True, check=True, timeout=120)
    assert list(json.loads(done.stdout))[:2] == ["gpus", "ports"]
