"""What is known of the numbers of a run: the cluster's facts, approved baselines, and what earlier
runs measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from seatrial.catalog import with_links
from seatrial.catalog.nearest import missing_reference
from seatrial.catalog.physics import wire, with_shares
from seatrial.catalog.published import nearest_figures
from seatrial.detection.noise import AGREEING
from seatrial.detection.references import Past
from seatrial.detection.together import UNKNOWN_DAY
from seatrial.history.past import Machines, PastRuns, at_other_ranks, past_runs
from seatrial.history.rows import Pin
from seatrial.judge.earlier_peers import earlier_peers
from seatrial.judge.node_groups import NodeGroups, group_nodes
from seatrial.judge.series import SeriesTable
from seatrial.model.measurement import Measurement
from seatrial.model.reason import join
from seatrial.model.result import Check, now
from seatrial.model.setup import Setup, hardware_by_node, is_busbw, joined_by_nvlink, ranks_of

if TYPE_CHECKING:
    from seatrial.history.store import Store


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
        count = len(table.first)
        if self.past is None or not self.past.runs:
            none = np.empty((0, count))
            return Past(
                none,
                none,
                none,
                none,
                none.astype(np.int64),
                none.astype(np.bool_),
                np.array([UNKNOWN_DAY]),
            )
        place = {name: i for i, name in enumerate(self.names)}
        at = np.array([place.get(m.series(), -1) for m in table.first], dtype=np.int64)
        recorded = at >= 0
        first, rest, location = (
            np.where(recorded, table.logs(rows[:, at]), np.nan)
            for rows in (self.past.first, self.past.rest, self.past.location)
        )
        within = np.where(recorded, self.past.within[:, at], 0.0)
        readings, good = self.past.count[:, at] * recorded, self.past.good[:, at] & recorded
        days = [run.started.weekday() for run in self.past.runs]
        weekday = np.array(
            [*days, self.started.weekday() if self.started else UNKNOWN_DAY], dtype=np.int64
        )
        return Past(first, rest, location, within, readings, good, weekday)


@dataclass(frozen=True, slots=True)
class RunContext:
    """The runs to compare with: those of the same cluster and suite, before `started`.

    `nodes` are those of the run, as run.json has them; `fingerprint` is its software.
    """

    cluster: str
    suite: str
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    started: datetime = field(default_factory=now)
    nodes: Sequence[Mapping[str, Any]] = ()


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
    measured = {m.series(): m for check in checks for m in check.measurements if m.better}
    names = sorted(measured)
    others = earlier_peers(store, context, hardware, list(measured.values()))
    peers = others.measurements if others else ()
    every = [*names, *(m.series() for m in peers)]
    past = past_runs(
        store,
        context.cluster,
        context.suite,
        context.fingerprint,
        every,
        context.started,
        Machines(hardware, measured),
        others.runs if others else None,
    )
    past = _over_other_ranks(past, [measured[name] for name in names], setup, store, context)
    if others and others.hardware:
        knowledge = replace(
            knowledge, groups=group_nodes({**others.hardware, **hardware}), peers=peers
        )
    return replace(
        knowledge,
        pinned=store.pinned(context.cluster),
        past=past,
        names=every,
        started=context.started,
    )


def _over_other_ranks(
    past: PastRuns, series: Sequence[Measurement], setup: Setup, store: "Store", context: RunContext
) -> PastRuns:
    """Fill series without a past with that of the same collective over another number of ranks.

    It is scaled by what the links allow for either number.
    """
    empty = (
        [i for i, m in enumerate(series) if is_busbw(m) and past.good[:, i].sum() < AGREEING]
        if past.runs
        else []
    )
    earlier = at_other_ranks(store, context.cluster, [series[i] for i in empty]) if empty else {}
    at = [i for i in empty if earlier.get(series[i].series())]
    if not at:
        return past
    nearest = [_nearest(series[i], earlier[series[i].series()]) for i in at]
    then = past_runs(
        store, context.cluster, context.suite, {}, [name for _, name in nearest], context.started
    )
    rates = np.array(
        [_rate(series[i], ranks, setup) for i, (ranks, _) in zip(at, nearest, strict=True)]
    )
    rows = {
        name: getattr(past, name).copy()
        for name in ("first", "rest", "location", "within", "count", "good")
    }
    measured = past.count[:, at] > 0
    for name, values in rows.items():
        carried = getattr(then, name) * (rates if name in ("first", "rest", "location") else 1)
        values[:, at] = np.where(measured, values[:, at], carried)
    return replace(past, **rows)


def _nearest(m: Measurement, earlier: Mapping[int, str]) -> tuple[int, str]:
    """Return the number of ranks that is nearest to that of `m`, with the name of its series."""
    ranks = int(m.conditions["ranks"])
    return min(earlier.items(), key=lambda item: abs(item[0] - ranks))


def _rate(m: Measurement, then: int, setup: Setup) -> float:
    """Return the ratio of what the links allow of a busbw now and over `then` ranks; 1 if
    unknown.
    """
    slots = max(1, setup.slots_per_node)
    earlier = replace(m, conditions={**m.conditions, "ranks": then})
    now_gb_s, then_gb_s = (
        limit and limit.gb_s
        for limit in (
            wire(each, replace(setup, nodes=max(1, ranks_of(each, setup) // slots)))
            for each in (m, earlier)
        )
    )
    return now_gb_s / then_gb_s if now_gb_s and then_gb_s else 1.0


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
