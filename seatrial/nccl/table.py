"""Sweeps as a plain text table for people."""

from collections.abc import Iterable

from seatrial.nccl.model import Row, Sweep, Timing

_HEADER = ("size", "count", "type", "redop", "root", *("time_us", "algbw", "busbw", "wrong") * 2)


def render(sweeps: Iterable[Sweep]) -> str:
    """An aligned table per sweep (bytes, us, GB/s; out-of-place first, then in-place) and one line that sums it up."""
    return "\n\n".join(_sweep(sweep) for sweep in sweeps) + "\n"


def summary(sweep: Sweep) -> str:
    """One line: collective, ranks, peak busbw, the footer's average, outcome and the first causes."""
    parts = [
        sweep.collective or "unknown collective",
        f"{sweep.ranks} ranks" if sweep.ranks else "ranks unknown",
        f"{len(sweep.rows)} rows",
        f"peak busbw {_number(sweep.peak_busbw_gb_s)} GB/s",
        f"avg {_number(sweep.avg_busbw_gb_s, 3)} GB/s",
        sweep.outcome,
    ]
    return ", ".join(parts) + "".join(f"\n  {error}" for error in sweep.errors)


def _sweep(sweep: Sweep) -> str:
    if not sweep.rows:
        return summary(sweep)
    lines = [_HEADER, *(_cells(row) for row in sweep.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEADER))]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join([*table, summary(sweep)])


def _cells(row: Row) -> tuple[str, ...]:
    leading = (str(row.size), _text(row.count), _text(row.type), _text(row.redop), _text(row.root))
    return (*leading, *_side(row.out_of_place), *_side(row.in_place))


def _side(side: Timing | None) -> tuple[str, str, str, str]:
    if side is None:
        return "-", "-", "-", "-"
    return _number(side.time_us), _number(side.algbw_gb_s), _number(side.busbw_gb_s), _text(side.wrong)


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _text(value: object) -> str:
    return "-" if value is None else str(value)
