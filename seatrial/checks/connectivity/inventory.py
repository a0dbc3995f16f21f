"""Nodes and GPUs that are broken or unlike the others, by inventory and software versions. Pure.

Blamed is only what a GPU itself reports as damage or as slowed down by hardware; all else is a
remark.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from seatrial.causes import cause_in
from seatrial.causes.xid import OF_APPLICATIONS, meaning_of
from seatrial.checks.connectivity.rates import Models
from seatrial.model.reason import Reason, join, placed
from seatrial.model.result import Suspect
from seatrial.remote.node_probe import GpuState, Inventory, KernelEvent, PortState
from seatrial.text.words import duration, some_of

Inventories = Mapping[str, Inventory]  # by node

# An uncorrectable error since the driver was loaded: the next reset may hide or show more
_ECC_CONFIDENCE = 0.9
_SLOWED_CONFIDENCE = 0.8  # a moment's sample
_MOST_VALUES = 3  # of one attribute that are listed one by one
_LEAST_FREE_GB = 2.0  # for temporary files
_LEAST_SHM_GB = 1.0  # for NCCL's segments

# The least driver of each major version of CUDA, by NVIDIA's table of minor version compatibility
# (docs.nvidia.com/deploy/cuda-compatibility).
_LEAST_DRIVER = {11: (450, 80), 12: (525, 60), 13: (580, 65)}
# To do, or to say
_NOTHING = frozenset({"", "none", "n/a", "[n/a]", "not supported", "completed", "success"})
COMPARED = ("kernel", "driver", "cuda", "openmpi", "nccl", "torch", "python")
# Another model may need others; the rest must agree between all ranks
_OF_THE_HOST = frozenset({"kernel", "driver"})
Ports = Sequence[tuple[str, PortState]]  # with the names that people know them by
# "" is not installed, None is not known: only reported versions can differ
Versions = Mapping[str, str | None]
VersionsByNode = Mapping[str, Versions]


def broken_gpus(inventories: Inventories) -> list[Suspect]:
    """Return nodes with a GPU whose memory is beyond repair, or that works only after a reset or
    with its fabric.
    """
    return [
        Suspect("node", node, 1.0, placed(gpu.name, reason))
        for node, gpu in _gpus(inventories)
        for reason in _broken(gpu)
    ]


def _broken(gpu: GpuState) -> Iterator[Reason]:
    """Yield why a GPU is broken, as far as it reports it itself."""
    if gpu.rows_failed:
        yield Reason.of("gpu-rows-failed")
    if gpu.requires_reset:
        yield Reason.of("gpu-requires-reset")
        return
    if gpu.recovery.lower() not in _NOTHING:
        yield Reason.of("gpu-recovery-action", action=gpu.recovery)
    states = (gpu.fabric_state, gpu.fabric_status)
    unready = [state for state in states if state.lower() not in _NOTHING]
    if unready:
        yield Reason.of("gpu-fabric-down", state=", ".join(unready))


def impaired_gpus(inventories: Inventories) -> list[Suspect]:
    """Return GPUs that work, and have had errors or are slowed down by hardware."""
    suspects = []
    for node, gpu in _gpus(inventories):
        name = f"{node}/{gpu.name}"
        if gpu.ecc_uncorrected and not gpu.rows_failed:
            reason = Reason.of("gpu-ecc-uncorrected", count=f"{gpu.ecc_uncorrected:.0f}")
            suspects.append(Suspect("gpu", name, _ECC_CONFIDENCE, reason))
        if gpu.slowdown:
            reason = Reason.of("gpu-slowed-down", causes=", ".join(gpu.slowdown))
            suspects.append(Suspect("gpu", name, _SLOWED_CONFIDENCE, reason))
    return suspects


def remarks(inventories: Inventories, models: Models) -> list[Reason]:
    """Return remarks for people, without blame; one for all GPUs with the same reason."""
    names = defaultdict(list)
    for node, gpu in _gpus(inventories):
        for reason in _of_gpu(gpu):
            names[reason].append(f"{node}/{gpu.name}")
    of_gpus = [placed(some_of(those), reason) for reason, those in names.items()]
    return [
        *of_gpus,
        *driver_errors(inventories),
        *_limits(inventories),
        *unequal(inventories, models),
    ]


def _of_gpu(gpu: GpuState) -> Iterator[Reason]:
    """Yield what is odd of one GPU, and no damage."""
    if gpu.rows_pending:
        yield Reason.of("gpu-rows-pending")
    if gpu.processes:
        yield Reason.of("gpu-in-use", processes=gpu.processes)
    width = gpu.pcie_width
    widest = gpu.pcie_width_max
    if width and widest and width < widest:
        yield Reason.of("gpu-pcie-narrow", width=f"{width:.0f}", widest=f"{widest:.0f}")
    down = gpu.nvlinks.count(0.0)
    if down:
        yield Reason.of("gpu-nvlinks-down", down=down, links=len(gpu.nvlinks))


def driver_errors(inventories: Inventories) -> Iterator[Reason]:
    """Yield one remark for each kind of Xid and of other failure in the kernel's log, without those
    of applications.
    """
    yield from _xids(inventories)
    yield from _kernel_events(inventories)


def _xids(inventories: Inventories) -> Iterator[Reason]:
    """Yield one remark for each Xid or SXid, with the meaning of the latest one."""
    xids = defaultdict(list)
    for node, inventory in inventories.items():
        for error in inventory.xids or ():
            if error.kind == "SXid" or error.number not in OF_APPLICATIONS:
                xids[error.kind, error.number].append((node, error))
    for (kind, number), errors in xids.items():
        latest = min((error for _, error in errors), key=lambda error: error.age_s)
        meaning, step = meaning_of(kind, number, latest.text)
        yield Reason.of(
            "gpu-xid", kind=kind, number=number, meaning=meaning, step=step, **_times(errors)
        )


def _kernel_events(inventories: Inventories) -> Iterator[Reason]:
    """Yield one remark for each other failure whose cause is known."""
    events = defaultdict(list)
    for node, inventory in inventories.items():
        for event in inventory.events:
            cause = cause_in(event.text)
            if cause:
                events[cause.cause, cause.next_step].append((node, event))
    for (failure, step), those in events.items():
        yield Reason.of("kernel-event", cause=failure, step=step, **_times(those))


def _times(events: Sequence[tuple[str, KernelEvent]]) -> dict[str, object]:
    """Return how often events came, on which nodes, and how long ago the last one was."""
    nodes = dict.fromkeys(node for node, _ in events)
    latest_s = min(event.age_s for _, event in events)
    return {
        "count": sum(event.count for _, event in events),
        "nodes": some_of(nodes),
        "age": duration(latest_s),
    }


def _limits(inventories: Inventories) -> Iterator[Reason]:
    """Yield nodes with little room for temporary files or for NCCL's segments."""
    full = []
    small = []
    for name, node in inventories.items():
        if (node.disk_free_gb or _LEAST_FREE_GB) < _LEAST_FREE_GB:
            full.append(name)
        if node.gpus and (node.shm_gb or _LEAST_SHM_GB) < _LEAST_SHM_GB:
            small.append(name)
    if full:
        yield Reason.of("disk-nearly-full", nodes=some_of(full), least_gb=f"{_LEAST_FREE_GB:g}")
    if small:
        yield Reason.of("shm-small", nodes=some_of(small), least_gb=f"{_LEAST_SHM_GB:g}")


