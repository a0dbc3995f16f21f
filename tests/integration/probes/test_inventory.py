"""The probe `inventory`: this machine, and nvidia-smi's answers as drivers print them."""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from seatrial.causes.xid import meaning_of
from seatrial.checks.connectivity.inventory import driver_errors, impaired_gpus, remarks
from seatrial.remote.answers import read_answer
from seatrial.remote.node_probe import GpuState, Inventory
from tests.integration.probes.conftest import Load

# nvidia-smi of two H100s: what a query prints as csv,noheader,nounits. The first driver knows every
# field; the second is older and names the field that it does not know, with exit status 2.
NVIDIA_SMI = """#!/bin/sh
case "$1" in
--query-gpu=*clocks_event_reasons*)
    [ -n "$OLD" ] && { echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; echo; exit 2; } ;;
esac
case "$1" in
--query-gpu=*)
    echo "GPU-22222222-0000-0000-0000-000000000002, 00000000:5D:00.0, 96.00.61.00.01, Enabled, 2,\\
 0x0000000000000048, 1155, 1980, 700.00, 84, 8, 16, 5, Enabled,\\
 NVIDIA H100 80GB HBM3, 81559, 121.40, None, Completed, Success"
    echo "GPU-11111111-0000-0000-0000-000000000001, 00000000:1B:00.0, 96.00.61.00.01, [N/A], [N/A],\\
 0x0000000000000001, 345, 1980, [Not Supported], 31, 16, 16, 5, Enabled,\\
 NVIDIA H100 80GB HBM3, 81559, [N/A], Reset, N/A, N/A" ;;
--query-remapped-rows=*)
    echo "GPU-11111111-0000-0000-0000-000000000001, No, No"
    echo "GPU-22222222-0000-0000-0000-000000000002, Yes, No" ;;
--query-compute-apps=*)
    echo "GPU-22222222-0000-0000-0000-000000000002, 4711"
    echo "GPU-22222222-0000-0000-0000-000000000002, 4712" ;;
nvlink)
    [ "$2" = --errorcounters ] && { printf '%s' "$ERRORS"; exit; }
    echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-0000-0000-0000-000000000001)"
    printf '\\t Link 0: 26.562 GB/s\\n\\t Link 1: <inactive>\\n' ;;
esac
"""


# What amd-smi and rocm-smi print as JSON, by release
AMD = Path(__file__).parents[2] / "golden/amd"


@pytest.fixture
def probe(probes: Path) -> Path:
    return probes / "inventory.py"


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
        argv,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "PATH": path, **env},
    )
    return read_answer(Inventory, done.stdout)


def test_inventory_reports_disk_memlock_and_hugepages_of_this_machine(probe: Path) -> None:
    known = answer(probe)
    assert known.disk_free_gb
    assert known.memlock_kib
    assert known.hugepages is not None


