"""nccl-tests without MPI under mpirun or srun: every process is rank 0 of a world of its own and prints everything."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from seatrial.nccl.draft import Draft
from seatrial.nccl.finish import finish
from seatrial.nccl.model import Device, Sweep

CAUSE = (
    "nccl-tests was not built with MPI=1: {copies} processes each printed their own header and Rank 0, so each one "
    "measured only itself; build nccl-tests with MPI=1"
)


def without_mpi(drafts: list[Draft]) -> Iterator[Draft | Sweep]:
    """The drafts; neighbours that are one launch of a build without MPI become one sweep whose outcome is error."""
    for _, members in groupby(enumerate(drafts), key=_Worlds(drafts)):
        group = [draft for _, draft in members]
        if _is_one_launch(group):
            yield _merged(group)
        else:
            yield from group


class _Worlds:
    """Numbers the drafts so that neighbours which could be copies of each other share a number."""

    def __init__(self, drafts: list[Draft]) -> None:
        self._numbers: list[int] = []
        head: Draft | None = None
        for draft in drafts:
            same = head is not None and (not draft.has_prologue or _same_program(head, draft))
            self._numbers.append(self._numbers[-1] if same else len(self._numbers))
            head = head if same else draft

    def __call__(self, item: tuple[int, Draft]) -> int:
        return self._numbers[item[0]]


def _same_program(a: Draft, b: Draft) -> bool:
    """Whether two prologues could be two processes of one launch: one process each, same options as far as printed."""
    return (
        _is_one_process(a)
        and _is_one_process(b)
        and (a.params is None or b.params is None or a.params == b.params)
        and (a.collective is None or b.collective is None or a.collective == b.collective)
    )


def _is_one_process(draft: Draft) -> bool:
    """Whether the Rank lines are those of one process; there may be none yet where two programs print at once."""
    devices = list(draft.devices.values())
    return not devices or (0 in draft.devices and len({(d.host, d.pid) for d in devices}) == 1)


def _is_one_launch(group: list[Draft]) -> bool:
    """Whether the outputs of a group's programs are interleaved, or all of them are worlds of one rank."""
    heads = [draft for draft in group if draft.has_prologue]
    if len({process for draft in heads if (process := _process(draft))}) < 2:
        return False
    if all(_measured_itself(draft) for draft in group):
        return True
    unfinished = any(not draft.complete for draft in heads)
    surplus = len(heads) < len(group) or any(_repeats_sizes(draft) for draft in heads)
    return unfinished and surplus


def _process(draft: Draft) -> tuple[str, int | None] | None:
    device: Device | None = draft.devices.get(0)
    return (device.host, device.pid) if device else None


def _measured_itself(draft: Draft) -> bool:
    """One rank, and so busbw 0 in every row."""
    sides = [side for row in draft.rows for side in row.sides]
    return len(draft.devices) <= 1 and bool(sides) and not any(side.busbw_gb_s for side in sides)


def _repeats_sizes(draft: Draft) -> bool:
    keys = [(row.size, row.type, row.redop, row.root) for row in draft.rows if row.size]
    return len(set(keys)) < len(keys)


def _merged(group: list[Draft]) -> Sweep:
    head = finish(next(draft for draft in group if draft.devices))
    rows = tuple(row for draft in group for row in draft.rows)
    cause = CAUSE.format(copies=len({process for draft in group if (process := _process(draft))}))
    version = next((draft.version for draft in group if draft.version), None)
    collective = next((draft.collective for draft in group if draft.collective), None) or _named(group)
    return replace(
        head, collective=collective, version=version, ranks=len(head.devices) or None, rows=rows,
        out_of_bounds=None, avg_busbw_gb_s=None, outcome="error", errors=(cause, *head.errors),
    )  # fmt: skip


def _named(group: list[Draft]) -> str | None:
    return next((finish(draft).collective for draft in group if draft.rows), None)
