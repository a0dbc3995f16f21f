"""From a run that a person approves to pinned baselines. Pure.

A run that passed pins what concerns the cluster as a whole: nodes, GPUs and links are held against their own past and
their peers, which is sharper than any pin. A run that did not pass is approved as it is, so that every number of it is
pinned, and judged by its pin alone until that expires.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from seatrial.catalog.links import with_links
from seatrial.catalog.physics import refuse_beyond_physics
from seatrial.history.rows import Pin, RunRow
from seatrial.judge.baselines.history import MIN_SAMPLES
from seatrial.judge.tolerance import log_width, tolerance_of
from seatrial.model.errors import InputError
from seatrial.model.measurement import Measurement, once
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict

ENOUGH_TO_BE_TIGHT = 8  # values; fewer say too little about their spread
_REACH = 8.0  # scales of t noise: one healthy value in 3000 lies further out on the bad side
_LEAST_SCALE = 0.003


@dataclass(frozen=True, slots=True)
class Approval:
    """Who says so, when, and why; `forced` is the reason to approve what would be refused."""

    by: str
    at: datetime
    note: str = ""
    forced: str = ""

    @property
    def text(self) -> str:
        return "; ".join(part for part in (f"forced: {self.forced}" if self.forced else "", self.note) if part)


def pins(
    run: RunRow,
    measured: Sequence[Measurement],
    earlier: Mapping[str, Sequence[float]],
    approval: Approval,
    setup: Setup | None = None,
) -> list[Pin]:
    """A pin for each series of `run` that concerns the cluster (for each at all where a bad run is forced).

    `earlier` are the values by series of passing runs with the same software, this one among them if it passed. Raises
    InputError for a run that did not pass or rests on too few values, unless it is forced; and, forced or not, for a
    number that the links of `setup` have no room for.
    """
    bad = run.verdict is not Verdict.PASS
    if bad and not approval.forced:
        raise InputError(f"run {run.run_id}: is {run.verdict.value}, not pass; --force REASON approves it all the same")
    chosen = [m for m in once(measured) if m.better and m.finite and m.value > 0]
    chosen = [m for m in chosen if bad or m.subject.kind in ("cluster", "group")]
    if not chosen:
        raise InputError(f"run {run.run_id}: holds no number of the cluster that could be pinned")
    values = {m.series(): [v for v in earlier.get(m.series(), ()) if v > 0] or [m.value] for m in chosen}
    _refuse_few(run, chosen, values, approval)
    new_pins = [_pin(m, [m.value] if bad else values[m.series()], run, approval) for m in chosen]
    if setup:
        _refuse_impossible(run, zip(chosen, new_pins, strict=True), with_links(setup))
    return new_pins


def _refuse_few(
    run: RunRow, chosen: Sequence[Measurement], values: Mapping[str, Sequence[float]], approval: Approval
) -> None:
    few = [m for m in chosen if len(values[m.series()]) < MIN_SAMPLES]
    if few and not approval.forced:
        known = len(values[few[0].series()])
        raise InputError(
            f"run {run.run_id}: {few[0].metric} rests on {known} passing run{'' if known == 1 else 's'} with this"
            f" software, {MIN_SAMPLES} are needed: run the suite again, or --force REASON"
        )


def _refuse_impossible(run: RunRow, pinned: Iterable[tuple[Measurement, Pin]], setup: Setup) -> None:
    for m, pin in pinned:
        try:
            refuse_beyond_physics(m, pin.centre, setup)
        except InputError as error:
            raise InputError(f"run {run.run_id}: {error}") from error


def _pin(m: Measurement, values: Sequence[float], run: RunRow, approval: Approval) -> Pin:
    centre, width = median(values), _width(m, values)
    low = None if m.better == "lower" else centre * math.exp(-width)
    high = centre * math.exp(width) if m.better == "lower" else None
    return Pin(m.series(), centre, low, high, m.unit, approval.by, approval.at, run.run_id, approval.text)


def _width(m: Measurement, values: Sequence[float]) -> float:
    """On natural logs: what the values themselves show where they are many, else what so few are allowed."""
    allowed = log_width(list(values), tolerance_of(m), 3.0)
    if len(values) < ENOUGH_TO_BE_TIGHT:
        return allowed
    logs = [math.log(value) for value in values]
    centre = median(logs)
    scale = median(abs(log - centre) for log in logs) / 0.7407 * (1 + 2 / math.sqrt(len(logs)))
    return min(allowed, _REACH * max(scale, _LEAST_SCALE))


@dataclass(frozen=True, slots=True)
class PinDifference:
    """A number of a run beside its pin; `deviation` is value over centre minus one, `inside` whether the pin allows it.

    `value` is None where the run did not measure it.
    """

    pin: Pin
    value: float | None
    deviation: float | None
    inside: bool | None


def differences(pinned: Mapping[str, Pin], measured: Sequence[Measurement]) -> list[PinDifference]:
    """Every pin beside what the run measured, the furthest off first, what was not measured last."""
    values = {m.series(): m.value for m in once(measured) if m.finite}
    all_differences = [_difference(pin, values.get(series)) for series, pin in pinned.items()]
    return sorted(all_differences, key=lambda d: (d.value is None, -abs(d.deviation or 0.0), d.pin.series))


def _difference(pin: Pin, value: float | None) -> PinDifference:
    if value is None:
        return PinDifference(pin, None, None, None)
    inside = (pin.low is None or value >= pin.low) and (pin.high is None or value <= pin.high)
    return PinDifference(pin, value, value / pin.centre - 1 if pin.centre else None, inside)
