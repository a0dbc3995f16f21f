"""Nodes and GPUs whose inventory shows a fault or differs from the others. Pure.

Only damage or slowdown by hardware that a GPU itself reports is blamed; everything else is a
remark.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from seatrial.causes import cause_in
from seatrial.causes.xid import OF_APPLICATIONS, meaning_of
from seatrial.checks.connectivity.rates import Models
from seatrial.model.reason import Reason, placed
from seatrial.model.result import Suspect
from seatrial.remote.node_probe import GpuState, Inventory, KernelEvent
from seatrial.text.words import duration, some_of

Inventories = Mapping[str, Inventory]  # inventories by node

# An uncorrectable error since the driver was loaded may or may not recur after a reset
_ECC_CONFIDENCE = 0.9
_SLOWED_CONFIDENCE = 0.8  # from one sample only
_MOST_VALUES = 3  # most values of one attribute that are listed separately
_LEAST_FREE_GB = 2.0  # least free disk space for temporary files
_LEAST_SHM_GB = 1.0  # least shared memory for NCCL's segments

# Values of driver fields that mean "nothing to do" or "nothing to report"
_NOTHING = frozenset({"", "none", "n/a", "[n/a]", "not supported", "completed", "success"})
EventOfNode = tuple[str, KernelEvent]


def broken_gpus(inventories: Inventories) -> list[Suspect]:
    """Return nodes with a GPU that is damaged beyond repair, or needs a reset or its fabric to
    work.
    """
    return [
        Suspect("node", node, 1.0, placed(gpu.name, reason))
        for node, gpu in _gpus(inventories)
        for reason in _broken(gpu)
    ]


def _broken(gpu: GpuState) -> Iterator[Reason]:
    """Yield the reasons why a GPU is broken, as it reports itself."""
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
    """Return GPUs that work, but had errors or are slowed down by hardware."""
    return [
        Suspect("gpu", f"{node}/{gpu.name}", confidence, reason)
        for node, gpu in _gpus(inventories)
        for confidence, reason in _impaired(gpu)
    ]


def _impaired(gpu: GpuState) -> Iterator[tuple[float, Reason]]:
    """Yield the confidence and the reason of each impairment of a GPU."""
    if gpu.ecc_uncorrected and not gpu.rows_failed:
        count = f"{gpu.ecc_uncorrected:.0f}"
        yield _ECC_CONFIDENCE, Reason.of("gpu-ecc-uncorrected", count=count)
    if gpu.slowdown:
        causes = ", ".join(gpu.slowdown)
        yield _SLOWED_CONFIDENCE, Reason.of("gpu-slowed-down", causes=causes)


def remarks(inventories: Inventories, models: Models) -> list[Reason]:
    """Return remarks for people, without blame; GPUs with the same reason share one."""
    names = defaultdict(list)
    for node, gpu in _gpus(inventories):
        name = f"{node}/{gpu.name}"
        for reason in _of_gpu(gpu):
            names[reason].append(name)
    of_gpus = [placed(some_of(those), reason) for reason, those in names.items()]
    return [
        *of_gpus,
        *driver_errors(inventories),
        *_limits(inventories),
        *unequal(inventories, models),
    ]


def _of_gpu(gpu: GpuState) -> Iterator[Reason]:
    """Yield what is unusual about a GPU without being damage."""
    if gpu.rows_pending:
        yield Reason.of("gpu-rows-pending")
    if gpu.processes:
        yield Reason.of("gpu-in-use", processes=gpu.processes)
    width = gpu.pcie_width
    widest = gpu.pcie_width_max
    if width and widest and width < widest:
        yield Reason.of("gpu-pcie-narrow", width=f"{width:.0f}", widest=f"{widest:.0f}")
    links = len(gpu.nvlinks)
    down = gpu.nvlinks.count(0.0)
    if down:
        yield Reason.of("gpu-nvlinks-down", down=down, links=links)


def driver_errors(inventories: Inventories) -> Iterator[Reason]:
    """Yield one remark for each kind of Xid and of other failure in the kernel's log, except those
    that applications cause.
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
        _, latest = min(errors, key=_age)
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


def _age(of_node: EventOfNode) -> float:
    _, event = of_node
    return event.age_s


def _times(events: Sequence[EventOfNode]) -> dict[str, object]:
    """Return how often events came, on which nodes, and how long ago the last one was."""
    nodes = dict.fromkeys(node for node, _ in events)
    latest_s = min(map(_age, events))
    return {
        "count": sum(event.count for _, event in events),
        "nodes": some_of(nodes),
        "age": duration(latest_s),
    }


