"""A build of nccl-tests without MPI prints everything once for each process, which is rank 0 of a
world of its own; such copies become one sweep with an error.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from seatrial.nccl.draft import Draft, finish
from seatrial.nccl.model import Row, Sweep

CAUSE = (
    "nccl-tests was not built with MPI=1: {copies} processes each printed their own header and "
    "Rank 0, so each one "
    "measured only itself; build nccl-tests with MPI=1"
)


def without_mpi(drafts: list[Draft]) -> Iterator[Draft | Sweep]:
    """Yield the drafts, with neighbours that are one launch of a build without MPI as one sweep
    with an error.

    A draft without a prologue belongs to the one before it.
    """
    groups: list[list[Draft]] = []
    for draft in drafts:
        if groups:
            group = groups[-1]
            if not draft.has_prologue or _same_program(group[0], draft):
                group.append(draft)
                continue
        groups.append([draft])
    for group in groups:
        if _is_one_launch(group):
            yield _merged(group)
        else:
            yield from group


def _same_program(a: Draft, b: Draft) -> bool:
    """Return whether two prologues may be processes of one launch: one process each, same printed
    options.

    What one of them lacks counts as the same.
    """
    for first, second in ((a.params, b.params), (a.collective, b.collective)):
        are_known = first is not None and second is not None
        if are_known and first != second:
            return False
    return _is_one_process(a) and _is_one_process(b)


def _is_one_process(draft: Draft) -> bool:
    """Return whether the Rank lines are those of one process, which has rank 0.

    There may be none yet where two programs print at once.
    """
    if not draft.devices:
        return True
    processes = {(device.host, device.pid) for device in draft.devices.values()}
    return 0 in draft.devices and len(processes) == 1


def _is_one_launch(group: list[Draft]) -> bool:
    """Return whether the outputs of a group's programs are interleaved, or all of them are worlds
    of one rank.
    """
    heads = [draft for draft in group if draft.has_prologue]
    if len(_processes(heads)) < 2:
        return False
    if all(_is_one_rank(draft) for draft in group):
        return True
    if all(draft.complete for draft in heads):
        return False
    return len(heads) < len(group) or any(map(_repeats_sizes, heads))


def _processes(drafts: Iterable[Draft]) -> set[tuple[str, int | None]]:
    """Return host and process id of each rank 0."""
    first_ranks = (draft.devices[0] for draft in drafts if 0 in draft.devices)
    return {(device.host, device.pid) for device in first_ranks}


def _is_one_rank(draft: Draft) -> bool:
    """Return whether a draft has one rank: at most one device, and busbw 0 in every row."""
    if len(draft.devices) > 1:
        return False
    sides = [side for row in draft.rows for side in row.sides]
    has_busbw = any(side.busbw_gb_s for side in sides)
    return bool(sides) and not has_busbw


def _repeats_sizes(draft: Draft) -> bool:
    """Return whether a size has two rows of the same kind: those of two programs are mixed."""
    keys = [(row.size, row.type, row.redop, row.root) for row in draft.rows if row.size]
    return len(set(keys)) < len(keys)


def _merged(group: list[Draft]) -> Sweep:
    """Return the sweep of a launch: the first process that names its devices, with the rows of all.

    Its numbers say nothing of a cluster, so there is no average.
    """
    with_devices = next(draft for draft in group if draft.devices)
    head = finish(with_devices)
    cause = CAUSE.format(copies=len(_processes(group)))
    rows: list[Row] = []
    names = [draft.collective for draft in group]
    for draft in group:
        if draft.rows:
            rows += draft.rows
            names.append(finish(draft).collective)  # told by its rows
    versions = (draft.version for draft in group)
    return replace(
        head,
        collective=next(filter(None, names), None),
        version=next(filter(None, versions), None),
        ranks=len(head.devices) or None,
        rows=tuple(rows),
        out_of_bounds=None,
        avg_busbw_gb_s=None,
        outcome="error",
        errors=(cause, *head.errors),
    )
