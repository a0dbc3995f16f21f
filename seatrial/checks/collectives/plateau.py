"""Which message sizes of a sweep make its plateau, and which each of its numbers comes from. Pure."""

from collections.abc import Sequence

from seatrial.model.measurement import Measurement

_SIZES = 3
_SPAN = 64  # three sizes a factor of 8 apart; what is smaller lies on the slope


def plateau_sizes(sizes: Sequence[int]) -> list[int]:
    """Of `sizes`, smallest first, the largest three, or as many as are near enough to the largest."""
    return [size for size in sizes if size * _SPAN >= sizes[-1]][-_SIZES:]


def sizes_behind(measurement: Measurement, sizes: Sequence[int]) -> Sequence[int]:
    """Which of the sizes asked for, smallest first, the number comes from; what was moved may be less."""
    moved = measurement.conditions.get("message_bytes")
    if not isinstance(moved, int):
        return plateau_sizes(sizes)
    return [size for size in sizes if size >= moved][:1]
