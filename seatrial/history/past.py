"""Readings of earlier runs as dense arrays for the judge, by machine and not by name."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from seatrial.detection.noise import locations
from seatrial.detection.readings import Bools, Floats, Ints
from seatrial.history.rows import Readings, RunRow
from seatrial.model.measurement import Measurement
from seatrial.model.result import now
from seatrial.model.setup import Hardware
from seatrial.model.verdict import Verdict

if TYPE_CHECKING:
    from seatrial.history.store import Store


EarlierNames = Mapping[str, str | None]  # by the present name; None: it was not there
EarlierSeries = Mapping[int, str | None]  # by index; None: the machine was not there
Ids = Mapping[str, frozenset[str]]  # of hardware, by node
Match = tuple[int, str, str]  # shared ids, the node, its earlier name
_REFERENCE_RUNS = 30  # a month of nightly runs
RECENT_RUNS = 5  # a working week of nightly runs
_CHANGES_SHOWN = 3


def earlier_names(current: Hardware, earlier: Hardware) -> EarlierNames:
    """Return the names of nodes in an earlier run where they differ; None for other hardware of the
    same name.

    A machine is the same if half of its ids are, so one with a new GPU or board stays the same. If
    fewer than half of the nodes are machines of that run, machines change with every run, as in
    clouds, and names count.
    """
    if current == earlier:
        return {}
    own = _distinctive(current)
    before = _distinctive(earlier)
    same = _same_machines(own, before)
    if 2 * len(same) < min(len(own), len(before)):
        same = {}
    taken = set(same.values())
    names: dict[str, str | None] = {}
    for node, hardware in current.items():
        was = same.get(node, node)
        has_other_ids = bool(same) and node in own and node in before
        replaced = node not in same and (node in taken or has_other_ids)
        if not replaced and was in earlier:
            replaced = hardware.replaces(earlier[was])
        if replaced:
            names[node] = None
        elif was != node:
            names[node] = was
    return names


def _distinctive(hardware: Hardware) -> Ids:
    """Return the ids by node that no other node of the run has: containers have those of their host
    or image.
    """
    count: Counter[str] = Counter()
    for node in hardware.values():
        count.update(node.ids)
    distinctive = {}
    for name, node in hardware.items():
        ids = [hardware_id for hardware_id in node.ids if count[hardware_id] == 1]
        if ids:
            distinctive[name] = frozenset(ids)
    return distinctive


def _same_machines(own: Ids, before: Ids) -> dict[str, str]:
    """Return the earlier name of each recognised node; if parts moved, the one with more of them
    has the name.
    """
    was_in: dict[str, str] = {}
    for name, ids in before.items():
        was_in |= dict.fromkeys(ids, name)
    matches = []
    for node, ids in own.items():
        shared = Counter(was_in[i] for i in ids if i in was_in)
        for was, count in shared.items():
            most = max(len(ids), len(before[was]))
            if 2 * count >= most:
                matches.append((count, node, was))
    same: dict[str, str] = {}
    taken = set[str]()
    for _, node, was in sorted(matches, key=_closest_first):
        if node not in same and was not in taken:
            same[node] = was
            taken.add(was)
    return same


def _closest_first(match: Match) -> tuple[int, bool, Match]:
    count, node, was = match
    return -count, node != was, match


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


@dataclass(frozen=True, slots=True)
class Machines:
    """The nodes of a run, and their measurements by series."""

    hardware: Hardware = field(default_factory=dict)
    measured: Mapping[str, Measurement] = field(default_factory=dict)

    def earlier_series(self, names: Sequence[str], then: Sequence[Hardware]) -> list[EarlierSeries]:
        """Return the series of the same machine in each run of `then`, by index in `names`, where
        names differ.
        """
        by_change: dict[frozenset[tuple[str, str | None]], EarlierSeries] = {frozenset(): {}}
        series: list[EarlierSeries] = []
        for earlier, hardware in zip((None, *then), then, strict=False):
            if hardware == earlier:  # as in most runs
                series.append(series[-1])
                continue
            was = earlier_names(self.hardware, hardware)
            change = frozenset(was.items())
            if change not in by_change:
                by_change[change] = self._renamed(names, was)
            series.append(by_change[change])
        return series

    def _renamed(self, names: Sequence[str], was: EarlierNames) -> EarlierSeries:
        """Return the earlier series of nodes that had other names, by index in `names`."""
        renamed = {}
        for i, name in enumerate(names):
            m = self.measured.get(name)
            if m is None:
                continue
            if any(node in was for node in m.subject.nodes):
                renamed[i] = _renamed(m, was)
        return renamed


def _renamed(m: Measurement, earlier: EarlierNames) -> str | None:
    """Return the series of `m` under the earlier names of its nodes."""
    subject = m.subject
    nodes = []
    for node in subject.nodes:
        was = earlier.get(node, node)
        if was is None:
            return None
        nodes.append(was)
    name = "--".join(nodes)
    if subject.kind != "link":
        name = nodes[0] + subject.name.removeprefix(subject.nodes[0])
    return replace(m, subject=replace(subject, name=name)).series()


@dataclass(frozen=True, slots=True)
class PastRuns:
    """Readings of M series in the last runs (T, oldest first), in the unit of each series; NaN: not
    measured.

    Arrays are (T, M): the first reading of each run, the mean of the others, the location of all,
    the squares of their distances from their mean, as shares of that, in all, and their number.
    `good`: the series was judged `pass` or not at all, in a run that is not `corrupt`. `changed` is
    the software that is not that of the newest run that passed, "" where all is.
    """

    runs: Sequence[RunRow]
    first: Floats
    rest: Floats
    location: Floats
    within: Floats
    count: Ints
    good: Bools
    changed: str


def past_runs(
    store: "Store",
    cluster: str,
    suite: str,
    fingerprint: Mapping[str, str],
    names: Sequence[str],
    before: datetime,
    machines: Machines | None = None,
    chosen: Sequence[RunRow] | None = None,
) -> PastRuns:
    """Read the series `names` of earlier runs of `suite`; with `machines`, by hardware and not by
    name.

    `chosen` are the runs to read, the oldest first; the newest ones and those that passed when
    None.

    Raises SeatrialError when the store cannot be read.
    """
    runs = _runs_before(store, cluster, suite, before) if chosen is None else list(chosen)
    run_ids = [run.run_id for run in runs]
    readings = _readings(store, run_ids, names, machines or Machines())
    changed = ""
    if passed := [run for run in runs if run.passed]:
        changed = changes(passed[-1].fingerprint, fingerprint)
    return _dense(runs, readings, len(names), changed)


def _runs_before(store: "Store", cluster: str, suite: str, before: datetime) -> list[RunRow]:
    most = _REFERENCE_RUNS + RECENT_RUNS
    newest = store.runs_before(cluster, suite, before, most)
    passed = store.runs_before(cluster, suite, before, most, Verdict.PASS)
    by_id = {run.run_id: run for run in (*newest, *passed)}
    return chosen_runs(by_id.values())


def chosen_runs(runs: Iterable[RunRow]) -> list[RunRow]:
    """Choose the runs to compare the next one of the same cluster and suite with, oldest first.

    The newest few are taken whatever their verdict. The others are those that passed, however old,
    so that a fault that stays for months does not displace what was healthy; other runs fill up
    where too few passed.
    """
    newest_first = sorted(runs, key=_age, reverse=True)
    recent = newest_first[:RECENT_RUNS]
    older = newest_first[RECENT_RUNS:]
    passed = [run for run in older if run.passed]
    others = [run for run in older if not run.passed]
    references = [*passed, *others][:_REFERENCE_RUNS]
    return sorted([*recent, *references], key=_age)


def _age(run: RunRow) -> tuple[datetime, str]:
    return run.started, run.run_id


def at_other_ranks(
    store: "Store", cluster: str, measurements: Sequence[Measurement]
) -> dict[str, dict[int, str]]:
    """Return stored series that differ only in the number of ranks, by series and ranks.

    Raises SeatrialError.
    """
    stored: dict[object, dict[int, str]] = defaultdict(dict)
    for m in store.series_of_cluster(cluster):
        ranks = m.conditions.get("ranks")
        if type(ranks) is int:
            stored[_but_ranks(m)][ranks] = m.series()
    others = {}
    for m in measurements:
        if "ranks" not in m.conditions:
            continue
        name = m.series()
        alike = stored.get(_but_ranks(m), {})
        others[name] = {ranks: other for ranks, other in alike.items() if other != name}
    return {name: at_ranks for name, at_ranks in others.items() if at_ranks}


def _but_ranks(m: Measurement) -> tuple[object, ...]:
    conditions = dict(m.conditions)
    conditions.pop("ranks", None)
    return m.metric, m.unit, m.subject, frozenset(conditions.items())


def _readings(
    store: "Store", run_ids: Sequence[str], names: Sequence[str], machines: Machines
) -> Readings:
    """Return the readings of the same machines for the series `names`, as indexes of both lists."""
    hardware: Mapping[str, Hardware] = {}
    if machines.hardware:
        hardware = store.hardware(run_ids)
    then = [hardware.get(run_id, {}) for run_id in run_ids]
    changed = machines.earlier_series(names, then)
    requested = dict.fromkeys(names)
    for series in changed:
        requested |= dict.fromkeys(filter(None, series.values()))
    place = {name: i for i, name in enumerate(requested)}
    shape = len(run_ids), len(place)
    column = np.full(shape, -1)
    column[:, : len(names)] = np.arange(len(names))
    for columns, series in zip(column, changed, strict=True):
        columns[list(series)] = -1
        for i, name in series.items():
            if name is not None:
                columns[place[name]] = i
    readings = store.readings(run_ids, list(place))
    return readings.moved(column[readings.run, readings.series])


def _dense(runs: Sequence[RunRow], readings: Readings, series: int, changed: str) -> PastRuns:
    shape = len(runs), series
    size = len(runs) * series
    cell = readings.run * series + readings.series
    value = readings.value
    count = np.bincount(cell, minlength=size)
    has_any = count > 0
    start = np.cumsum(count) - count
    in_turn = value[np.argsort(cell, kind="stable")]
    first = _at(in_turn, start, has_any)
    sums = np.bincount(cell, value, minlength=size)
    rest = np.full(size, np.nan)
    np.divide(sums - first, count - 1, out=rest, where=count > 1)
    mean = sums / np.maximum(count, 1)
    bad_cell = cell[~readings.good]
    has_bad = np.bincount(bad_cell, minlength=size) > 0
    good = (has_any & ~has_bad).reshape(shape)
    is_whole = [run.verdict is not Verdict.CORRUPT for run in runs]
    whole = np.array(is_whole, dtype=bool)
    return PastRuns(
        runs,
        first=first.reshape(shape),
        rest=rest.reshape(shape),
        location=locations(in_turn, start, count).reshape(shape),
        within=_squares(cell, value, mean).reshape(shape),
        count=count.reshape(shape),
        good=good & whole[:, None],
        changed=changed,
    )


def _squares(cell: Ints, value: Floats, mean: Floats) -> Floats:
    """Return the sum of squares of each cell's values around their mean, as shares of it; 0 of a
    single one.
    """
    usual = mean[cell]
    ratios = np.divide(value, usual, out=np.ones(value.size), where=usual > 0)
    distances = ratios - 1
    sums = np.bincount(cell, distances**2, minlength=mean.size)
    return np.asarray(sums, dtype=np.float64)


def _at(values: Floats, places: Ints, exists: Bools) -> Floats:
    """Return the values at `places` where `exists`, NaN elsewhere."""
    taken = np.full(places.shape, np.nan)
    taken[exists] = values[places[exists]]
    return taken


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Format changed software: "nccl 2.27 -> 2.28, driver 570 -> 575"; digests are shortened."""
    parts = []
    for key in sorted({*before, *now}):
        was = before.get(key)
        version = now.get(key)
        if was != version:
            parts.append(f"{key} {_short(was)} -> {_short(version)}")
    more = len(parts) - _CHANGES_SHOWN
    if more > 0:
        parts[_CHANGES_SHOWN:] = [f"{more} more"]
    return ", ".join(parts)


def _short(version: str | None) -> str:
    if version is None:
        return "unknown"
    name, _, digest = version.partition("@sha256:")
    if not digest:
        return version
    image = name.rsplit("/", 1)[-1]
    return f"{image}@{digest[:12]}"
