"""The collective and the ranks of a sweep whose header does not say, from what the rows give away."""

import re
from collections.abc import Sequence

from seatrial.nccl.busbw import agrees, infer_ranks, ratio_interval
from seatrial.nccl.collectives import COLLECTIVES
from seatrial.nccl.draft import Draft
from seatrial.nccl.header import ColumnLayout
from seatrial.nccl.model import Device, Row
from seatrial.nccl.rowformat import TYPES


def collective_of(draft: Draft, name: str | None = None) -> str | None:
    """The collective: as printed, else as a command line named it if the rows allow it, else what the rows allow.

    `name` decides where the rows allow several.
    """
    shapes = draft.rows or ([draft.shape] if draft.shape else [])
    if draft.collective or not shapes:
        return draft.collective or draft.hint
    possible = candidates(shapes, draft.layout)
    if draft.hint and (draft.hint in possible or not possible):
        return draft.hint
    if name in possible:
        return name
    return possible[0] if possible and (shapes[0].type is not None or len(possible) == 1) else None


def named_collective(source: str) -> str | None:
    """The collective that a file's name contains, spelled with or without underscores: nccl_allgather.log."""
    stem = re.sub(r"[^a-z]", "", source.replace("\\", "/").rpartition("/")[2].lower())
    names = [c for c in sorted(COLLECTIVES, key=len, reverse=True) if c.replace("_", "") in stem]
    return names[0] if names else None


def ranks_of(draft: Draft, collective: str | None) -> int | None:
    """The size of the measured communicator.

    Size over one rank's part of it, or what the Rank lines say, if busbw/algbw agrees; else what busbw/algbw says,
    which a command line may make precise. None where busbw/algbw contradicts all of them and does not say which it is.
    """
    listed = _listed(list(draft.devices.values()))
    kind = collective or _kind(draft.rows)
    if kind is None:
        return listed or draft.hint_ranks
    for ranks in (_parts(kind, draft.rows or ([draft.shape] if draft.shape else [])), listed, draft.hint_ranks):
        if ranks is not None and agrees(kind, ranks, draft.rows):
            return ranks
    return infer_ranks(kind, draft.rows) or (None if ratio_interval(draft.rows) else listed)


def candidates(rows: Sequence[Row], layout: ColumnLayout | None) -> tuple[str, ...]:
    """The collectives that print rows like these, the likeliest first."""
    row = max(rows, key=lambda r: r.size)
    ratio = ratio_interval(rows)
    if row.type is None:
        return _by_ratio(ratio)
    if row.redop is None and (row.root is None or row.root < 0):
        return _blank_redop(row, layout)
    rooted = row.root is not None and row.root >= 0
    redop = "none" if row.redop in (None, "none") else "sum"
    named = [name for name, c in COLLECTIVES.items() if (c.redop, c.rooted) == (redop, rooted)]
    parted = _is_parted(row) or (rooted and ratio is not None and ratio[1] < 1)
    named = _narrowed(named, [name for name in named if COLLECTIVES[name].layout.in_parts == parted])
    named = _narrowed(named, [name for name in named if _explains(name, ratio)])
    checked = not _in_place_unchecked(row)
    return tuple(sorted(named, key=lambda name: COLLECTIVES[name].checked_in_place != checked))


def _narrowed(names: list[str], fitting: list[str]) -> list[str]:
    """The names that fit; all where none does, because what rows show of a single rank fits nothing."""
    return fitting or names


def _explains(collective: str, ratio: tuple[float, float] | None) -> bool:
    """Whether the collective's busbw/algbw can be in the interval `ratio`."""
    return COLLECTIVES[collective].factor.depends_on_ranks or ratio is None or ratio[0] <= 1 <= ratio[1]


def _blank_redop(row: Row, layout: ColumnLayout | None) -> tuple[str, ...]:
    """hypercube leaves redop blank; before 2.13 alltoall did, and all_gather had no such column."""
    if row.root is not None:
        return ("hypercube",)
    named = layout is not None and "redop" in layout.columns
    return ("alltoall",) if named else ("all_gather",)


def _in_place_unchecked(row: Row) -> bool:
    """alltoall and sendrecv do not check in-place results: N/A there and a number out-of-place."""
    sides = row.out_of_place, row.in_place
    return all(sides) and sides[0] is not None and sides[0].wrong is not None and row.sides[1].wrong is None


def _is_parted(row: Row) -> bool:
    """Whether `count` is one rank's part of `size`."""
    width = TYPES.get(row.type or "")
    return bool(width and row.count and row.size >= 2 * row.count * width)


def _parts(collective: str, rows: Sequence[Row]) -> int | None:
    """Ranks where `count` is one rank's part of `size`, exactly (alltoallv's parts differ)."""
    row = max(rows, key=lambda r: r.size, default=None)
    width = TYPES.get(row.type or "") if row else None
    layout = COLLECTIVES[collective].layout
    if row is None or not width or not row.count or not (layout.in_parts and layout.equal_parts):
        return None
    return row.size // (row.count * width) if row.size % (row.count * width) == 0 else None


def _kind(rows: Sequence[Row]) -> str | None:
    """A collective with the right factor, where the collective itself is not known."""
    possible = _by_ratio(ratio_interval(rows))
    return possible[0] if possible else None


def _by_ratio(ratio: tuple[float, float] | None) -> tuple[str, ...]:
    if ratio is None:
        return ()
    factors = {name: collective.factor for name, collective in COLLECTIVES.items()}
    above_one = tuple(name for name, factor in factors.items() if factor.scale > 1)
    if ratio[0] > 1:
        return above_one
    if ratio[0] > 0 and ratio[1] < 1:
        return tuple(name for name, factor in factors.items() if factor.depends_on_ranks and factor.scale == 1)
    return (*(name for name, factor in factors.items() if not factor.depends_on_ranks), *above_one)


def _listed(devices: list[Device]) -> int | None:
    """Ranks that the Rank lines show; with NCCL_TESTS_SPLIT those of the group that prints, rank 0's."""
    if not devices:
        return None
    first = min(devices, key=lambda d: d.rank)
    if len({d.group for d in devices}) > 1:
        return sum(d.group == first.group for d in devices)
    return max(d.rank for d in devices) + 1
