"""Baselines that a person approves: pinned from a stored run, and compared with another one.

A run that passed pins what concerns the cluster as a whole: nodes, GPUs and links are compared with
their own past and their peers, which is sharper than any pin. A run that did not pass is approved
as it is, so that every number of it is pinned, and judged by its pin alone until that expires.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from seatrial.catalog import with_links
from seatrial.catalog.physics import refuse_beyond_physics
from seatrial.checks.metrics import tolerance_of
from seatrial.history.past import past_runs
from seatrial.history.rows import Pin, RunRow
from seatrial.model.errors import InputError
from seatrial.model.measurement import Measurement, once
from seatrial.model.setup import Setup
from seatrial.text.escape import code, escape
from seatrial.text.words import count

if TYPE_CHECKING:
    from seatrial.history.store import Store

MIN_SAMPLES = 3
ENOUGH_TO_BE_TIGHT = 8  # values; fewer say too little about their spread
_REACH = 8.0  # scales of t noise: one healthy value in 3000 lies further out on the bad side
_LEAST_SCALE = 0.003
_MAD = 1.4826  # the standard deviation of normal values over their median absolute deviation


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval by a person, `by` and `at`, with a `note`; `forced` is the reason to approve a
    run that would be refused.
    """

    by: str
    at: datetime
    note: str = ""
    forced: str = ""

    @property
    def text(self) -> str:
        """What is kept with the pins: why it was forced, and the note."""
        forced = f"forced: {self.forced}" if self.forced else ""
        return "; ".join(filter(None, (forced, self.note)))


def pins(
    run: RunRow,
    measured: Sequence[Measurement],
    earlier: Mapping[str, Sequence[float]],
    approval: Approval,
    setup: Setup | None = None,
) -> list[Pin]:
    """Return a pin for each series of `run` that concerns the cluster (for each at all where a bad
    run is forced).

    `earlier` are the values by series of passing runs with the same software, this one among them
    if it passed. Raises InputError for a run that did not pass or rests on too few values, unless
    it is forced; and, forced or not, for a number that the links of `setup` have no room for.
    """
    bad = not run.passed
    if bad and not approval.forced:
        raise InputError(
            f"run {run.run_id}: is {run.verdict.value}, not pass; --force REASON approves "
            "it all the same"
        )
    chosen = [m for m in once(measured) if m.better and m.finite and m.value > 0]
    chosen = [m for m in chosen if bad or m.subject.kind in ("cluster", "group")]
    if not chosen:
        raise InputError(f"run {run.run_id}: holds no number of the cluster that could be pinned")
    values = {
        m.series(): [v for v in earlier.get(m.series(), ()) if v > 0] or [m.value] for m in chosen
    }
    few = next((m for m in chosen if len(values[m.series()]) < MIN_SAMPLES), None)
    if few and not approval.forced:
        runs = count(len(values[few.series()]), "passing run")
        raise InputError(
            f"run {run.run_id}: {few.metric} rests on {runs} with this software, {MIN_SAMPLES} "
            "are needed:"
            " run the suite again, or --force REASON"
        )
    new_pins = [_pin(m, [m.value] if bad else values[m.series()], run, approval) for m in chosen]
    if setup:
        linked = with_links(setup)
        try:
            for m, pin in zip(chosen, new_pins, strict=True):
                refuse_beyond_physics(m, pin.centre, linked)
        except InputError as error:
            raise InputError(f"run {run.run_id}: {error}") from error
    return new_pins


def _pin(m: Measurement, values: Sequence[float], run: RunRow, approval: Approval) -> Pin:
    """Return the pin of a series: the median of its values, and how far the bad side may be from
    it.
    """
    centre = median(values)
    width = _width(m, values)
    low = None
    high = None
    if m.better == "lower":
        high = centre * math.exp(width)
    else:
        low = centre * math.exp(-width)
    return Pin(
        series=m.series(),
        centre=centre,
        low=low,
        high=high,
        unit=m.unit,
        pinned_by=approval.by,
        pinned_at=approval.at,
        run_id=run.run_id,
        note=approval.text,
    )


