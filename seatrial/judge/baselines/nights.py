"""The earlier runs that a run is held against."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from seatrial.history.rows import Readings, RunRow
from seatrial.judge.baselines.same_machine import Machines
from seatrial.judge.fleet.grouped import Bools
from seatrial.judge.fleet.odds import Floats
from seatrial.judge.fleet.past import choose
from seatrial.model.node_hardware import NodeHardware
from seatrial.model.verdict import Verdict

if TYPE_CHECKING:
    from seatrial.history.store import Store

OLDEST = timedelta(days=90)  # what is older neither teaches nor bears witness
_CHANGES_TOLD = 3
Reread = Callable[[Sequence[str]], tuple[Sequence[RunRow], Readings]]


@dataclass(frozen=True, slots=True)
class Nights:
    """Reference runs, then recent ones, oldest first, and what they measured of `names` (series); all before `now`.

    `changed` says which software is not that of the reference any more, "" where all is. `reread` reads some series in
    every run of the cluster, those between reference and recent ones included.
    """

    names: Sequence[str]
    runs: Sequence[RunRow]
    references: int
    readings: Readings
    now: datetime
    reread: Reread
    changed: str = ""

    def courses(self, names: Sequence[str]) -> tuple[list[datetime], dict[str, Floats]]:
        """When every run was, oldest first, and what each series came to in it, NaN where it was not measured."""
        runs, readings = self.reread(names)
        courses = {name: np.full(len(runs), np.nan) for name in names}
        for (series, run), taken in _by_run(readings, np.ones(len(readings.run), dtype=bool)).items():
            courses[names[series]][run] = median(taken)
        return [run.started for run in runs], courses

    def values(self) -> dict[str, list[float]]:
        """By series the values that teach, newest run first: of each run that passed the median of the good ones."""
        passed = np.array([run.verdict is Verdict.PASS for run in self.runs], dtype=bool)
        return medians_of_runs(self.readings, self.names, passed)


def medians_of_runs(readings: Readings, names: Sequence[str], teach: Bools) -> dict[str, list[float]]:
    """By series, newest run first, the median of what was good in each run that may `teach`: repeats count once."""
    values: dict[str, list[float]] = defaultdict(list)
    chosen = readings.good & teach[readings.run] if teach.size else np.zeros(len(readings.run), dtype=bool)
    for (series, _), taken in _by_run(readings, chosen).items():
        values[names[series]].append(median(taken))
    return dict(values)


def _by_run(readings: Readings, chosen: Bools) -> dict[tuple[int, int], list[float]]:
    """The chosen values by series and run, newest run first."""
    values: dict[tuple[int, int], list[float]] = defaultdict(list)
    for i in np.flatnonzero(chosen)[::-1]:
        values[int(readings.series[i]), int(readings.run[i])].append(float(readings.value[i]))
    return values


def nights_before(
    store: "Store",
    cluster: str,
    suite: str,
    fingerprint: Mapping[str, str],
    names: Sequence[str],
    now: datetime,
    machines: Machines | None = None,
) -> Nights:
    """What the store holds for a run of `suite` with that software. Raises SeatrialError when it cannot be read."""
    runs = store.runs_since(cluster, suite, now - OLDEST, now)
    passed = np.array([run.verdict is Verdict.PASS for run in runs], dtype=bool)
    same = np.array([run.fingerprint == dict(fingerprint) for run in runs], dtype=bool)
    chosen = choose(passed, same)
    picked = [runs[i] for i in (*chosen.reference, *chosen.recent)]
    changed = _changed(picked[len(chosen.reference) - 1].fingerprint, fingerprint) if chosen.renewed else ""

    def read(some: Sequence[RunRow], series: Sequence[str]) -> Readings:
        run_ids = [run.run_id for run in some]
        if machines is None:
            return store.readings(run_ids, series)
        return machines.readings(series, _by_place(store, run_ids), lambda asked: store.readings(run_ids, asked))

    def reread(some: Sequence[str]) -> tuple[Sequence[RunRow], Readings]:
        return runs, read(runs, some)

    readings = read(picked, names)
    return Nights(names, picked, len(chosen.reference), readings, now, reread, changed)


def _by_place(store: "Store", run_ids: Sequence[str]) -> list[Mapping[str, NodeHardware]]:
    hardware = store.hardware(run_ids)
    return [hardware.get(run_id, {}) for run_id in run_ids]


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """nccl 2.27 -> 2.28, driver 570 -> 575; digests are cut short."""
    keys = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    changes = [f"{key} {_short(before.get(key))} -> {_short(now.get(key))}" for key in keys[:_CHANGES_TOLD]]
    more = [f"{len(keys) - _CHANGES_TOLD} more"] if len(keys) > _CHANGES_TOLD else []
    return ", ".join([*changes, *more])


def _short(version: str | None) -> str:
    if version is None:
        return "unknown"
    name, _, digest = version.partition("@sha256:")
    return f"{name.rsplit('/', 1)[-1]}@{digest[:12]}" if digest else version
