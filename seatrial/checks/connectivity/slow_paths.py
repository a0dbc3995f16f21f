"""What slows the paths between GPUs and the network within a node, by its inventory. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from seatrial.checks.connectivity.inventory import Inventories
from seatrial.model.reason import Reason
from seatrial.remote.node_probe import PortState
from seatrial.text.words import some_of

# Without EFA, which has a separate module for GPUDirect RDMA
_RDMA_KINDS = ("InfiniBand", "Ethernet")
Ports = Sequence[tuple[str, PortState]]  # ports with their names as NODE/PORT


def slow_paths(inventories: Inventories) -> Iterator[Reason]:
    """Yield remarks, one for all nodes or ports with the same reason; nodes need GPUs and RDMA
    ports.
    """
    redirecting = {}  # number of switches by node
    without_gpudirect = []
    ports = []
    for name, node in inventories.items():
        up = [port for port in node.ports if port.up and port.kind in _RDMA_KINDS]
        if not node.gpus or not up:
            continue
        for port in up:
            ports.append((f"{name}/{port.port}", port))
        if node.redirecting_switches:
            redirecting[name] = node.redirecting_switches
        if node.gpudirect == "none":
            without_gpudirect.append(name)
    if redirecting:
        most = max(redirecting.values())
        yield Reason.of("acs-redirects", nodes=some_of(redirecting), switches=most)
    if without_gpudirect:
        yield Reason.of("gpudirect-missing", nodes=some_of(without_gpudirect))
    yield from _slow_ports(ports)


def _slow_ports(ports: Ports) -> Iterator[Reason]:
    """Yield remarks on address translation, strict ordering, and narrow or slow PCIe links of
    ports.
    """
    translated = []
    strict = []
    for name, port in ports:
        if port.iommu.startswith("DMA"):
            translated.append(name)
        if port.relaxed_ordering is False:
            strict.append(name)
    if translated:
        yield Reason.of("iommu-translates", ports=some_of(translated))
    if strict:
        yield Reason.of("nic-strict-ordering", ports=some_of(strict))
    yield from _slow_links(ports)


def _slow_links(ports: Ports) -> Iterator[Reason]:
    """Yield ports whose PCIe link is narrower or slower than it could be."""
    slow = defaultdict(list)
    for name, port in ports:
        width = port.pcie_width
        widest = port.pcie_width_max
        speed = port.pcie_gt_s
        fastest = port.pcie_gt_s_max
        if not (width and widest and speed and fastest):
            continue
        if width < widest or speed < fastest:
            link = f"x{width} {speed:g} GT/s"
            best = f"x{widest} {fastest:g} GT/s"
            slow[link, best].append(name)
    for (link, best), names in slow.items():
        yield Reason.of("nic-pcie-slow", ports=some_of(names), link=link, best=best)