def _width(m: Measurement, values: Sequence[float]) -> float:
    """Return the width in natural logs: by the spread of many values, else by the metric's
    tolerance.

    The median of n normal values has the variance pi/(2n) of one, which is what the root adds.
    """
    logs = [math.log(value) for value in values]
    tolerance = tolerance_of(m)
    centre = median(logs)
    spread = median(abs(log - centre) for log in logs)
    sigma = max(_MAD * spread, tolerance.sigma) * math.sqrt(1 + math.pi / (2 * len(logs)))
    allowed = min(3 * sigma, math.log(tolerance.cap))
    if len(values) < ENOUGH_TO_BE_TIGHT:
        return allowed
    scale = spread / 0.7407 * (1 + 2 / math.sqrt(len(logs)))
    return min(allowed, _REACH * max(scale, _LEAST_SCALE))


@dataclass(frozen=True, slots=True)
class PinDifference:
    """A number of a run beside its pin; `deviation` is value over centre minus one, `inside`
    whether the pin allows it.

    `value` is None where the run did not measure it.
    """

    pin: Pin
    value: float | None
    deviation: float | None
    inside: bool | None


def differences(pinned: Mapping[str, Pin], measured: Sequence[Measurement]) -> list[PinDifference]:
    """Return every pin beside what the run measured, the furthest off first, what was not measured
    last.
    """
    values = {m.series(): m.value for m in once(measured) if m.finite}
    all_differences = [_difference(pin, values.get(series)) for series, pin in pinned.items()]
    return sorted(
        all_differences, key=lambda d: (d.value is None, -abs(d.deviation or 0.0), d.pin.series)
    )


def _difference(pin: Pin, value: float | None) -> PinDifference:
    """Return a pin beside a value; None for a pin that the run did not measure.

    A side without a limit is open.
    """
    if value is None:
        return PinDifference(pin, None, None, None)
    is_above = pin.low is None or value >= pin.low
    is_below = pin.high is None or value <= pin.high
    deviation = value / pin.centre - 1 if pin.centre else None
    return PinDifference(pin, value, deviation, inside=is_above and is_below)


def stored_run(store: "Store", run_id: str) -> RunRow:
    """Return the run of that id.

    Raises InputError, which names the newest runs, if there is no such run.
    """
    run = store.run(run_id)
    if run is None:
        newest = ", ".join(row.run_id for row in store.runs(limit=3)) or "none"
        raise InputError(f"run {run_id}: is not in the history; the newest there: {newest}")
    return run


def differences_to(store: "Store", run_id: str) -> str:
    """Return the verdict of a run and its differences from the present pins, for its approval.

    Markdown, with texts of the run escaped; the 20 furthest off. Raises InputError when there is no
    such run.
    """
    run = stored_run(store, run_id)
    pin_differences = [
        d
        for d in differences(store.pinned(run.cluster), store.measurements(run_id))
        if d.deviation is not None
    ]
    came_to = f"on {run.cluster}, suite {run.suite}: {run.verdict.value}. {run.reason}"
    lines = [f"**{escape(run.run_id)}** {escape(came_to)}", ""]
    if not run.passed:
        lines += ["It did not pass: to approve it all the same, `force` needs the reason.", ""]
    lines += [
        f"- `{code(d.pin.series)}`: {d.deviation:+.1%} from what is pinned"
        for d in pin_differences[:20]
    ]
    if not pin_differences:
        lines.append("Nothing that it measured is pinned so far.")
    return "\n".join(lines)


def promote(store: "Store", run_id: str, approval: Approval) -> list[Pin]:
    """Pin the numbers of a run, and return the pins.

    Raises InputError for one that is unknown, bad, or rests on too little.
    """
    run = stored_run(store, run_id)
    result = store.result(run_id)
    measured = store.measurements(run_id)
    names = list(dict.fromkeys(m.series() for m in measured))
    # What passing runs with the same software have, up to this one.
    past = past_runs(
        store,
        run.cluster,
        run.suite,
        run.fingerprint,
        names,
        run.started + timedelta(microseconds=1),
    )
    alike = [i for i, r in enumerate(past.runs) if r.passed and r.fingerprint == run.fingerprint]
    values = np.where(past.good[alike], past.location[alike], np.nan)
    earlier = {
        name: column[np.isfinite(column)].tolist()
        for name, column in zip(names, values.T, strict=True)
    }
    new_pins = pins(run, measured, earlier, approval, result.setup if result else None)
    store.pin(run.cluster, new_pins)
    return new_pins