@pytest.mark.parametrize("old", ["", "yes"])
def test_gpus_are_listed_in_the_order_of_their_addresses(probe: Path, old: str) -> None:
    """Also by a driver that calls a field by its older name."""
    first, second = answer(probe, NVIDIA_SMI, OLD=old).gpus
    assert (first.name, first.pci, first.ecc, first.ecc_uncorrected) == (
        "gpu-0",
        "00000000:1B:00.0",
        "",
        None,
    )
    assert (first.power_limit_w, first.slowdown, first.processes, first.nvlinks) == (
        None,
        [],
        0,
        [26.562, 0.0],
    )
    assert (second.name, second.vbios, second.ecc, second.ecc_uncorrected) == (
        "gpu-1",
        "96.00.61.00.01",
        "Enabled",
        2,
    )
    assert (second.model, second.memory_mib, second.power_w) == (
        "NVIDIA H100 80GB HBM3",
        81559,
        121.4,
    )
    assert second.slowdown == ["hardware slowdown", "thermal slowdown"]
    assert (second.pcie_width, second.pcie_width_max, second.temperature_c, second.processes) == (
        8,
        16,
        84,
        2,
    )
    assert (first.recovery, first.fabric_state) == ("Reset", "N/A")
    assert (second.recovery, second.fabric_state, second.fabric_status) == (
        "None",
        "Completed",
        "Success",
    )
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
def test_a_driver_that_does_not_answer_yields_no_gpu(probe: Path, output: str) -> None:
    assert answer(probe, f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit 9\n").gpus == []


@pytest.fixture
def inventory(load: Load) -> ModuleType:
    return load("inventory")


KERNEL_LINES = [  # seconds since boot, text
    (10.0, "NVRM: Xid (PCI:0000:1b:00): 31, pid=4711, name=python, Ch 00000008, intr 00000000"),
    (20.0, "NVRM: Xid (PCI:0000:1b:00): 31, pid=4712, name=python, Ch 00000008, intr 00000000"),
    (30.0, "NVRM: Xid (PCI:0000:9d:00): 79, pid=1, GPU has fallen off the bus."),
    (
        40.0,
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 44 egress "
            "non-posted PRIV error"
        ),
    ),
    (50.0, "usb 1-1: new device"),
    (
        60.0,
        (
            "NVRM: The NVIDIA GPU 0000:1b:00.0 (PCI ID: 10de:2330) has fallen off the bus "
            "and is not responding."
        ),
    ),
    (
        70.0,
        (
            "NVRM: The NVIDIA GPU 0000:9d:00.0 (PCI ID: 10de:2330) has fallen off the bus "
            "and is not responding."
        ),
    ),
    (
        80.0,
        (
            "pcieport 0000:15:01.0: AER: Uncorrectable (Fatal) error message received "
            "from 0000:18:00.0"
        ),
    ),
    (
        90.0,
        (
            "mlx5_core 0000:18:00.0: poll_health:800:(pid 0): device's health compromised "
            "- reached miss count"
        ),
    ),
]


def test_errors_of_these_gpus_and_of_switches_are_counted(inventory: ModuleType) -> None:
    xids, events = inventory.summed(KERNEL_LINES, {"0000:1b:00.0"}, {"0000:18:00.0"})
    assert [(error["kind"], error["number"], error["count"]) for error in xids] == [
        ("Xid", 31, 2),
        ("SXid", 12028, 1),
    ]
    assert xids[0]["age_s"] > 0
    assert [event["pci"] for event in events] == ["0000:1b:00", "0000:18:00", "0000:18:00"]
    node = read_answer(Inventory, json.dumps({"gpus": [], "xids": xids, "events": events}))
    text = "\n".join(map(str, driver_errors({"node-1": node})))
    assert "GPU fell off the bus" in text and "power-cycle the node" in text
    assert (
        "PCIe error that hardware could not correct" in text
        and "the NIC's firmware or hardware failed" in text
    )


def test_errors_of_amd_gpus_in_the_kernel_log_are_remarks(inventory: ModuleType) -> None:
    """No error of another GPU, none that was counted zero times."""
    texts = (
        "amdgpu 0000:1c:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        "amdgpu 0000:1c:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:1c:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:2c:00.0: amdgpu: GPU reset begin!",
        "amdgpu 0000:2c:00.0: amdgpu: GPU reset(1) succeeded!",
        "amdgpu 0000:3c:00.0: amdgpu: GPU reset begin!",
    )
    gpus = {"0000:1c:00.0", "0000:2c:00.0"}
    xids, events = inventory.summed([(1.0, text) for text in texts], gpus)
    node = read_answer(Inventory, json.dumps({"gpus": [], "xids": xids, "events": events}))
    assert [(event.pci, event.count) for event in node.events] == [
        ("0000:1c:00", 1),
        ("0000:1c:00", 1),
        ("0000:2c:00", 1),
    ]
    text = "\n".join(map(str, driver_errors({"node-1": node})))
    assert "AMD GPU: uncorrectable hardware error" in text
    assert "AMD GPU: it hangs" in text


def test_an_xid_is_listed_with_its_sub_code() -> None:
    lines = {
        145: (
            "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Fatal XC0 i0 Link 13 (0x0409a0c2 "
            "0x00000008 0x00000001)"
        ),
        154: (
            "NVRM: Xid (PCI:0018:01:00): 154, GPU recovery action changed from 0x0 (None) to "
            "0x1 (GPU Reset Required)"
        ),
        79: "NVRM: Xid (PCI:0018:01:00): 79, GPU has fallen off the bus.",
    }
    meanings = [meaning_of("Xid", number, text)[0] for number, text in lines.items()]
    assert meanings == [
        "NVLink 5 error: RLW_RXPIPE, Link 13",
        "GPU recovery action changed: GPU Reset Required",
        "GPU fell off the bus",
    ]


