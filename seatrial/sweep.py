"""What the sweep of one collective came to: a verdict on the results, and measurements. Pure.

Measurements, subject the cluster, conditions operation, dtype and ranks:
- busbw, GB/s, for each `message_bytes` and `placement` (out_of_place, in_place): bytes / time * factor. It is computed
  from the printed time, because the printed busbw has two decimals only.
- busbw_plateau, GB/s: the median out-of-place busbw of the three largest sizes (fewer where there are fewer). A fixed
  choice, so that runs compare; a median, so that one spoilt size does not move it.
- latency, us: the out-of-place time of the smallest size.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seatrial.broken import broken, fabric_gone
from seatrial.measurement import ConditionValue, Measurement, Subject
from seatrial.mpi import MpiResult
from seatrial.nccl import Row, Sweep, Timing, busbw_factor, expected_algbw
from seatrial.sizes import format_size
from seatrial.verdict import Verdict

_PLATEAU_SIZES = 3

Problem = tuple[Verdict, str]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a sweep was asked to measure, and over how many ranks of which cluster."""

    operation: str
    dtype: str
    ranks: int
    cluster: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one operation came to. `fabric_gone`: nothing that follows can be measured."""

    operation: str
    verdict: Verdict
    reason: str
    measurements: tuple[Measurement, ...] = ()
    fabric_gone: bool = False


def conclude(setting: Setting, result: MpiResult, sweep: Sweep | None) -> Outcome:
    """What one mpirun and the sweep in its output come to. Too few ranks: the numbers are another cluster's."""
    rows = [row for row in sweep.rows if row.size] if sweep else []
    problem = _too_few(setting, sweep)
    if problem is None:
        measurements = tuple(_measured(setting, rows))
        problem = _wrong_results(sweep, rows) or _incomplete(result, sweep, rows)
    else:
        measurements = ()
    if problem is None:
        sizes = f"{len(rows)} sizes from {format_size(rows[0].size)} to {format_size(rows[-1].size)}"
        return Outcome(
            setting.operation, Verdict.PASS, f"{setting.operation}: {sizes}, every result right", measurements
        )
    verdict, reason = problem
    gone = fabric_gone(result, began=_began(sweep))
    return Outcome(setting.operation, verdict, f"{setting.operation}: {reason}", measurements, gone)


def _too_few(setting: Setting, sweep: Sweep | None) -> Problem | None:
    if sweep is None or sweep.ranks is None or sweep.ranks == setting.ranks:
        return None
    why = f": {sweep.errors[0]}" if sweep.errors else ""
    return Verdict.FAIL, f"{sweep.ranks} of {setting.ranks} ranks took part{why}"


def _wrong_results(sweep: Sweep | None, rows: Sequence[Row]) -> Problem | None:
    wrong = [
        f"{timing.wrong} at {format_size(row.size)} {placement.replace('_', '-')}"
        for row in rows
        for placement, timing in _sides(row)
        if timing.wrong and timing.wrong > 0
    ]
    if wrong:
        more = f" and at {len(wrong) - 3} more" if len(wrong) > 3 else ""
        return Verdict.CORRUPT, f"wrong elements: {', '.join(wrong[:3])}{more}"
    if sweep and sweep.out_of_bounds:
        return Verdict.CORRUPT, f"out of bounds values: {sweep.out_of_bounds}"
    return None


def _incomplete(result: MpiResult, sweep: Sweep | None, rows: Sequence[Row]) -> Problem | None:
    if sweep is None or not rows or not result.ok or sweep.outcome != "ok":
        verdict, why = broken(result, began=_began(sweep))
        return verdict, f"{why} (after {len(rows)} sizes)" if rows else why
    if sweep.wrong_total is None:
        return Verdict.INCONCLUSIVE, "no result was checked: #wrong is N/A everywhere"
    return None


def _began(sweep: Sweep | None) -> bool:
    """Whether the ranks had met: nccl-tests and the probe name their devices only then."""
    return bool(sweep and (sweep.devices or sweep.rows))


def _measured(setting: Setting, rows: Sequence[Row]) -> Iterator[Measurement]:
    shared: dict[str, ConditionValue] = {"operation": setting.operation, "dtype": setting.dtype, "ranks": setting.ranks}
    cluster = Subject("cluster", setting.cluster)
    plateau = []
    for row in rows:
        for placement, timing in _sides(row):
            busbw = _busbw(setting, row.size, timing)
            if busbw is None:
                continue
            conditions = {**shared, "message_bytes": row.size, "placement": placement}
            yield Measurement("busbw", busbw, "GB/s", cluster, conditions, (busbw,))
            plateau += [busbw] if placement == "out_of_place" else []
    top = tuple(plateau[-_PLATEAU_SIZES:])
    if top:
        yield Measurement("busbw_plateau", statistics.median(top), "GB/s", cluster, shared, top)
    smallest = rows[0].out_of_place if rows else None
    if smallest and smallest.time_us:
        conditions = {**shared, "message_bytes": rows[0].size}
        yield Measurement("latency", smallest.time_us, "us", cluster, conditions, (smallest.time_us,), better="lower")


def _sides(row: Row) -> Iterator[tuple[str, Timing]]:
    if row.out_of_place:
        yield "out_of_place", row.out_of_place
    if row.in_place:
        yield "in_place", row.in_place


def _busbw(setting: Setting, size: int, timing: Timing) -> float | None:
    """GB/s (1e9 bytes per second); what was printed where there is no time."""
    if timing.time_us and timing.time_us > 0:
        return expected_algbw(size, timing.time_us) * busbw_factor(setting.operation, setting.ranks)
    return timing.busbw_gb_s
