"""Readings of earlier runs as dense arrays for the judge, by machine and not by name."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from seatrial.detection.noise import accepted_runs, locations, median_of, scatters
from seatrial.detection.readings import Bools, Floats, Ints
from seatrial.history.machines import EarlierSeries, Machines
from seatrial.history.rows import Readings, RunRow
from seatrial.model.measurement import Measurement
from seatrial.model.result import now
from seatrial.model.setup import Hardware
from seatrial.model.verdict import Verdict

if TYPE_CHECKING:
    from seatrial.history.store import Store


_REFERENCE_RUNS = 30  # a month of nightly runs
RECENT_RUNS = 5  # a working week of nightly runs
_CHANGES_SHOWN = 3


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
class PastRuns:
    """Readings of M series in the last runs (T, oldest first), in the unit of each series; NaN: not
    measured.

    Arrays are (T, M): `first` is the first reading of a run, `rest` the mean of the others,
    `location` the location of all, `within` their sum of squares around their mean, relative to it,
    and `count` their number. `good`: the series was judged `pass` or not at all, or read low once
    between two such runs, in a run that is not `corrupt`. `changed` is the software that differs
    from the newest run that passed, "" if none does.
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
    if chosen is None:
        chosen = _runs_before(store, cluster, suite, before)
    runs = list(chosen)
    run_ids = [run.run_id for run in runs]
    readings = _readings(store, run_ids, names, machines or Machines())
    passed = [run for run in runs if run.passed]
    changed = ""
    if passed:
        newest = passed[-1]
        changed = changes(newest.fingerprint, fingerprint)
    return _dense(runs, readings, len(names), changed)


def _runs_before(store: "Store", cluster: str, suite: str, before: datetime) -> list[RunRow]:
    """Return the runs to compare with, out of all that the store has."""
    most = _REFERENCE_RUNS + RECENT_RUNS
    newest = store.runs_before(cluster, suite, before, most)
    passed = store.runs_before(cluster, suite, before, most, Verdict.PASS)
    by_id = {}
    for run in (*newest, *passed):
        by_id[run.run_id] = run
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
    """Return the key that sorts runs by their start."""
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
        at_ranks = {ranks: other for ranks, other in alike.items() if other != name}
        if at_ranks:
            others[name] = at_ranks
    return others


def _but_ranks(m: Measurement) -> tuple[object, ...]:
    """Return the key of a series without its number of ranks."""
    conditions = dict(m.conditions)
    conditions.pop("ranks", None)
    others = frozenset(conditions.items())
    return m.metric, m.unit, m.subject, others


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
    series_read = list(requested)
    readings = store.readings(run_ids, series_read)
    index = _indexes(len(names), series_read, changed)
    moved = index[readings.run, readings.series]
    return readings.moved(moved)


def _indexes(names: int, requested: Sequence[str], changed: Sequence[EarlierSeries]) -> Ints:
    """Return the index in the current names that each requested series has in each run; -1 for
    none.

    The first `names` of `requested` are the current names.
    """
    place = {name: i for i, name in enumerate(requested)}
    index = np.full((len(changed), len(requested)), -1)
    index[:, :names] = np.arange(names)
    for of_run, series in zip(index, changed, strict=True):
        of_run[list(series)] = -1
        for i, name in series.items():
            if name is not None:
                of_run[place[name]] = i
    return index


def _dense(runs: Sequence[RunRow], readings: Readings, series: int, changed: str) -> PastRuns:
    """Gather the readings of each series in each run, a cell of (T, M)."""
    shape = (len(runs), series)
    size = len(runs) * series
    cell = readings.run * series + readings.series
    value = readings.value
    count = np.bincount(cell, minlength=size)
    start = np.cumsum(count) - count
    order = np.argsort(cell, kind="stable")
    in_turn = value[order]
    has_any = count > 0
    first = _at(in_turn, start, has_any)
    total = np.bincount(cell, value, minlength=size)
    sums: Floats = total.astype(np.float64, copy=False)
    mean = sums / np.maximum(count, 1)
    bad_cell = cell[~readings.good]
    bad = np.bincount(bad_cell, minlength=size)
    counts = count.reshape(shape)
    good = has_any & (bad == 0)
    accepted = accepted_runs(good.reshape(shape), counts)
    is_whole = _are_whole(runs)[:, None]
    scatter = scatters(in_turn, start, count).reshape(shape)
    usual = median_of(scatter)
    noise = np.tile(usual, len(runs))
    return PastRuns(
        runs,
        first=first.reshape(shape),
        rest=_mean_of_others(first, sums, count).reshape(shape),
        location=locations(in_turn, start, count, noise).reshape(shape),
        within=_squares(cell, value, mean).reshape(shape),
        count=counts,
        good=accepted & is_whole,
        changed=changed,
    )


def _are_whole(runs: Sequence[RunRow]) -> Bools:
    """Mask of the runs whose results were right."""
    is_whole = [run.verdict is not Verdict.CORRUPT for run in runs]
    mask: Bools = np.array(is_whole, dtype=bool)
    return mask


def _mean_of_others(first: Floats, sums: Floats, count: Ints) -> Floats:
    """Return the mean of each cell's values after the first; NaN for a single value."""
    mean = np.full(count.size, np.nan)
    np.divide(sums - first, count - 1, out=mean, where=count > 1)
    return mean


def _squares(cell: Ints, value: Floats, mean: Floats) -> Floats:
    """Return the sum of squares of each cell's values around their mean, relative to it; 0 for a
    single value.
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
            change = f"{_short(was)} -> {_short(version)}"
            parts.append(f"{key} {change}")
    more = len(parts) - _CHANGES_SHOWN
    if more > 0:
        parts[_CHANGES_SHOWN:] = [f"{more} more"]
    return ", ".join(parts)


def _short(version: str | None) -> str:
    """Shorten the version of an image to its name and the beginning of its digest."""
    if version is None:
        return "unknown"
    name, _, digest = version.partition("@sha256:")
    if not digest:
        return version
    image = name.rsplit("/", 1)[-1]
    return f"{image}@{digest[:12]}"