def test_a_line_that_is_long_is_read_quickly(inventory: ModuleType) -> None:
    lines = [
        (0.0, "NVRM: Xid (PCI:" + "0" * 1_000_000),
        (0.0, "fallen off the bus " + "0000:1b:00 " * 100_000),
    ]
    assert inventory.summed(lines, set()) == ([], [])


@pytest.mark.parametrize(
    ("pci", "short"),
    [("00000000:1B:00.0", "0000:1b:00.0"), ("0000:1B:00.0", "0000:1b:00.0"), ("", "")],
)
def test_pci_addresses_are_shortened_to_the_form_of_sysfs(
    inventory: ModuleType, pci: str, short: str
) -> None:
    assert inventory.short_address(pci) == short


def test_inventory_prints_one_line(probe: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(probe)], capture_output=True, text=True, check=True, timeout=120
    )
    assert list(json.loads(done.stdout))[:2] == ["gpus", "ports"]


def amd_tools(folder: Path, release: str) -> dict[str, str]:
    """A PATH whose amd-smi and rocm-smi print what that release does, behind a warning, and fail
    for the rest.
    """
    asked = f'[ "${{0##*/}}" = amd-smi ] && file="{release}-$1.json" || file={release}.json'
    return played(
        folder, f'{asked}\necho "WARNING: User is missing the group render"\ncat "{AMD}/$file"'
    )


def test_gpus_of_amd_are_told_by_amd_smi(probe: Path, tmp_path: Path) -> None:
    """In the order of their addresses, as ROCm 6 lists them."""
    first, second = answer(probe, **amd_tools(tmp_path, "rocm-6.3")).gpus
    assert (first.name, first.pci, second.pci) == ("gpu-0", "0000:0c:00.0", "0000:22:00.0")
    assert (first.model, first.vbios) == (
        "AMD Instinct MI300X",
        "113-M3000100-102 022.040.003.041.000001",
    )
    assert (first.ecc, first.ecc_uncorrected, second.ecc_uncorrected) == ("Enabled", 2, 0)
    assert first.slowdown == ["hardware slowdown", "thermal slowdown"]
    assert second.slowdown == [], "a power cap is no fault"
    assert (first.clock_mhz, first.clock_max_mhz, first.temperature_c) == (133, 2100, 84)
    assert (first.power_w, first.power_limit_w, first.memory_mib) == (131, 750, 196_592)
    assert (first.pcie_width, first.pcie_width_max, first.pcie_gen_max) == (8, 16, 5)
    assert (first.processes, second.processes) == (2, 0), "one holds no memory of it"
    assert (first.nvlinks, first.rows_failed) == ([], None), "this release does not tell of links"


