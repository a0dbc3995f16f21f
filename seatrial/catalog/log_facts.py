"""Contradictions between the GPUs, network and NCCL that a log names and those given for it.

`nccl_versions.csv` has the first version of NCCL for each GPU, with its source.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

from seatrial.catalog import link_of, references, rows_of
from seatrial.catalog.hardware_names import gpu_model
from seatrial.model.reason import Reason
from seatrial.nccl import Device, Transport
from seatrial.nccl.transport import Nic
from seatrial.text.words import some_of

_RDMA = "InfiniBand or RoCE"
_EFA = "EFA"
_TCPXO = "GPUDirect-TCPXO"
_TCPX = "GPUDirect-TCPX"
_SLINGSHOT = "Slingshot"
# What names of fabrics, of NCCL's networks and of libfabric's providers begin with; the longer ones
# first.
_KINDS = {
    "gpudirect-tcpxo": _TCPXO, "fastrak": _TCPXO, "gpudirect-tcpx": _TCPX, "gpudirecttcpx": _TCPX,
    "efa": _EFA, "slingshot": _SLINGSHOT, "cxi": _SLINGSHOT,
    "ib": _RDMA, "infiniband": _RDMA, "roce": _RDMA, "gib": _RDMA, "ucx": _RDMA, "sharp": _RDMA, "verbs": _RDMA,
}  # fmt: skip
# A cloud's type of machine has these NICs and no others
_OF_MACHINES = frozenset({_EFA, _TCPXO, _TCPX})


def other_model(hardware: str, devices: Iterable[Device]) -> Reason | None:
    """Return which other GPUs the log names; None where some fit, or where either name says
    nothing.
    """
    required = gpu_model(hardware)
    names = {device.name: model for device in devices if (model := gpu_model(device.name))}
    if required is None or not names or required in names.values():
        return None
    return Reason.of("log-of-other-gpu", others=min(names), hardware=hardware)


def mixed_models(devices: Iterable[Device]) -> Reason | None:
    """Return which ranks have another GPU model than most; None where all have the same.

    Devices whose name says nothing of a model count as neither.
    """
    models = {device: model for device in devices if (model := gpu_model(device.name))}
    by_model = Counter(models.values())
    if len(by_model) < 2:
        return None
    [(usual, count)] = by_model.most_common(1)
    odd = [
        f"{model} at rank {device.rank} on {device.host}"
        for device, model in models.items()
        if model != usual
    ]
    return Reason.of("log-of-mixed-gpus", count=count, usual=usual, odd=some_of(odd))


def other_network(fabric: str | None, transport: Transport | None) -> Reason | None:
    """Return which other kind of network NCCL took; None where it fits, or where either name says
    nothing.
    """
    if transport is None or fabric is None:
        return None
    claimed = _kind(fabric)
    if claimed is None:
        return None
    used = _kind_used(transport)
    if used == claimed:
        # InfiniBand and RoCE are one kind of network, and two kinds of link
        link = link_of(fabric)
        links = {nic.link for _, nics in transport.nics for nic in nics}
        if link and links and not links & {"", link}:
            used = links.pop()
    if used in (None, claimed):
        return None
    return Reason.of(
        "log-of-other-network", network=used, fabric=fabric, evidence=transport.evidence
    )


def fabric_named(hardware: str, transport: Transport | None) -> str | None:
    """Return the fabric of the NICs that NCCL lists with their rates, or the one published fabric
    of its network.

    None if several are published. Where hosts differ, the most common NICs count.
    """
    rated = Counter[str]()
    if transport:
        for _, nics in transport.nics:
            if all(nic.gbit_s for nic in nics):
                rated[_name_of(nics)] += 1
    for name, _ in rated.most_common(1):
        return name
    used = _kind_used(transport)
    if used not in _OF_MACHINES:
        return None
    fabrics = {
        row.fabric for row in references() if row.hardware == hardware and _kind(row.fabric) == used
    }
    if len(fabrics) != 1:
        return None
    return fabrics.pop()


def _name_of(nics: Sequence[Nic]) -> str:
    """Return the name of a fabric of the most common NICs: IB-8x400G.

    A host has one at the least; of NICs that are equally common, its first ones count.
    """
    [(nic, count)] = Counter(nics).most_common(1)
    link = nic.link or "IB"
    return f"{link}-{count}x{nic.gbit_s}G"


def _kind_used(transport: Transport | None) -> str | None:
    """Return the kind of the only network between nodes; None if there are none or several."""
    if transport is None or transport.nodes == 1:
        return None
    if transport.provider:  # libfabric's provider says more than the name of NCCL's plugin
        return _kind(transport.provider)
    kinds = set(map(_kind, transport.networks))
    if len(kinds) != 1:
        return None
    return kinds.pop()


def _kind(name: str) -> str | None:
    """Return the kind of network that a fabric, a network or a provider is of; None if unknown."""
    lower = name.lower()
    for begins, kind in _KINDS.items():
        if lower.startswith(begins):
            return kind
    return None


@cache
def _first_nccl() -> dict[str, str]:
    """Return the first version of NCCL that knows each model of GPU."""
    return {row["gpu"]: row["first"] for row in rows_of("nccl_versions.csv")}


def older_nccl(hardware: str, version: str | None) -> Reason | None:
    """Return the reason if this version of NCCL does not know the GPU; None if it does, or if
    either is unknown.
    """
    gpu, _, _ = hardware.partition("-")  # without a variant such as the memory
    first = _first_nccl().get(gpu)
    if version is None or first is None:
        return None
    if _version(version) >= _version(first):
        return None
    return Reason.of("log-nccl-older", version=version, first=first, hardware=hardware)


def _version(version: str) -> list[int]:
    """Return the numbers of a version, to compare: 2.9 is older than 2.18."""
    return [int(part) for part in version.split(".")]
