"""Everything that is known about what a measurement should be, best source first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seatrial.catalog.match import from_catalog
from seatrial.catalog.training import from_training
from seatrial.history.rows import Pin
from seatrial.judge.baselines.history import from_history
from seatrial.judge.baselines.nights import Nights
from seatrial.judge.baselines.physics import from_links, from_physics, wire
from seatrial.judge.baselines.pinned import from_pin
from seatrial.judge.baselines.reach import from_reach
from seatrial.judge.node_groups import NodeGroups
from seatrial.model.arms import INTRA, NETWORK, arm_of
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement
from seatrial.model.setup import Setup, is_busbw, part_of, ranks_of


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What the judge may know: the cluster's facts and, by series, what was pinned and what passing runs measured.

    `nights` are those runs as a whole, which the judge of fleets learns from. `nodes` are the names of all nodes of the
    run; empty where only their number is known. `groups` are the nodes that are alike.
    """

    setup: Setup
    pinned: Mapping[str, Pin] = field(default_factory=dict)
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)
    nights: Nights | None = None
    nodes: Sequence[str] = ()
    groups: NodeGroups = field(default_factory=NodeGroups)


def baselines_for(
    measurement: Measurement,
    knowledge: Knowledge,
    siblings: Sequence[Measurement] = (),
    learned: Baseline | None = None,
) -> list[Baseline]:
    """Physics where it bounds the measurement, then pinned, history and catalog (or the model fitted to it).

    `siblings` are the check's measurements: they tell up to which size a plateau was swept. `learned` is the history as
    the judge of fleets sees it; without it the few values there are speak for themselves.
    """
    series = measurement.series()
    pin, setup = knowledge.pinned.get(series), part_of(measurement, knowledge.setup)
    sizes = _swept_sizes(measurement, siblings)
    candidates = (
        from_physics(measurement, setup),
        from_pin(measurement, pin) if pin else None,
        learned or from_history(measurement, knowledge.history.get(series, ())),
        from_training(measurement, setup)
        or _from_catalog(measurement, setup, sizes)
        or from_reach(measurement, setup, sizes),
        from_links(measurement, setup, max(sizes, default=None)),
    )
    return [baseline for baseline in candidates if baseline]


def _from_catalog(measurement: Measurement, setup: Setup, sizes: Sequence[int]) -> Baseline | None:
    """Only a run over every GPU compares: with 7 of 8 the number is lower and the cluster another."""
    if not is_busbw(measurement) or ranks_of(measurement, setup) != setup.nodes * setup.gpus_per_node:
        return None
    plateau = measurement.metric == "busbw_plateau"
    size = max(sizes, default=None) if plateau else measurement.conditions.get("message_bytes")
    if not isinstance(size, int):
        return None
    algorithm, arm = measurement.conditions.get("algorithm"), arm_of(measurement)
    published_arm = "" if arm == INTRA else arm  # on one node NCCL takes NVLink by itself
    operation = str(measurement.conditions["operation"])
    baseline = from_catalog(setup, operation, size, plateau, algorithm=algorithm, arm=published_arm)
    return None if baseline and _is_beyond_the_network(measurement, baseline, setup) else baseline


def _is_beyond_the_network(measurement: Measurement, baseline: Baseline, setup: Setup) -> bool:
    """Whether a source expects of the network more than its links carry: who reaches that is well, others may be."""
    links = wire(measurement, setup) if arm_of(measurement) == NETWORK else None
    low = baseline.low or 0.0
    return links is not None and measurement.value < low and links.gb_s < low


def _swept_sizes(plateau: Measurement, siblings: Sequence[Measurement]) -> list[int]:
    """The messages in bytes of the sweep that `plateau` summarises; the largest, where their rates were not kept."""
    sweep = {key: value for key, value in plateau.conditions.items() if key != "max_bytes"}
    sizes = {
        size
        for m in siblings
        for size in [m.conditions.get("message_bytes")]
        if isinstance(size, int) and arm_of(m) == arm_of(plateau) and sweep.items() <= m.conditions.items()
    }
    largest = plateau.conditions.get("max_bytes")
    return sorted(sizes) or ([largest] if isinstance(largest, int) and arm_of(plateau) == INTRA else [])
