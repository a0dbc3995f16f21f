"""The probe's part `ports`: a recorded sysfs tree of a node with GPU and NIC below one PCIe
switch.
"""

import json
from pathlib import Path
from types import ModuleType

import pytest

from seatrial.checks.connectivity.slow_paths import slow_paths
from seatrial.remote.answers import read_answer
from seatrial.remote.node_probe import Inventory
from tests.integration.probes.conftest import Load

# Root port, upstream port, downstream port
SWITCH = "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0"
GPU, NIC = "0000:1b:00.0", "0000:18:00.0"


@pytest.fixture
def ports(load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    module = load("ports")
    monkeypatch.setattr(module, "SYS", str(tmp_path))
    return module


def configuration(*, relaxed: bool = True, acs: int | None = None, size: int = 4096) -> bytes:
    """A PCI configuration: power management, then PCIe; ACS behind AER where `acs` is its control
    register.
    """
    space = bytearray(4096)
    space[0x34] = 0x40
    space[0x40:0x42] = bytes((0x01, 0x60))
    space[0x60:0x62] = bytes((0x10, 0x00))
    space[0x68] = 0x5F if relaxed else 0x4F
    space[0x100:0x104] = (0x0001 | 2 << 16 | (0x150 << 20 if acs is not None else 0)).to_bytes(
        4, "little"
    )
    if acs is not None:
        space[0x150:0x154] = (0x000D | 1 << 16).to_bytes(4, "little")
        space[0x156] = acs
    return bytes(space[:size])


def tree(
    root: Path, *, acs: int | None, nic: bytes, iommu: str = "identity", lanes: str = "16"
) -> None:
    """As Linux 6.8 shows a ConnectX-7 and a GPU below a switch."""
    switch = root / "devices" / SWITCH
    device = switch / NIC
    port = device / "infiniband/mlx5_0/ports/1"
    for folder in (
        switch / GPU,
        port / "counters",
        port / "hw_counters",
        device / "iommu_group",
        root / "bus/pci",
    ):
        folder.mkdir(parents=True)
    for name, bridge in (
        ("15:01", switch.parents[1]),
        ("16:00", switch.parents[0]),
        ("17:00", switch),
    ):
        (bridge / "config").write_bytes(configuration(acs=acs if name != "15:01" else 0x1D))
    (device / "config").write_bytes(nic)
    values = {
        device: {"current_link_width": lanes, "max_link_width": "16", "numa_node": "0"},
        port: {"link_layer": "InfiniBand", "state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)"},
        port / "counters": {
            "symbol_error": "3",
            "link_downed": "1",
            "port_xmit_discards": "7",
            "port_xmit_wait": "99",
        },
        port / "hw_counters": {
            "packet_seq_err": "12",
            "rx_icrc_encapsulated": "0",
            "lifespan": "10",
        },
        device / "iommu_group": {"type": iommu},
    }
    for which in ("current", "max"):
        values[device][f"{which}_link_speed"] = "32.0 GT/s PCIe"
    for folder, files in values.items():
        for name, text in files.items():
            (folder / name).write_text(text + "\n")
    for name in ("class/infiniband", "bus/pci/devices"):
        (root / name).mkdir(parents=True)
    (root / "class/infiniband/mlx5_0").symlink_to(device / "infiniband/mlx5_0")
    (device / "infiniband/mlx5_0/device").symlink_to(device)
    for address in (NIC, GPU):
        (root / "bus/pci/devices" / address).symlink_to(switch / address)


def node(ports: ModuleType) -> Inventory:
    """What the probe would print of it, as the control host reads it."""
    fields = {
        "gpus": [{"name": "gpu-0"}],
        "ports": ports.infiniband_ports(),
        "gpudirect": "none",
        "redirecting_switches": ports.redirecting_switches({GPU} | ports.rdma_addresses()),
    }
    return read_answer(Inventory, json.dumps(fields))


def test_a_port_is_listed_with_its_counters_and_its_pcie_link(
    ports: ModuleType, tmp_path: Path
) -> None:
    tree(tmp_path, acs=None, nic=configuration())
    (port,) = node(ports).ports
    assert (port.port, port.kind, port.up, port.gbit_s, port.numa) == (
        "mlx5_0/1",
        "InfiniBand",
        True,
        400,
        0,
    )
    assert port.errors == {"symbol_error": 3, "link_downed": 1, "rx_icrc_encapsulated": 0}
    assert port.losses == {"port_xmit_discards": 7, "packet_seq_err": 12}
    assert (port.pcie_width, port.pcie_width_max, port.pcie_gt_s, port.pcie_gt_s_max) == (
        16,
        16,
        32,
        32,
    )
    assert (port.iommu, port.relaxed_ordering) == ("identity", True)


def test_each_cause_of_a_slow_pcie_path_has_a_code(ports: ModuleType, tmp_path: Path) -> None:
    tree(tmp_path, acs=0x1D, nic=configuration(relaxed=False), iommu="DMA-FQ", lanes="8")
    remarks = list(slow_paths({"node-1": node(ports)}))
    assert {remark.code: str(remark) for remark in remarks} == {
        "acs-redirects": "PCIe ACS redirects traffic between peers on node-1 (2 switch ports)",
        "gpudirect-missing": "node-1 cannot use GPUDirect RDMA: nvidia-peermem is not loaded, and the driver has no"
        " DMA-BUF",
        "iommu-translates": "the IOMMU translates DMA of node-1/mlx5_0/1",
        "nic-strict-ordering": "PCIe relaxed ordering is disabled for node-1/mlx5_0/1",
        "nic-pcie-slow": "the PCIe link of node-1/mlx5_0/1 runs at x8 32 GT/s, could at x16 32 GT/s",
    }


@pytest.mark.parametrize(("acs", "switches"), [(None, 0), (0x00, 0), (0x11, 0), (0x1D, 2)])
def test_acs_is_reported_only_if_it_redirects(
    ports: ModuleType, tmp_path: Path, acs: int | None, switches: int
) -> None:
    """Source validation alone does not, and a root port (0x1D here) is on no path between peers."""
    tree(tmp_path, acs=acs, nic=configuration())
    assert node(ports).redirecting_switches == switches


@pytest.mark.parametrize(
    "config", [b"", b"\0" * 63, configuration(size=64), b"\xff" * 4096, b"\x40" * 4096]
)
def test_an_unreadable_pci_configuration_reports_nothing(
    ports: ModuleType, tmp_path: Path, config: bytes
) -> None:
    """Of a user who is not root, of a device that has fallen off the bus, and one whose
    capabilities go in a circle.
    """
    tree(tmp_path, acs=None, nic=config)
    (tmp_path / "devices" / SWITCH / "config").write_bytes(config)
    assert node(ports).ports[0].relaxed_ordering is None
    assert not node(ports).redirecting_switches


NVLINKS = {  # `nvidia-smi nvlink -e` of an H100, of two V100s by a newer driver, and of a B200
    """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-0000-0000-0000-000000000001)
\t Link 0: Replay Errors: 0
\t Link 0: Recovery Errors: 2
\t Link 0: CRC Errors: 0
""": {"GPU-11111111-0000-0000-0000-000000000001": {"NVLink 0 Recovery Errors": 2}},
    """GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-5261e3df-82f6-67b4-9953-4e63527e0e9d)
         Links 0-5: No errors

GPU 2: Tesla V100-SXM2-32GB (UUID: GPU-d9eeee97-c180-66de-23e0-d995387934dc)
         Link 0: CRC Errors: 8814
         Links 1-5: No errors
""": {
        "GPU-5261e3df-82f6-67b4-9953-4e63527e0e9d": {},
        "GPU-d9eeee97-c180-66de-23e0-d995387934dc": {"NVLink 0 CRC Errors": 8814},
    },
    """GPU 0: NVIDIA B200 (UUID: GPU-5261e3df-82f6-67b4-9953-4e63527e0e9d)
         Link 0: Tx packets: 4711
         Link 0: Malformed packet Errors: 0
         Link 0: Link recovery successful events: 1
         Link 0: Effective Errors: 4
         Link 0: Effective BER: 15e-255
         Link 0: Symbol Errors: 9
         Link 0: FEC Errors - 0: 1234567
""": {
        "GPU-5261e3df-82f6-67b4-9953-4e63527e0e9d": {
            "NVLink 0 Link recovery successful events": 1,
            "NVLink 0 Effective Errors": 4,
        }
    },
}


@pytest.mark.parametrize("text", NVLINKS)
def test_error_counters_of_nvlinks_are_listed(
    ports: ModuleType, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(ports, "lines_of", lambda *_, **__: text.splitlines())
    assert ports.nvlink_errors(1.0) == NVLINKS[text]
