"""The collective and the ranks of a sweep whose header does not say, from what the rows give away."""

from collections.abc import Sequence

from seatrial.nccl.busbw import agrees, infer_ranks, ratio_interval
from seatrial.nccl.draft import Draft
from seatrial.nccl.model import Device, Row

_BYTES = {
    "int8": 1, "uint8": 1, "char": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8e4m3": 1,
    "fp8e5m2": 1, "half": 2, "bfloat16": 2, "float16": 2, "int32": 4, "uint32": 4, "int": 4, "float": 4, "float32": 4,
    "int64": 8, "uint64": 8, "double": 8, "float64": 8,
}  # fmt: skip
_PARTED = ("all_gather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter")


def collective_of(draft: Draft) -> str | None:
    """The collective: as printed, else as a command line named it if the rows allow it, else what the rows allow."""
    if draft.collective or not draft.rows:
        return draft.collective or draft.hint
    possible = candidates(draft)
    if draft.hint and (draft.hint in possible or not possible):
        return draft.hint
    typed = draft.rows[0].type is not None
    return possible[0] if possible and (typed or len(possible) == 1) else None


def ranks_of(draft: Draft, collective: str | None) -> int | None:
    """The size of the measured communicator: what the Rank lines say if busbw/algbw agrees, else what that ratio says."""
    listed = _listed(list(draft.devices.values()))
    collective = collective or _kind(draft.rows)
    if collective is None:
        return listed
    if listed is not None and agrees(collective, listed, draft.rows):
        return listed
    return infer_ranks(collective, draft.rows) or listed


def candidates(draft: Draft) -> tuple[str, ...]:
    """The collectives that print rows like these, the likeliest first."""
    row = max(draft.rows, key=lambda r: r.size)
    ratio = ratio_interval(draft.rows)
    if row.type is None:
        return _by_ratio(ratio)
    if row.redop not in (None, "none"):
        return _reductions(row, ratio)
    if row.root is not None and row.root >= 0:
        parted = _is_parted(row) or (ratio is not None and ratio[1] < 1)
        return ("gather", "scatter") if parted else ("broadcast",)
    if row.redop is None:
        return _blank_redop(row, draft)
    return ("alltoall", "alltoallv", "all_gather") if _in_place_unchecked(row) else ("all_gather", "alltoall", "alltoallv")


def _reductions(row: Row, ratio: tuple[float, float] | None) -> tuple[str, ...]:
    if row.root is not None and row.root >= 0:
        return ("reduce",)
    if _is_parted(row):
        return ("reduce_scatter",)
    if ratio is not None and not ratio[0] <= 1 <= ratio[1]:
        return ("all_reduce",)
    return ("sendrecv", "all_reduce") if _in_place_unchecked(row) else ("all_reduce", "sendrecv")


def _blank_redop(row: Row, draft: Draft) -> tuple[str, ...]:
    """hypercube leaves redop blank; before 2.13 alltoall did, and all_gather had no such column."""
    if row.root is not None:
        return ("hypercube",)
    named = draft.layout is not None and "redop" in draft.layout.columns
    return ("alltoall",) if named else ("all_gather",)


def _in_place_unchecked(row: Row) -> bool:
    """alltoall and sendrecv do not check in-place results: N/A there and a number out-of-place."""
    sides = row.out_of_place, row.in_place
    return all(sides) and sides[0] is not None and sides[0].wrong is not None and row.sides[1].wrong is None


def _is_parted(row: Row) -> bool:
    """Whether `count` is one rank's part of `size`."""
    width = _BYTES.get(row.type or "")
    return bool(width and row.count and row.size >= 2 * row.count * width)


def _kind(rows: Sequence[Row]) -> str | None:
    """A collective with the right factor, where the collective itself is not known."""
    possible = _by_ratio(ratio_interval(rows))
    return possible[0] if possible else None


def _by_ratio(ratio: tuple[float, float] | None) -> tuple[str, ...]:
    if ratio is None:
        return ()
    if ratio[0] > 1:
        return ("all_reduce",)
    return _PARTED if 0 < ratio[0] and ratio[1] < 1 else ("broadcast", "reduce", "sendrecv", "all_reduce", "hypercube")


def _listed(devices: list[Device]) -> int | None:
    """Ranks that the Rank lines show; with NCCL_TESTS_SPLIT those of the group that prints, rank 0's."""
    if not devices:
        return None
    first = min(devices, key=lambda d: d.rank)
    if len({d.group for d in devices}) > 1:
        return sum(d.group == first.group for d in devices)
    return max(d.rank for d in devices) + 1
