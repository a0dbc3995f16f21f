"""What is known of the numbers of a run: the cluster's facts, approved baselines, and what earlier
runs measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from seatrial.catalog import with_links
from seatrial.catalog.nearest import missing_reference
from seatrial.catalog.physics import wire, with_shares
from seatrial.catalog.published import nearest_figures
from seatrial.detection.noise import AGREEING
from seatrial.detection.readings import Floats, Past
from seatrial.detection.together import UNKNOWN_DAY
from seatrial.history.machines import Machines
from seatrial.history.past import PastRuns, RunContext, at_other_ranks, past_runs
from seatrial.history.rows import Pin
from seatrial.judge.earlier_peers import earlier_peers
from seatrial.judge.node_groups import NodeGroups, group_nodes
from seatrial.judge.series import SeriesTable
from seatrial.model.measurement import Measurement
from seatrial.model.reason import join
from seatrial.model.result import Check
from seatrial.model.setup import Setup, hardware_by_node, is_busbw, joined_by_nvlink, ranks_of

if TYPE_CHECKING:
    from seatrial.history.store import Store


_RATES = ("first", "rest", "location")  # what is scaled from one number of ranks to another


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The cluster's facts, and by series what a person approved and what earlier runs measured.

    `names` are the series of `past`, in its order. `nodes` are the names of all nodes of the run;
    empty where only their number is known. `groups` are the nodes that are alike, `started` is when
    the run began. `peers` are readings of like nodes in other runs, for a run of too few nodes.
    """

    setup: Setup
    pinned: Mapping[str, Pin] = field(default_factory=dict)
    past: PastRuns | None = None
    names: Sequence[str] = ()
    nodes: Sequence[str] = ()
    groups: NodeGroups = field(default_factory=NodeGroups)
    started: datetime | None = None
    peers: Sequence[Measurement] = ()

    def past_of(self, table: SeriesTable) -> Past:
        """Return what earlier runs measured of the series of `table`, as logs."""
        if self.past is None or not self.past.runs:
            none = np.empty((0, len(table.first)))
            return Past(
                first=none,
                rest=none,
                location=none,
                within=none,
                count=none.astype(np.int64),
                good=none.astype(np.bool_),
                weekday=np.array([UNKNOWN_DAY]),
            )
        place = {name: i for i, name in enumerate(self.names)}
        at = np.array([place.get(m.series(), -1) for m in table.first], dtype=np.int64)
        recorded = at >= 0

        def logs(values: Floats) -> Floats:
            """Return the columns of the table, as logs."""
            of_table = table.logs(values[:, at])
            return np.where(recorded, of_table, np.nan)

        days = [run.started.weekday() for run in self.past.runs]
        today = UNKNOWN_DAY
        if self.started:
            today = self.started.weekday()
        return Past(
            first=logs(self.past.first),
            rest=logs(self.past.rest),
            location=logs(self.past.location),
            within=np.where(recorded, self.past.within[:, at], 0.0),
            count=self.past.count[:, at] * recorded,
            good=self.past.good[:, at] & recorded,
            weekday=np.array([*days, today], dtype=np.int64),
        )


def knowledge_of(
    checks: Sequence[Check], setup: Setup, store: "Store | None", context: RunContext | None
) -> Knowledge:
    """Collect what the store and the cluster's facts say about the measurements of `checks`."""
    setup = with_links(setup)
    if context is None:
        return Knowledge(setup)
    hardware = hardware_by_node(context.nodes)
    setup = joined_by_nvlink(setup, hardware.values())
    knowledge = Knowledge(setup, nodes=list(hardware), groups=group_nodes(hardware))
    if store is None:
        return knowledge
    by_name = {m.series(): m for check in checks for m in check.measurements if m.better}
    names = sorted(by_name)
    others = earlier_peers(store, context, hardware, list(by_name.values()))
    peers = others.measurements if others else ()
    names_of_peers = [m.series() for m in peers]
    past = past_runs(
        store,
        context.cluster,
        context.suite,
        context.fingerprint,
        [*names, *names_of_peers],
        context.started,
        Machines(hardware, by_name),
        others.runs if others else None,
    )
    past = _over_other_ranks(past, [by_name[name] for name in names], setup, store, context)
    if others and others.hardware:
        groups = group_nodes({**others.hardware, **hardware})
        knowledge = replace(knowledge, groups=groups, peers=peers)
    return replace(
        knowledge,
        pinned=store.pinned(context.cluster),
        past=past,
        names=[*names, *names_of_peers],
        started=context.started,
    )


def _over_other_ranks(
    past: PastRuns, series: Sequence[Measurement], setup: Setup, store: "Store", context: RunContext
) -> PastRuns:
    """Fill series without a past with that of the same collective over another number of ranks.

    It is scaled by what the links allow for either number.
    """
    if not past.runs:
        return past
    few = past.good.sum(axis=0) < AGREEING
    empty = [i for i, m in enumerate(series) if is_busbw(m) and few[i]]
    if not empty:
        return past
    earlier = at_other_ranks(store, context.cluster, [series[i] for i in empty])
    at = []
    names = []
    rates = []
    for i in empty:
        m = series[i]
        if by_ranks := earlier.get(m.series()):
            ranks, name = _nearest(m, by_ranks)
            at.append(i)
            names.append(name)
            rates.append(_rate(m, ranks, setup))
    if not at:
        return past
    then = past_runs(store, context.cluster, context.suite, {}, names, context.started)
    measured = past.count[:, at] > 0
    filled = {}
    for name in ("first", "rest", "location", "within", "count", "good"):
        carried = getattr(then, name)
        if name in _RATES:
            carried = carried * np.array(rates)
        values = getattr(past, name).copy()
        values[:, at] = np.where(measured, values[:, at], carried)
        filled[name] = values
    return replace(past, **filled)


def _nearest(m: Measurement, earlier: Mapping[int, str]) -> tuple[int, str]:
    """Return the number of ranks that is nearest to that of `m`, with the name of its series."""
    ranks = int(m.conditions["ranks"])

    def distance(number: int) -> int:
        return abs(number - ranks)

    nearest = min(earlier, key=distance)
    return nearest, earlier[nearest]


def _rate(m: Measurement, then: int, setup: Setup) -> float:
    """Return the ratio of the busbw that the links allow now to that over `then` ranks; 1 if
    unknown.
    """
    slots = max(1, setup.slots_per_node)

    def allowed(number: Measurement) -> float | None:
        """Return the busbw in GB/s that the links of all nodes with ranks allow; None if
        unknown.
        """
        nodes = max(1, ranks_of(number, setup) // slots)
        limit = wire(number, replace(setup, nodes=nodes))
        if limit is None:
            return None
        return limit.gb_s

    now_gb_s = allowed(m)
    then_gb_s = allowed(replace(m, conditions={**m.conditions, "ranks": then}))
    if not now_gb_s or not then_gb_s:
        return 1.0
    return now_gb_s / then_gb_s


def explained(checks: Sequence[Check], setup: Setup) -> list[Check]:
    """Add to the judged checks which share of the links each plateau reaches.

    If nothing published compares, the reason says what comes nearest.
    """
    shown = [with_shares(check, setup) for check in checks]
    if not setup.gpus_per_node:
        return shown
    noted = []
    for check in shown:
        notes = (missing_reference(check, setup), *nearest_figures(check, setup))
        noted.append(replace(check, reason=join((check.reason, *notes))))
    return noted