def _limits(inventories: Inventories) -> Iterator[Reason]:
    """Yield remarks on nodes with little space for temporary files or NCCL's segments."""
    full = []
    small = []
    for name, node in inventories.items():
        if (node.disk_free_gb or _LEAST_FREE_GB) < _LEAST_FREE_GB:
            full.append(name)
        if node.gpus and (node.shm_gb or _LEAST_SHM_GB) < _LEAST_SHM_GB:
            small.append(name)
    if full:
        least = f"{_LEAST_FREE_GB:g}"
        yield Reason.of("disk-nearly-full", nodes=some_of(full), least_gb=least)
    if small:
        least = f"{_LEAST_SHM_GB:g}"
        yield Reason.of("shm-small", nodes=some_of(small), least_gb=least)


def unequal(inventories: Inventories, models: Models) -> Iterator[Reason]:
    """Yield one remark for each way in which nodes differ from most nodes of their model."""
    for (_, attribute), value_by_node in _compared(inventories, models).items():
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


def _compared(inventories: Inventories, models: Models) -> dict[tuple[str, str], dict[str, str]]:
    """Return the value by node, for each model and attribute."""
    compared: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for node, inventory in inventories.items():
        model = models.get(node, "")
        for attribute, value in attributes(inventory).items():
            compared[model, attribute][node] = value
    return compared


def _unlike(value_by_node: Mapping[str, str], common: str) -> dict[str, list[str]]:
    """Return the nodes whose value is not `common`, by value; under one text if there are too many
    values.
    """
    unlike = defaultdict(list)
    for node, value in value_by_node.items():
        if value != common:
            unlike[value].append(node)
    if len(unlike) <= _MOST_VALUES:
        return unlike
    together: list[str] = []
    for nodes in unlike.values():
        together += nodes
    return {f"one of {len(unlike)} other values": together}


def attributes(inventory: Inventory) -> dict[str, str]:
    """Describe what must be equal on all nodes of a model, except what the node does not report."""
    values = defaultdict(list)
    for gpu in inventory.gpus:
        for attribute, value in _attributes_of(gpu).items():
            values[attribute].append(value)
    described = {attribute: _with_counts(of_gpus) for attribute, of_gpus in values.items()}
    described |= {
        "links between GPUs that are up": _links_up(inventory),
        "network ports": _network_ports(inventory),
        "GPUs and ports by NUMA node": _affinity(inventory),
        "hugepages": "" if inventory.hugepages is None else str(inventory.hugepages),
        "memlock": _memlock(inventory.memlock_kib),
    }
    return {attribute: value for attribute, value in described.items() if value}


def _attributes_of(gpu: GpuState) -> dict[str, str]:
    """Describe one GPU by attribute; the text is empty if the GPU does not report it."""
    return {
        "GPU model": gpu.model,
        "GPU memory": _shown("{:.0f} GiB", (gpu.memory_mib or 0) / 1024),
        "VBIOS": gpu.vbios,
        "ECC": gpu.ecc,
        "persistence mode": gpu.persistence,
        "power limit": _shown("{:g} W", gpu.power_limit_w),
        "highest GPU clock": _shown("{:g} MHz", gpu.clock_max_mhz),
        "PCIe width": _shown("x{:g}", gpu.pcie_width),
        "highest PCIe generation": _shown("{:g}", gpu.pcie_gen_max),
    }


def _shown(template: str, value: float | None) -> str:
    """Format a number by the template; empty if the value is None."""
    if not value:
        return ""
    return template.format(value)


def _links_up(inventory: Inventory) -> str:
    """Format how many links of each GPU are up, with counts."""
    links = Counter[str]()
    for gpu in inventory.gpus:
        if gpu.nvlinks:
            up = len(gpu.nvlinks) - gpu.nvlinks.count(0.0)
            links[str(up)] += 1
    return _counted(links)


def _network_ports(inventory: Inventory) -> str:
    """Format the kind, state and rate of the ports, with counts."""
    ports = Counter[str]()
    for port in inventory.ports:
        state = "up" if port.up else "down"
        ports[f"{port.kind} {state} at {port.gbit_s:g} Gb/s"] += 1
    return _counted(ports)


def _with_counts(values: Sequence[str]) -> str:
    """Format values with their counts: "4 x a, 4 x b"; the value alone if all are equal."""
    counted = Counter(value for value in values if value)
    if len(counted) == 1:
        return next(iter(counted))
    return _counted(counted)


def _counted(values: Counter[str]) -> str:
    """Format values with their counts, in the order of the values."""
    in_order = sorted(values.items())
    return ", ".join(f"{count} x {value}" for value, count in in_order)


def _affinity(inventory: Inventory) -> str:
    """Format how many GPUs and ports each NUMA node has: "node 0: 4 GPUs, 4 ports".

    Empty if GPUs are on fewer than two NUMA nodes.
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
    if kib < 0:
        return "unlimited"
    return f"{kib} KiB"


def _gpus(inventories: Inventories) -> Iterator[tuple[str, GpuState]]:
    """Yield each GPU with its node."""
    for node, inventory in inventories.items():
        for gpu in inventory.gpus:
            yield node, gpu
