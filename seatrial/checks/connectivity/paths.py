"""Why the network of a node may be slow, by the path between its RDMA devices and its GPUs. Pure."""

from collections import defaultdict
from collections.abc import Iterator

from seatrial.checks.connectivity.inventory import Inventories
from seatrial.model.reason import Reason
from seatrial.remote.node_probe import PortState
from seatrial.text.words import some_of

_BY_VERBS = frozenset({"InfiniBand", "Ethernet"})  # EFA has a module of its own for GPUDirect RDMA


def slow_paths(inventories: Inventories) -> Iterator[Reason]:
    """Yield one remark for all nodes or ports with the same reason; none for nodes without GPUs or RDMA."""
    fast = {name: up for name, node in inventories.items() if node.gpus and (up := _rdma(node.ports))}
    redirecting = {name: inventories[name].redirecting_switches or 0 for name in fast}
    if nodes := [name for name, switches in redirecting.items() if switches]:
        yield Reason.of("acs-redirects", nodes=some_of(nodes), switches=max(redirecting.values()))
    if nodes := [name for name in fast if inventories[name].gpudirect == "none"]:
        yield Reason.of("gpudirect-missing", nodes=some_of(nodes))
    ports = [(f"{name}/{port.port}", port) for name, up in fast.items() for port in up]
    if names := [name for name, port in ports if port.iommu.startswith("DMA")]:
        yield Reason.of("iommu-translates", ports=some_of(names))
    if names := [name for name, port in ports if port.relaxed_ordering is False]:
        yield Reason.of("nic-strict-ordering", ports=some_of(names))
    slow: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, port in ports:
        if links := _slow_link(port):
            slow[links].append(name)
    for (link, best), names in slow.items():
        yield Reason.of("nic-pcie-slow", ports=some_of(names), link=link, best=best)


def _rdma(ports: list[PortState]) -> list[PortState]:
    return [port for port in ports if port.kind in _BY_VERBS and port.up]


def _slow_link(port: PortState) -> tuple[str, str] | None:
    """The PCIe link of a port and the best that it can have, where that is more."""
    width, widest = port.pcie_width, port.pcie_width_max
    speed, fastest = port.pcie_gt_s, port.pcie_gt_s_max
    if width and widest and speed and fastest and (width < widest or speed < fastest):
        return f"x{width} {speed:g} GT/s", f"x{widest} {fastest:g} GT/s"
    return None
