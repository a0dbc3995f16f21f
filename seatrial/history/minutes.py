"""Pack the readings of many parts in a run into one row a metric. Pure.

A fleet of 8,192 GPUs has 35 million minutes in three days: a row for each would be ten times as
large.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DIGITS = 1  # decimals of watts, degrees and megahertz; counters are whole
_LEVEL = 6
_BYTES = 4  # of a reading


@dataclass(frozen=True, slots=True)
class MetricMinutes:
    """One metric: `readings` has a row for each of `times_s`, and a column for each of `parts`; NaN
    is no reading.
    """

    metric: str
    parts: Sequence[str]
    times_s: Sequence[float]
    readings: "NDArray[np.float32]"

    def packed(self) -> bytes:
        """Return the readings in bytes, those of one place in the number together, which a
        compressor makes small.
        """
        rounded = np.round(self.readings, _DIGITS).astype("<f4")
        return zlib.compress(rounded.view(np.uint8).reshape(-1, _BYTES).T.tobytes(), _LEVEL)


def unpacked(
    metric: str, parts: Sequence[str], times_s: Sequence[float], packed: bytes
) -> MetricMinutes:
    """Return the readings of a row. Raises ValueError where they are not what the row says."""
    raw = zlib.decompressobj().decompress(packed, len(parts) * len(times_s) * _BYTES + 1)
    planes = np.frombuffer(raw, np.uint8).reshape(_BYTES, -1)
    readings = np.ascontiguousarray(planes.T).view("<f4").reshape(len(times_s), len(parts))
    return MetricMinutes(metric, parts, times_s, readings)


def tables(
    times_s: Sequence[float], metrics: Mapping[str, Mapping[str, Mapping[int, float]]]
) -> Iterator[MetricMinutes]:
    """Yield the table of each metric, from the readings of each part by their place in
    `times_s`.
    """
    for metric, of_parts in sorted(metrics.items()):
        parts = sorted(of_parts)
        readings = np.full((len(times_s), len(parts)), np.nan, dtype=np.float32)
        for column, part in enumerate(parts):
            readings[list(of_parts[part]), column] = list(of_parts[part].values())
        yield MetricMinutes(metric, parts, [round(at, 1) for at in times_s], readings)
