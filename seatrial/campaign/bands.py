"""Data for the report's plots of a campaign: each metric over its hours."""

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


# Units of the metrics that devices report, by the suffix of the name
_UNITS = {"mhz": "MHz", "w": "W", "c": "°C"}


@dataclass(frozen=True, slots=True)
class Band:
    """A metric over the hours of a campaign: lowest, median and highest value over all parts, in
    the title's unit.

    The four sequences have an entry for each point in time, in order.
    """

    title: str
    hours: tuple[float, ...]
    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]


def bands_of(result: RunResult, store: "Store") -> list[Band]:
    """Return the bands of the campaign of `result`; empty for any other run.

    Metrics of devices by hour come first, then those of the phases, except for those of a single
    message size. Metrics with one point in time are left out. Raises SeatrialError if the history
    cannot be read.
    """
    state = store.campaign(result.cluster, result.suite)
    if state is None or state.started != result.started:
        return []
    bands = []
    for metric in store.minute_metrics([phase.run_id for phase in state.counted]):
        minutes = series_of(state, store, metric, {})
        bands.append(_band(_title(metric), by_hour(minutes)))
    for phases in phase_numbers(state, store, {}):
        for columns in alike(phases.series):
            first = phases.series[columns[0]]
            if "message_bytes" in first.conditions:
                continue
            title = f"{metric_of(first)}, {unit_name(first.unit)}, in {phases.suite}"
            moments = zip(phases.began_s, phases.readings[:, columns], strict=True)
            bands.append(_band(title, moments))
    return [band for band in bands if len(band.hours) > 1]


def _title(metric: str) -> str:
    """Return the title of a device metric, with its unit if it has one."""
    name, _, unit = metric.rpartition("_")
    if unit not in _UNITS:
        return metric_name(metric)
    return f"{metric_name(name)}, {_UNITS[unit]}"


def _band(title: str, moments: Iterable[tuple[float, "NDArray[np.floating]"]]) -> Band:
    """Return the band of the points in time with readings: hour, lowest, median and highest.

    `moments` are (seconds since the start of the campaign, readings); readings that are not finite
    are ignored.
    """
    rows = []
    for at_s, readings in moments:
        known = readings[np.isfinite(readings)]
        if known.size:
            rows.append((at_s / 3600, known.min(), np.median(known), known.max()))
    hours, low, middle, high = map(tuple, np.array(rows).reshape(-1, 4).T.tolist())
    return Band(title, hours, low, middle, high)
