"""What the report draws of a campaign: each number over its hours."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seatrial.campaign.drift import alike, phase_numbers
from seatrial.campaign.rises import by_hour, series_of
from seatrial.model.result import RunResult
from seatrial.text.words import metric_name, metric_of, unit_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seatrial.history.store import Store


_UNITS = {"mhz": "MHz", "w": "W", "c": "°C"}  # of what devices report, by the end of its name


@dataclass(frozen=True, slots=True)
class Band:
    """A number at the hours of a campaign: the lowest, the median and the highest of all parts, in
    the title's unit.

    The four have an entry for each moment, in order.
    """

    title: str
    hours: tuple[float, ...]
    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]


def bands_of(result: RunResult, store: "Store") -> list[Band]:
    """Return the bands of the campaign that `result` is of; none for any other run.

    First what devices reported, by hour, then the numbers of the phases, but for those of single
    message sizes. Numbers with one moment are left out. Raises SeatrialError where the history
    cannot be read.
    """
    state = store.campaign(result.cluster, result.suite)
    if state is None or state.started != result.started:
        return []
    bands = []
    for metric in store.minute_metrics([phase.run_id for phase in state.counted]):
        minutes = series_of(state, store, metric)
        bands.append(_band(_title(metric), by_hour(minutes)))
    for phases in phase_numbers(state, store):
        for columns in alike(phases.series):
            first = phases.series[columns[0]]
            if "message_bytes" in first.conditions:
                continue
            title = f"{metric_of(first)}, {unit_name(first.unit)}, in {phases.suite}"
            moments = zip(phases.began_s, phases.readings[:, columns], strict=True)
            bands.append(_band(title, moments))
    return [band for band in bands if len(band.hours) > 1]


def _title(metric: str) -> str:
    """Return the title of a metric of devices, with its unit if it has one."""
    name, _, unit = metric.rpartition("_")
    if unit not in _UNITS:
        return metric_name(metric)
    return f"{metric_name(name)}, {_UNITS[unit]}"


def _band(title: str, moments: Iterable[tuple[float, "NDArray[np.floating]"]]) -> Band:
    """Summarize each moment that has readings: its hour, and their lowest, median and highest.

    `moments` are in seconds of the campaign; a reading that is not finite does not count.
    """
    rows = []
    for at_s, readings in moments:
        known = readings[np.isfinite(readings)]
        if known.size:
            rows.append((at_s / 3600, known.min(), np.median(known), known.max()))
    hours, low, middle, high = map(tuple, np.array(rows).reshape(-1, 4).T.tolist())
    return Band(title, hours, low, middle, high)
