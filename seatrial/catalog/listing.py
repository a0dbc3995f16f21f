"""The catalog as it is shown: everything, or what is known of one kind of hardware."""

from dataclasses import dataclass
from operator import attrgetter

from seatrial.catalog import DeviceFigure, Reference, TrainingFigure, devices, known_hardware, references, trainings
from seatrial.model.errors import InputError


@dataclass(frozen=True, slots=True)
class Listing:
    """Collectives in the order they are read (hardware, nodes, fabric, collective, size), then figures per device and
    those of trainings."""

    collectives: tuple[Reference, ...]
    devices: tuple[DeviceFigure, ...]
    trainings: tuple[TrainingFigure, ...]


_order = attrgetter("hardware", "nodes", "gpus_per_node", "fabric", "collective", "algorithm", "message_bytes", "kind")


def listed(hardware: str | None = None) -> Listing:
    """What the catalog has, of `hardware` alone where it is given. Raises InputError for a name it does not know."""
    if hardware is not None and hardware not in known_hardware():
        raise InputError(f"--hardware {hardware}: unknown; known: {', '.join(known_hardware())}")
    return Listing(
        tuple(sorted((r for r in references() if hardware in (None, r.hardware)), key=_order)),
        tuple(sorted((d for d in devices() if hardware in (None, d.hardware)), key=attrgetter("hardware", "metric"))),
        tuple(t for t in trainings() if hardware in (None, t.hardware)),
    )
