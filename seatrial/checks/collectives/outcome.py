"""The outcome of the sweep of one collective: a verdict on the results, and measurements. Pure.

Measurements, subject the cluster, conditions operation, dtype and ranks:
- busbw, GB/s, for each `message_bytes` and `placement` (out_of_place, in_place): bytes / time *
  factor. It is computed from the printed time, because the printed busbw has two decimals only;
  that is kept beside it as `printed`.
- busbw_plateau, GB/s, for `max_bytes`, the largest size that was asked for: the median out-of-place
  busbw of the three largest sizes (fewer where fewer were asked for, or are near the largest). A
  fixed choice, so that runs compare, and none where one of them is missing; a median, so that one
  spoilt size does not move it.
- latency, us: the out-of-place time of the smallest size.

In an arm (seatrial/model/setup.py), a condition: `intra` yields the plateau of each node, `latency`
the time of every size, and `network` what a sweep without an arm yields.
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from seatrial.catalog import nic_of, nics_of
from seatrial.checks.collectives.problems import (
    Problem,
    Rows,
    Setting,
    falls_off,
    fewer_nodes,
    has_unknown_ranks,
    interleaved,
    other_ranks,
    slow_in_place,
    slow_middle_sizes,
    slow_small_messages,
    without_plateau,
)
from seatrial.checks.failures import classify_failure, fabric_gone, log_reason, missing_reports
from seatrial.model.measurement import Conditions, Measurement
from seatrial.model.reason import Reason, extended, join, placed, uncoded
from seatrial.model.result import Suspect
from seatrial.model.setup import INTRA, LATENCY, NETWORK
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict
from seatrial.nccl import Row, Sweep, Timing, Transport, busbw_factor, expected_algbw
from seatrial.nccl.busbw import plateau_sizes
from seatrial.nccl.collectives import COLLECTIVES
from seatrial.nccl.rows import TYPES
from seatrial.remote.mpi_result import MpiResult

# Alignment of each rank's part of a message
_ALIGN_ELEMENTS = 4  # in nccl-tests up to 2.12
_ALIGN_BYTES = 16  # in later nccl-tests


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """The outcome of one operation.

    `fabric_gone`: nothing that follows can be measured. `way`: the network or links that carried
    the data, in words. `suspects`: nodes that flooded the output, so that it shows nothing about
    the others. `lost`: nodes that answer, but whose ranks broke the sweep.
    """

    operation: str
    verdict: Verdict
    reason: Reason
    measurements: tuple[Measurement, ...] = ()
    fabric_gone: bool = False
    way: str = ""
    suspects: tuple[Suspect, ...] = ()
    lost: tuple[Suspect, ...] = ()


def conclude(
    setting: Setting, result: MpiResult, sweep: Sweep | None, transport: Transport | None = None
) -> SweepOutcome:
    """Return the outcome of one sweep from its mpirun, its output and NCCL's log of the network.

    `sweep` is None if nothing was printed, `transport` if that log was not kept. Measurements are
    dropped if other ranks than requested took part.
    """
    printed = [row for row in sweep.rows if row.size] if sweep else []
    rows = sorted(printed, key=lambda row: row.size)
    of_others = _strange(setting, sweep) and not has_unknown_ranks(setting, sweep)
    is_dropped = missing_reports(result) or of_others or interleaved(printed)
    measurements = tuple(_measured(setting, sweep, rows)) if sweep and not is_dropped else ()
    way = transport.words if transport else ""
    problems = _problems(setting, result, sweep, printed, rows, transport)
    problem = next(filter(None, problems), None)
    verdict, reason = problem or (Verdict.PASS, _right(rows, way))
    gone = problem is not None and fabric_gone(result, began=_ranks_met(sweep))
    return SweepOutcome(
        operation=setting.name,
        verdict=verdict,
        reason=placed(setting.name, reason),
        measurements=measurements,
        fabric_gone=gone,
        way=way,
    )


def _problems(
    setting: Setting,
    result: MpiResult,
    sweep: Sweep | None,
    printed: Rows,
    rows: Rows,
    transport: Transport | None,
) -> Iterator[Problem | None]:
    """Yield possible problems of the sweep, the most severe first; None for each that is absent.

    The caller takes the first problem, so each may assume that those before it are absent. `rows`
    are the `printed` rows, ordered by size.
    """
    strange = _strange(setting, sweep)
    incomplete = _incomplete(result, sweep, rows)
    wrong = wrong_results(sweep)
    yield missing_reports(result)
    if wrong and strange:
        verdict, evidence = wrong
        _, other = strange
        yield verdict, join((evidence, other))
    yield wrong
    for problem in (strange, incomplete):
        if problem and problem[0] is Verdict.FAIL:
            yield problem
    if rows:
        yield _over_sockets(setting, transport)
    yield incomplete
    yield strange
    yield interleaved(printed)
    if setting.ranks == 1:  # busbw is 0 by definition
        yield Verdict.NOT_RUN, Reason.of("one-rank")
    yield _missing_sizes(setting, result, rows)
    yield _not_forced(setting, transport)
    yield _missing_nics(setting, transport)
    if sweep:
        yield _slow_sizes(setting, sweep, rows)


def _strange(setting: Setting, sweep: Sweep | None) -> Problem | None:
    """Return a problem if the ranks or nodes that took part are not the requested ones."""
    return other_ranks(setting, sweep) or fewer_nodes(setting, sweep)


def _right(rows: Rows, way: str) -> Reason:
    """Return the reason of a pass: the sizes with right results, and how the data was carried.

    `rows` must not be empty.
    """
    first = format_size(rows[0].size)
    last = format_size(rows[-1].size)
    if way:
        way = f", {way}"
    if len(rows) == 1:
        return Reason.of("size-right", size=first, way=way)
    return Reason.of("sizes-right", count=len(rows), first=first, last=last, way=way)


def _slow_sizes(setting: Setting, sweep: Sweep, rows: Rows) -> Problem | None:
    """Return a problem if some sizes are slow relative to others of the sweep; GPUs only.

    Small and middle sizes are not compared if the times are launch times.
    """
    if not setting.is_whole_on_gpus:
        return None
    rate = partial(busbw_of, setting, sweep.launch_times)
    slow = slow_in_place(rows, rate)
    if slow is None and not sweep.launch_times:
        slow = slow_small_messages(rows, setting.ranks) or slow_middle_sizes(rows, rate)
    return slow or without_plateau(setting.sizes) or falls_off(rows, rate)


def wrong_results(sweep: Sweep | None) -> Problem | None:
    """Return a problem if results were wrong, which is more severe than all others."""
    if sweep is None:
        return None
    rows = sorted(sweep.rows, key=lambda row: row.size)
    wrong = []
    for row, placement, timing in _timings(rows):
        if timing.wrong and timing.wrong > 0:
            where = placement.replace("_", "-")
            wrong.append(f"{timing.wrong} at {format_size(row.size)} {where}")
    if wrong:
        words = f"wrong elements: {', '.join(wrong[:3])}"
        if len(wrong) > 3:
            words += f" and at {len(wrong) - 3} more"
    elif sweep.out_of_bounds:  # the footer's count for all sizes
        words = f"out of bounds values: {sweep.out_of_bounds}"
    else:
        return None
    return Verdict.CORRUPT, Reason.of("wrong-elements", wrong=words)


def _incomplete(result: MpiResult, sweep: Sweep | None, rows: Rows) -> Problem | None:
    """Return a problem if the sweep failed, broke off, or was not verified."""
    if sweep and rows and sweep.outcome == "failed":
        return Verdict.FAIL, Reason.of("nccl-tests-says-failed")
    if sweep and not rows and sweep.empty:
        return Verdict.INCONCLUSIVE, Reason.of("no-rows")
    if sweep is None or not rows or not result.ok or sweep.outcome != "ok":
        messages: tuple[Reason, ...] = ()
        if sweep:
            messages = (*map(log_reason, sweep.findings), *map(uncoded, sweep.errors))
        verdict, why = classify_failure(result, began=_ranks_met(sweep), messages=messages)
        if rows:
            why = extended(why, f" (after {len(rows)} sizes)")
        return verdict, why
    if not sweep.checked:
        return Verdict.INCONCLUSIVE, Reason.of("not-verified")
    return None


def _over_sockets(setting: Setting, transport: Transport | None) -> Problem | None:
    """Return a problem if NCCL used TCP although the nodes have a fabric.

    NCCL falls back without an error; only its log, if kept, proves it.
    """
    if setting.fabric is None or transport is None:
        return None
    if not transport.sockets_only or transport.nodes == 1:
        return None
    return Verdict.FAIL, Reason.of(
        "nccl-over-sockets", fabric=setting.fabric, evidence=transport.evidence
    )


def _not_forced(setting: Setting, transport: Transport | None) -> Problem | None:
    """Return a problem if the arm `network` used channels within a node."""
    if setting.arm != NETWORK or transport is None or not transport.inside:
        return None
    return Verdict.INCONCLUSIVE, Reason.of("network-not-forced", evidence=transport.inside)


def _missing_nics(setting: Setting, transport: Transport | None) -> Problem | None:
    """Return a problem if NCCL lists fewer network devices on a node than the fabric's name
    says.
    """
    nics = nics_of(setting.fabric)
    if nics is None or transport is None:
        return None
    fewest = transport.fewest_nics(nic_of(setting.fabric))
    if fewest is None or transport.nodes == 1:
        return None
    host, used = fewest
    if used >= nics:  # more if storage has separate NICs
        return None
    return Verdict.DEGRADED, Reason.of(
        "nics-missing", used=used, nics=nics, fabric=setting.fabric, host=host or "a node"
    )


def _missing_sizes(setting: Setting, result: MpiResult, rows: Rows) -> Problem | None:
    """Return a problem if sizes that must have a row have none."""
    checked = [row for row in rows if any(side.checked for side in row.sides)]
    missing = [size for size in _due_sizes(setting) if _row_of(setting, size, checked) is None]
    if not missing:
        return None
    names = ", ".join(map(format_size, missing[:8]))
    if len(missing) > 8:
        names += " and more"
    why = ""
    for line in result.lines:
        if "Reducing maxBytes" in line:  # nccl-tests had too little memory for the largest
            limit = line.strip("# ")
            why = f" ({limit})"
            break
    return Verdict.INCONCLUSIVE, Reason.of(
        "sizes-missing", missing=len(missing), sizes=len(setting.sizes), names=names, cause=why
    )


def _due_sizes(setting: Setting) -> list[int]:
    """Return the sizes that must have a row, since each rank has a part of them."""
    return [size for size in setting.sizes if _least_moved(setting, size) > 0]


def _row_of(setting: Setting, size: int, rows: Rows) -> Row | None:
    """Return the timed row for `size`, or None; its printed size may be smaller, since parts are
    aligned.
    """
    least = _least_moved(setting, size)
    for row in rows:
        if least <= row.size <= size and any(side.time_us for side in row.sides):
            return row
    return None


def _least_moved(setting: Setting, size: int) -> int:
    """Return the fewest bytes of `size` that are moved (GetCollByteCount of nccl-tests), in
    aligned parts.

    Zero if the size has no part for every rank.
    """
    width = TYPES[setting.dtype]
    unit = width
    if COLLECTIVES[setting.operation].layout.in_parts:
        # Use the larger alignment, since the version of nccl-tests is unknown
        part = max(_ALIGN_BYTES, _ALIGN_ELEMENTS * width)
        unit = max(1, setting.ranks) * part
    return size // unit * unit


def _ranks_met(sweep: Sweep | None) -> bool:
    """Return whether the ranks had met: only then do nccl-tests and the probe list their devices.

    A failure before that is of the connections to the nodes, or of the start there.
    """
    return bool(sweep and (sweep.devices or sweep.rows))


def _measured(setting: Setting, sweep: Sweep, rows: Rows) -> Iterator[Measurement]:
    """Yield the measurements of the sweep's arm; `rows` are ordered by size."""
    arm = setting.arm
    shared: Conditions = {
        "operation": setting.operation,
        "dtype": setting.dtype,
        "ranks": setting.ranks,
    }
    if arm:
        shared["arm"] = arm
    shared |= setting.called_with
    number = partial(Measurement, subject=setting.subject)
    if arm not in (INTRA, LATENCY):
        for row, placement, timing in _timings(rows):
            busbw = busbw_of(setting, sweep.launch_times, row.size, timing)
            if busbw is not None:
                conditions = {**shared, "message_bytes": row.size, "placement": placement}
                yield number(
                    "busbw",
                    busbw,
                    "GB/s",
                    conditions=conditions | _by(setting, row.size),
                    samples=(busbw,),
                    printed=timing.busbw_gb_s,
                )
    if arm != LATENCY and (top := _plateau_rates(setting, sweep, rows)):
        conditions = {**shared, "max_bytes": setting.sizes[-1], **_by(setting, 0)}
        plateau = statistics.median(top)
        yield number("busbw_plateau", plateau, "GB/s", conditions=conditions, samples=top)
    if arm != INTRA and not sweep.launch_times:
        for row in rows if arm == LATENCY else rows[:1]:
            if row.out_of_place and (time_us := row.out_of_place.time_us):
                yield number(
                    "latency",
                    time_us,
                    "us",
                    conditions={**shared, "message_bytes": row.size},
                    samples=(time_us,),
                    better="lower",
                )