def test_amd_smi_need_not_be_on_path(
    inventory: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ROCm's packages put it into a folder of their own."""
    amd_tools(tmp_path, "rocm-7.1")
    monkeypatch.setattr(inventory.amd_gpus, "ROCM", f":{tmp_path}")
    (gpu,) = inventory.amd_gpus.gpu_list(time.monotonic() + 60)
    assert gpu["model"] == "AMD Instinct MI350X"


def test_gpus_of_amd_are_told_by_a_later_amd_smi(probe: Path, tmp_path: Path) -> None:
    """ROCm 7 wraps the list, moves the power limit, and renames the VBIOS."""
    (gpu,) = answer(probe, **amd_tools(tmp_path, "rocm-7.1")).gpus
    assert (gpu.model, gpu.vbios, gpu.ecc) == (
        "AMD Instinct MI350X",
        "113-M350-01-1K0-920A 00154951",
        "Enabled",
    )
    assert (gpu.power_limit_w, gpu.memory_mib, gpu.processes) == (900, 294_896, 0)
    assert (len(gpu.nvlinks), gpu.nvlinks.count(0)) == (7, 1)
    assert gpu.slowdown == []


def test_gpus_of_amd_are_told_by_rocm_smi_where_amd_smi_does_not_answer(
    probe: Path, tmp_path: Path
) -> None:
    first, second = answer(probe, **amd_tools(tmp_path, "rocm-smi-6.0")).gpus
    assert (first.pci, first.model, first.vbios) == (
        "0000:c6:00.0",
        "AMD Instinct MI250X",
        "113-D65201-042",
    )
    assert (first.power_w, second.power_w, second.power_limit_w) == (None, 91, 560)
    assert (second.temperature_c, second.clock_mhz, round(second.memory_mib or 0)) == (
        47,
        800,
        65_520,
    )
    assert (first.pcie_width, second.pcie_width, first.slowdown, first.ecc_uncorrected) == (
        8,
        16,
        None,
        None,
    )


def test_nodes_of_amd_that_differ_are_named(probe: Path, tmp_path: Path) -> None:
    """As those of NVIDIA are: who reports damage is a suspect, and who is equipped otherwise is a
    remark.
    """
    usual, other = (
        answer(probe, **amd_tools(tmp_path, release)) for release in ("rocm-7.1", "rocm-6.3")
    )
    nodes = {"node-0": usual, "node-1": usual, "node-2": other}
    blamed = [(suspect.name, suspect.evidence.code) for suspect in impaired_gpus(nodes)]
    assert blamed == [("node-2/gpu-0", "gpu-ecc-uncorrected"), ("node-2/gpu-0", "gpu-slowed-down")]
    text = "\n".join(map(str, remarks(nodes, {})))
    assert "GPU model of node-2 is AMD Instinct MI300X, AMD Instinct MI350X on 2 of 3 nodes" in text
    assert "power limit of node-2 is 750 W, 900 W on 2 of 3 nodes" in text
    assert "node-2/gpu-0: its PCIe link has 8 of 16 lanes" in text
    assert "1 of 7 links to other GPUs are down" in text


@pytest.mark.parametrize(
    "output",
    [
        "",
        "[",
        "[1, null, []]",
        '{"gpu_data": {"gpu": 0}}',
        '[{"gpu": "0"}]',
        '{"card0": "none", "system": 3}',
        "[" * 100_000,
        "x\n" * 100_000,
    ],
    ids=lambda output: output[:20],
)
def test_unknown_output_of_amd_tools_yields_no_gpu(
    inventory: ModuleType, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    assert gpus_of_amd(inventory, monkeypatch, output) == []


@pytest.mark.parametrize(
    "value", ["null", "[]", '"N/A"', "{}", "-1", "1e400", "true", '{"value": "N/A"}', '"\\u0000"']
)
def test_an_amd_gpu_without_known_properties_is_listed(
    inventory: ModuleType, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """Whatever stands in the place of a part or of a number."""
    parts = (
        "asic",
        "bus",
        "vbios",
        "limit",
        "ras",
        "vram",
        "power",
        "clock",
        "temperature",
        "pcie",
        "ecc",
        "throttle",
    )
    whole = ", ".join(f'"{part}": {value}' for part in (*parts, "process_list", "link_status"))
    numbers = (
        f'"pcie": {{"width": {value}}}, "clock": {{"gfx_0": {value}}}, "process_list": [{value}]'
    )
    for fields in (whole, numbers):
        (gpu,) = gpus_of_amd(inventory, monkeypatch, f'[{{"gpu": 0, {fields}}}]')
        assert (gpu.name, gpu.model, gpu.pcie_width, gpu.processes) == ("gpu-0", "", None, 0)


def gpus_of_amd(
    inventory: ModuleType, monkeypatch: pytest.MonkeyPatch, output: str
) -> list[GpuState]:
    """What is made of tools that print this, whatever they are asked."""
    monkeypatch.setattr(inventory.amd_gpus, "text_of", lambda *_, **__: output)
    return read_answer(
        Inventory, json.dumps({"gpus": inventory.amd_gpus.gpu_list(time.monotonic() + 60)})
    ).gpus


def played(folder: Path, command: str) -> dict[str, str]:
    """A PATH whose amd-smi and rocm-smi are that command."""
    for name in ("amd-smi", "rocm-smi"):
        (folder / name).write_text(f"#!/bin/sh\n{command}\n")
        (folder / name).chmod(stat.S_IRWXU)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}
