"""Ports of this node with their error counters, and the PCIe path between them and the GPUs.

Standard library only.

Files and names are those of the kernel's ABI: Documentation/ABI/stable/sysfs-class-infiniband and
testing/sysfs-class-net-statistics, sysfs-bus-pci, sysfs-kernel-iommu_groups. PCIe capabilities: PCI
Express Base Specification, 7.5.3 and 7.7.11; only root reads more of them than their first 64
bytes.
"""

import glob
import os
import re

from facts import first_line, lines_of

SYS = "/sys"
RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
# Counters of bad links; below, counters of packets lost on this link or elsewhere.
LINK_ERRORS = [
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "rx_icrc_encapsulated",
]
PACKET_LOSSES = [
    "port_xmit_discards",
    "local_ack_timeout_err",
    "packet_seq_err",
    "rnr_nak_retry_err",
]
OF_NETWORK = {
    "carrier_changes": "carrier_changes",
    "rx_errors": "statistics/rx_errors",
    "tx_errors": "statistics/tx_errors",
}
# For NVLink 5, `nvidia-smi nvlink -e` also prints symbol errors and a histogram of corrected ones,
# which always rise.
NVLINK_ERROR = re.compile(
    r"\s*Links? (\d{1,3}(?:-\d{1,3})?): ((?:Replay|Recovery|CRC|Malformed packet|Buffer "
    "overrun|Rx(?: remote| General)?"
    "|Local link integrity|Effective) Errors|Tx discards|Link recovery (?:failed|successful) "
    r"events): (\d{1,18})\s*$"
)
NVLINKS_OF = re.compile(r"GPU \d+: .*\(UUID: (GPU-[0-9a-fA-F-]{8,64})\)")
CAPABILITIES = 0x34
PCIE = 0x10
ACS = 0x0D
# Bits of Device Control; and of ACS Control, for requests and completions
RELAXED_ORDERING = 0x10
REDIRECTS = 0x0C
# First kernel with DMA-BUF for PCIe peers, given NVIDIA's open kernel modules
DMA_BUF_SINCE = (5, 12)


def infiniband_ports():
    """Return state, Gb/s, counters and PCIe link of each port of RDMA devices, InfiniBand
    or RoCE.
    """
    ports = []
    for path in sorted(glob.glob(SYS + "/class/infiniband/*/ports/*")):
        name, number = path[len(SYS) :].split("/")[3::2]
        device = f"{SYS}/class/infiniband/{name}/device"
        ports.append({
            "port": f"{name}/{number}",
            "kind": first_line(path + "/link_layer") or "InfiniBand",
            "up": "ACTIVE" in first_line(path + "/state"),
            "gbit_s": float((RATE.search(first_line(path + "/rate")) or [0, 0])[1]),
            "numa": numa_node(device),
            "errors": counters(path, {name: f"*counters/{name}" for name in LINK_ERRORS}),
            "losses": counters(path, {name: f"*counters/{name}" for name in PACKET_LOSSES}),
            "iommu": first_line(device + "/iommu_group/type"),
            "relaxed_ordering": relaxed_ordering(config_space(device)),
            **pcie_link(device),
        })  # fmt: skip
    return ports


def network_ports():
    """Return the ports of physical network interfaces in the same form, without their PCIe link."""
    ports = []
    for device in sorted(glob.glob(SYS + "/class/net/*/device")):
        folder = os.path.dirname(device)
        # -1, or no readable file, if the interface is down or virtual
        speed = first_line(folder + "/speed")
        ports.append({
            "port": os.path.basename(folder),
            "kind": "network",
            "up": first_line(folder + "/operstate") == "up",
            "gbit_s": int(speed) / 1000 if re.fullmatch(r"\d{1,7}", speed) else 0.0,
            "numa": numa_node(device),
            "errors": counters(folder, OF_NETWORK),
        })  # fmt: skip
    return ports


def counters(folder, files):
    """Return the counters in the files of a folder, by name, except those that the driver lacks."""
    texts = {
        name: next(map(first_line, glob.glob(f"{folder}/{file}")), "")
        for name, file in files.items()
    }
    return {name: int(text) for name, text in texts.items() if re.fullmatch(r"\d{1,18}", text)}


