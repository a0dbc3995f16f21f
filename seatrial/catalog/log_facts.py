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
    """Return which ranks have another GPU model than most; None where all have the same."""
    models = {device: model for device in devices if (model := gpu_model(device.name))}
    counts = Counter(models.values()).most_common()
    if len(counts) < 2:
        return None
    usual = counts[0][0]
    odd = [
        f"{model} at rank {device.rank} on {device.host}"
        for device, model in models.items()
        if model != usual
    ]
    return Reason.of("log-of-mixed-gpus", count=counts[0][1], usual=usual, odd=some_of(odd))


def other_network(fabric: str | None, transport: Transport | None) -> Reason | None:
    """Return which other kind of network NCCL took; None where it fits, or where either name says
    nothing.
    """
    claimed = _kind(fabric or "")
    used = _kind_used(transport)
    if transport is None or claimed is None:
        return None
    link = link_of(fabric or "")
    links = {nic.link for _, nics in transport.nics for nic in nics}
    if used == claimed and link and links and not links & {"", link}:
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
    if transport and (
        rated := Counter(
            _name_of(nics) for _, nics in transport.nics if all(nic.gbit_s for nic in nics)
        )
    ):
        return rated.most_common(1)[0][0]
    used = _kind_used(transport)
    if used not in _OF_MACHINES:
        return None
    fabrics = {
        row.fabric for row in references() if row.hardware == hardware and _kind(row.fabric) == used
    }
    return fabrics.pop() if len(fabrics) == 1 else None


def _name_of(nics: Sequence[Nic]) -> str:
    """Return the name of a fabric of the most common NICs: IB-8x400G."""
    (nic, count), *_ = Counter(nics).most_common(1)
    return f"{nic.link or 'IB'}-{count}x{nic.gbit_s}G"


def _kind_used(transport: Transport | None) -> str | None:
    """Return the kind of the only network between nodes; None if there are none or several."""
    if transport is None or transport.nodes == 1:
        return None
    kinds = {
        _kind(name)
        for name in ((transport.provider,) if transport.provider else transport.networks)
    }
    return kinds.pop() if len(kinds) == 1 else None


def _kind(name: str) -> str | None:
    return next((kind for begins, kind in _KINDS.items() if name.lower().startswith(begins)), None)


@cache
def _first_nccl() -> dict[str, str]:
    """Return the first version of NCCL that knows each model of GPU."""
    return {row["gpu"]: row["first"] for row in rows_of("nccl_versions.csv")}


def older_nccl(hardware: str, version: str | None) -> Reason | None:
    """Return the reason if this version of NCCL does not know the GPU; None if it does, or if
    either is unknown.
    """
    first = _first_nccl().get(hardware.partition("-")[0])
    if version is None or first is None:
        return None
    if _version(version) >= _version(first):
        return None
    return Reason.of("log-nccl-older", version=version, first=first, hardware=hardware)


def _version(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