def unequal(inventories: Inventories, models: Models) -> Iterator[Reason]:
    """Yield one remark for each way in which nodes of a model differ from most of them."""
    by_attribute: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for node, inventory in inventories.items():
        for attribute, value in attributes(inventory).items():
            by_attribute[models.get(node, ""), attribute][node] = value
    for (_, attribute), value_by_node in by_attribute.items():
        common, count = Counter(value_by_node.values()).most_common(1)[0]
        for other, nodes in _unlike(value_by_node, common).items():
            yield Reason.of(
                "nodes-unequal",
                nodes=some_of(nodes),
                all=len(value_by_node),
                attribute=attribute,
                other=other,
                common=common,
                count=count,
            )


def _unlike(value_by_node: Mapping[str, str], common: str) -> dict[str, list[str]]:
    """Return the nodes with another value than the common one, by value; together if there are many
    values.
    """
    unlike = defaultdict(list)
    for node, value in value_by_node.items():
        if value != common:
            unlike[value].append(node)
    if len(unlike) <= _MOST_VALUES:
        return unlike
    together = [node for nodes in unlike.values() for node in nodes]
    return {f"one of {len(unlike)} other values": together}


def attributes(inventory: Inventory) -> dict[str, str]:
    """Describe what must be the same on all nodes of a model, without what the node does not
    report.
    """
    values = defaultdict(list)
    for gpu in inventory.gpus:
        for attribute, value in _attributes_of(gpu).items():
            values[attribute].append(value)
    links = Counter(
        str(len(gpu.nvlinks) - gpu.nvlinks.count(0.0)) for gpu in inventory.gpus if gpu.nvlinks
    )
    ports = Counter(
        f"{port.kind} {'up' if port.up else 'down'} at {port.gbit_s:g} Gb/s"
        for port in inventory.ports
    )
    described = {attribute: _with_counts(of_gpus) for attribute, of_gpus in values.items()}
    described |= {
        "links between GPUs that are up": _counted(links),
        "network ports": _counted(ports),
        "GPUs and ports by NUMA node": _affinity(inventory),
        "hugepages": "" if inventory.hugepages is None else str(inventory.hugepages),
        "memlock": _memlock(inventory.memlock_kib),
    }
    return {attribute: value for attribute, value in described.items() if value}