def nvlink_errors(timeout_s):
    """Return NVLink error counters above 0 by GPU UUID: {"GPU-...": {"NVLink 3 CRC
    Errors": 12}}.
    """
    errors: "dict[str, dict[str, int]]" = {}
    uuid = ""
    for line in lines_of(["nvidia-smi", "nvlink", "--errorcounters"], timeout_s, most=16384) or []:
        gpu = NVLINKS_OF.match(line)
        counter = NVLINK_ERROR.match(line)
        if gpu:
            uuid = gpu[1]
            errors[uuid] = {}
        elif counter and uuid and int(counter[3]):
            errors[uuid][f"NVLink {counter[1]} {counter[2]}"] = int(counter[3])
    return errors


def numa_node(device):
    """Return the NUMA node of a device; None if it is unknown or there is only one node."""
    text = first_line(device + "/numa_node")
    return int(text) if re.fullmatch(r"\d{1,4}", text) else None


def pcie_link(device):
    """Return lanes and GT/s of a device's PCIe link, now and at most; None for values that it does
    not have.
    """
    link: "dict[str, float | None]" = {}
    for name, which in (("", "current"), ("_max", "max")):
        lanes = re.match(r"[1-9]\d?$", first_line(f"{device}/{which}_link_width"))
        speed = re.match(r"\d{1,3}(?:\.\d)?(?= GT/s)", first_line(f"{device}/{which}_link_speed"))
        link["pcie_width" + name] = int(lanes.group()) if lanes else None
        link["pcie_gt_s" + name] = float(speed.group()) if speed else None
    return link


def config_space(device):
    """Return the PCI configuration of a device, as far as this user may read it."""
    try:
        with open(device + "/config", "rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def relaxed_ordering(config):
    """Return whether relaxed ordering is enabled for the device; None if the configuration cannot
    be read.
    """
    at = config[CAPABILITIES] & 0xFC if len(config) > 64 else 0
    for _ in range(48):  # each takes at least 4 of 192 bytes, so a longer chain would be circular
        if not at or at + 10 > min(len(config), 256):
            break
        if config[at] == PCIE:
            return bool(config[at + 8] & RELAXED_ORDERING)
        at = config[at + 1] & 0xFC
    return None


def redirects(config):
    """Return whether ACS redirects traffic between peers to the root complex.

    None if the configuration cannot be read.
    """
    if len(config) < 4096:
        return None
    at = 0x100
    for _ in range(96):  # ends even if a broken device has a circular chain
        if not at or at + 8 > len(config):
            break
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == ACS:
            return bool(config[at + 6] & REDIRECTS)
        at = header >> 20 & 0xFFC
    return False


def redirecting_switches(addresses):
    """Return the number of PCIe switch ports above these devices that redirect traffic between
    peers; None if unknown.

    Root ports are ignored, since traffic between different root ports passes the root complex
    anyway.
    """
    above = {
        part: os.sep.join(parts[: place + 1])
        for parts in (
            os.path.realpath(f"{SYS}/bus/pci/devices/{address}").split(os.sep)
            for address in addresses
        )
        for place, part in enumerate(parts[:-1])
        if ADDRESS.match(part) and ADDRESS.match(parts[place - 1])
    }
    answers = [redirects(config_space(folder)) for folder in list(above.values())[:1024]]
    return None if None in answers else sum(map(bool, answers))


def rdma_addresses():
    """Return the PCI addresses of the RDMA devices."""
    paths = map(os.path.realpath, glob.glob(SYS + "/class/infiniband/*/device"))
    return {os.path.basename(path) for path in paths if ADDRESS.match(os.path.basename(path))}


def gpudirect():
    """Return how RDMA devices access NVIDIA's GPUs: "nvidia-peermem", "dma-buf" or "none"; ""
    without NVIDIA's driver.
    """
    if any(os.path.isdir(f"{SYS}/module/{name}") for name in ("nvidia_peermem", "nv_peer_mem")):
        return "nvidia-peermem"
    driver = first_line("/proc/driver/nvidia/version")
    kernel = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if not driver or not kernel:
        return ""
    is_new = (int(kernel[1]), int(kernel[2])) >= DMA_BUF_SINCE
    return "dma-buf" if is_new and "Open Kernel Module" in driver else "none"
