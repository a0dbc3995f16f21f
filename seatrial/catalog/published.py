"""Everything that links, catalog, model and published trainings say about one measurement. Pure."""

from collections.abc import Callable, Iterable, Sequence

from seatrial.catalog.match import from_catalog
from seatrial.catalog.physics import from_links, from_physics, wire
from seatrial.catalog.reach import from_reach
from seatrial.catalog.training import from_training
from seatrial.model.arms import INTRA, NETWORK, arm_of
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement
from seatrial.model.setup import Setup, is_busbw, part_of, ranks_of

_OF_ONE_SIZE = frozenset({"message_bytes", "placement"})  # conditions that differ between the rows of a sweep


def published(measurement: Measurement, setup: Setup, sizes: Sequence[int]) -> list[Baseline]:
    """The baselines that need no earlier run: physics, and a figure of the catalog or of the model fitted to it.

    `sizes` are the message sizes in bytes of the sweep that the measurement belongs to (`swept_sizes`).
    """
    setup = part_of(measurement, setup)
    candidates = (
        from_physics(measurement, setup),
        from_training(measurement, setup)
        or _from_catalog(measurement, setup, sizes)
        or from_reach(measurement, setup, sizes),
        from_links(measurement, setup, max(sizes, default=None)),
    )
    return [baseline for baseline in candidates if baseline]


def swept_sizes(measurements: Iterable[Measurement]) -> Callable[[Measurement], list[int]]:
    """Index the message sizes in bytes of each sweep; the result returns those that a measurement belongs to.

    In the arm `intra` the rates of single sizes are not kept, so the largest size stands for all.
    """
    by_sweep: dict[object, set[int]] = {}
    for m in measurements:
        size = m.conditions.get("message_bytes")
        if isinstance(size, int):
            by_sweep.setdefault(_sweep(m), set()).add(size)

    def sizes_of(measurement: Measurement) -> list[int]:
        largest = measurement.conditions.get("max_bytes")
        alone = [largest] if isinstance(largest, int) and arm_of(measurement) == INTRA else []
        return sorted(by_sweep.get(_sweep(measurement), ())) or alone

    return sizes_of


def _sweep(m: Measurement) -> object:
    return frozenset((key, value) for key, value in m.conditions.items() if key not in (*_OF_ONE_SIZE, "max_bytes"))


def _from_catalog(measurement: Measurement, setup: Setup, sizes: Sequence[int]) -> Baseline | None:
    """The catalog's row for a run over every GPU: with 7 of 8 the number is lower and the cluster another."""
    if not is_busbw(measurement) or ranks_of(measurement, setup) != setup.nodes * setup.gpus_per_node:
        return None
    plateau = measurement.metric == "busbw_plateau"
    size = max(sizes, default=None) if plateau else measurement.conditions.get("message_bytes")
    if not isinstance(size, int):
        return None
    algorithm, arm = measurement.conditions.get("algorithm"), arm_of(measurement)
    published_arm = "" if arm == INTRA else arm  # on one node NCCL takes NVLink by itself
    operation, ring = str(measurement.conditions["operation"]), wire(measurement, setup)
    ring_gb_s = ring.gb_s if ring else None
    baseline = from_catalog(setup, operation, size, plateau, algorithm, published_arm, ring_gb_s)
    return None if baseline and _is_beyond_the_network(measurement, baseline, setup) else baseline


def _is_beyond_the_network(measurement: Measurement, baseline: Baseline, setup: Setup) -> bool:
    """Whether a source expects of the network more than its links carry: who reaches that is well, others may be."""
    links = wire(measurement, setup) if arm_of(measurement) == NETWORK else None
    low = baseline.low or 0.0
    return links is not None and measurement.value < low and links.gb_s < low