def _attributes_of(gpu: GpuState) -> dict[str, str]:
    """Describe one GPU; empty is what it does not report."""
    return {
        "GPU model": gpu.model,
        "GPU memory": f"{gpu.memory_mib / 1024:.0f} GiB" if gpu.memory_mib else "",
        "VBIOS": gpu.vbios,
        "ECC": gpu.ecc,
        "persistence mode": gpu.persistence,
        "power limit": f"{gpu.power_limit_w:g} W" if gpu.power_limit_w else "",
        "highest GPU clock": f"{gpu.clock_max_mhz:g} MHz" if gpu.clock_max_mhz else "",
        "PCIe width": f"x{gpu.pcie_width:g}" if gpu.pcie_width else "",
        "highest PCIe generation": f"{gpu.pcie_gen_max:g}" if gpu.pcie_gen_max else "",
    }


def _with_counts(values: Sequence[str]) -> str:
    """Format values with their counts: "4 x a, 4 x b"; the value alone if all are equal."""
    counted = Counter(value for value in values if value)
    if len(counted) == 1:
        return next(iter(counted))
    return _counted(counted)


def _counted(values: Counter[str]) -> str:
    """Format values with their counts, in the order of the values."""
    return ", ".join(f"{count} x {value}" for value, count in sorted(values.items()))


def _affinity(inventory: Inventory) -> str:
    """Format which NUMA node has what: "node 0: 4 GPUs, 4 ports"; empty without GPUs or several
    NUMA nodes.
    """
    gpus = Counter(gpu.numa for gpu in inventory.gpus if gpu.numa is not None)
    ports = Counter(port.numa for port in inventory.ports)
    if len(gpus) < 2:
        return ""
    return "; ".join(
        f"node {number}: {gpus[number]} GPUs, {ports[number]} ports" for number in sorted(gpus)
    )


def _memlock(kib: int | None) -> str:
    """Format the limit of locked memory; a negative number stands for no limit."""
    if kib is None:
        return ""
    return "unlimited" if kib < 0 else f"{kib} KiB"


def _gpus(inventories: Inventories) -> Iterator[tuple[str, GpuState]]:
    """Yield each GPU with its node."""
    for node, inventory in inventories.items():
        for gpu in inventory.gpus:
            yield node, gpu


