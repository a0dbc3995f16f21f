"""Everything that is known about what a measurement should be, best source first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seatrial.catalog.published import published, swept_sizes
from seatrial.history.rows import Pin
from seatrial.judge.baselines.history import from_history
from seatrial.judge.baselines.nights import Nights
from seatrial.judge.baselines.pinned import from_pin
from seatrial.judge.node_groups import NodeGroups
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement
from seatrial.model.setup import Setup


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
    pin = knowledge.pinned.get(measurement.series())
    candidates = (
        from_pin(measurement, pin) if pin else None,
        learned or from_history(measurement, knowledge.history.get(measurement.series(), ())),
    )
    sizes = swept_sizes(siblings)(measurement)
    return [*published(measurement, knowledge.setup, sizes), *(baseline for baseline in candidates if baseline)]