def _by(setting: Setting, size: int) -> Conditions:
    """Return the condition `algorithm` if one was forced for `size` (0: the plateau); empty if NCCL
    chose.
    """
    algorithm = setting.algorithms.get(size)
    if not algorithm:
        return {}
    return {"algorithm": algorithm}


def _plateau_rates(setting: Setting, sweep: Sweep, rows: Rows) -> tuple[float, ...]:
    """Return the out-of-place busbw of the largest sizes asked for; empty if one was not
    measured.
    """
    if setting.is_whole_on_gpus and without_plateau(setting.sizes):
        return ()
    rates = []
    for size in plateau_sizes(_due_sizes(setting)):
        row = _row_of(setting, size, rows)
        if row is None or row.out_of_place is None:
            return ()
        rate = busbw_of(setting, sweep.launch_times, row.size, row.out_of_place)
        if rate is None:
            return ()
        rates.append(rate)
    return tuple(rates)


def _timings(rows: Rows) -> Iterator[tuple[Row, str, Timing]]:
    """Yield each timing with its row and placement."""
    for row in rows:
        if row.out_of_place:
            yield row, "out_of_place", row.out_of_place
        if row.in_place:
            yield row, "in_place", row.in_place


def busbw_of(setting: Setting, launch_times: bool, size: int, timing: Timing) -> float | None:
    """Return busbw in GB/s (1e9 bytes per second), computed from the time; None if it is unknown.

    The printed rate is used if the time or the number of ranks is unknown, or times are launch
    times.
    """
    time_us = timing.time_us
    if launch_times or not setting.ranks or not time_us or not time_us > 0:
        return timing.busbw_gb_s
    counted = COLLECTIVES[setting.operation].counted_by_algbw(setting.ranks)
    factor = busbw_factor(setting.operation, setting.ranks)
    return expected_algbw(size, time_us) * counted * factor