def old_drivers(versions: VersionsByNode) -> list[Reason]:
    """Return one remark for the nodes whose driver is older than the CUDA of their software
    needs.
    """
    old = defaultdict(list)
    for node, own_versions in versions.items():
        driver = own_versions.get("driver") or ""
        cuda = own_versions.get("cuda") or ""
        driver_numbers = _numbers(driver)
        cuda_numbers = _numbers(cuda)
        if not driver_numbers or not cuda_numbers:
            continue
        least = _LEAST_DRIVER.get(cuda_numbers[0])
        if least and driver_numbers[:2] < least:
            old[driver, cuda, ".".join(map(str, least))].append(node)
    return [
        Reason.of("driver-too-old", nodes=some_of(nodes), driver=driver, cuda=cuda, least=least)
        for (driver, cuda, least), nodes in old.items()
    ]


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version such as 550.54.15."""
    leading = takewhile(lambda part: part.isascii() and part.isdigit(), version.split("."))
    return tuple(int(part[:9]) for part in leading)


def odd_ones(by_node: VersionsByNode, models: Models | None = None) -> list[Suspect]:
    """Return the nodes whose version is not the most common; the confidence is the share of nodes
    that have it.

    Kernels and drivers are compared between nodes of the same model only, if `models` has it by
    node.
    """
    differences: dict[str, list[tuple[Reason, float]]] = {node: [] for node in by_node}
    for package in COMPARED:
        model_by_node = (models or {}) if package in _OF_THE_HOST else {}
        peers: dict[str, dict[str, Versions]] = defaultdict(dict)  # by model
        for node, versions in by_node.items():
            peers[model_by_node.get(node, "")][node] = versions
        for alike in peers.values():
            for node, difference in _differences(alike, package):
                differences[node].append(difference)
    suspects = []
    for node, own in differences.items():
        if own:
            confidence = round(min(share for _, share in own), 2)
            evidence = join(reason for reason, _ in own)
            suspects.append(Suspect("node", node, confidence, evidence))
    return suspects


def unknown(by_node: VersionsByNode) -> list[Reason]:
    """Return a sentence per package whose version some nodes do not report; it is not compared
    there.
    """
    reasons = []
    for package in COMPARED:
        silent = [node for node, versions in by_node.items() if versions.get(package, "") is None]
        if silent:
            reasons.append(Reason.of("version-unknown", package=package, nodes=some_of(silent)))
    return reasons


def _differences(
    by_node: VersionsByNode, package: str
) -> Iterator[tuple[str, tuple[Reason, float]]]:
    """Yield the nodes that differ in `package` from the commonest version, how, and how common that
    one is.
    """
    reported = {
        node: version
        for node, versions in by_node.items()
        if (version := versions.get(package)) is not None
    }
    if not reported:
        return
    common, count = Counter(reported.values()).most_common(1)[0]
    for node, own in reported.items():
        if own != common:
            reason = Reason.of(
                "version-differs",
                package=package,
                own=own or "missing",
                common=common or "missing",
                count=count,
                nodes=len(reported),
            )
            yield node, (reason, count / len(reported))


def slow_paths(inventories: Inventories) -> Iterator[Reason]:
    """Yield one remark for all nodes or ports with the same reason; none for nodes without GPUs or
    RDMA.
    """
    redirecting = {}  # switches by node
    without_gpudirect = []
    ports = []
    for name, node in inventories.items():
        # EFA has a module of its own for GPUDirect RDMA.
        up = [port for port in node.ports if port.up and port.kind in ("InfiniBand", "Ethernet")]
        if not node.gpus or not up:
            continue
        ports += [(f"{name}/{port.port}", port) for port in up]
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
    """Yield what slows ports that are up: translation of addresses, strict ordering, a narrow or
    slow PCIe link.
    """
    translated = [name for name, port in ports if port.iommu.startswith("DMA")]
    if translated:
        yield Reason.of("iommu-translates", ports=some_of(translated))
    strict = [name for name, port in ports if port.relaxed_ordering is False]
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
        if width and widest and speed and fastest and (width < widest or speed < fastest):
            slow[f"x{width} {speed:g} GT/s", f"x{widest} {fastest:g} GT/s"].append(name)
    for (link, best), names in slow.items():
        yield Reason.of("nic-pcie-slow", ports=some_of(names), link=link, best=best)
