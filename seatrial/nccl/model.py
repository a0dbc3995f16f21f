"""Timings, rows, devices and sweeps of nccl-tests output."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from seatrial.causes.table import Finding
from seatrial.model.measurement import finite
from seatrial.nccl.transport import Transport

Outcome = Literal["ok", "failed", "truncated", "error"]
NO_ROWS = "footer without a data row: nothing was measured"
_HEADER = ("size", "count", "type", "redop", "root", *("time_us", "algbw", "busbw", "wrong") * 2)


@dataclass(frozen=True, slots=True)
class Timing:
    """One side of a row (out-of-place or in-place): microseconds, GB/s (1e9 bytes per second),
    wrong elements.

    None means that the log has no usable number there: `N/A`, nan, inf or no such column. `error`
    is the largest deviation, which releases before 2.13 print instead of `wrong`.
    """

    time_us: float | None
    algbw_gb_s: float | None
    busbw_gb_s: float | None
    wrong: int | None = None
    error: float | None = field(default=None, compare=False)

    @property
    def checked(self) -> bool:
        """Whether the results were compared with the expected ones, right or wrong."""
        return self.wrong is not None or self.error is not None

    def to_dict(self) -> dict[str, Any]:
        """Return the side as `Row.to_dict` has it."""
        return {
            "time_us": finite(self.time_us),
            "algbw": finite(self.algbw_gb_s),
            "busbw": finite(self.busbw_gb_s),
            "wrong": self.wrong,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """One message size: `size` in bytes, `count` in elements of `type`; a side that was not
    measured is None.
    """

    size: int
    count: int | None
    type: str | None
    redop: str | None
    root: int | None
    out_of_place: Timing | None
    in_place: Timing | None

    @property
    def sides(self) -> tuple[Timing, ...]:
        """The sides that were measured, out-of-place first."""
        return tuple(filter(None, (self.out_of_place, self.in_place)))

    def to_dict(self) -> dict[str, Any]:
        """Return the row as `Sweep.to_dict` has it."""
        fields = {name: getattr(self, name) for name in ("size", "count", "type", "redop", "root")}
        sides = {"out_of_place": self.out_of_place, "in_place": self.in_place}
        return fields | {name: side and side.to_dict() for name, side in sides.items()}


@dataclass(frozen=True, slots=True)
class Device:
    """One `Rank` line of the header; `pci` is the bus address as printed, `name` the GPU model."""

    rank: int
    group: int
    pid: int | None
    host: str
    device: int
    pci: str
    name: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """One run of one nccl-tests program.

    `ranks` is the size of the communicator that was measured (of group 0 under NCCL_TESTS_SPLIT),
    printed or inferred from busbw/algbw. `out_of_bounds` and `avg_busbw_gb_s` are the footer's
    numbers, None where it has none. `outcome`: ok = rows, footer, no wrong values; failed = wrong
    values, or the footer says FAILED; truncated = it ends early without a cause in the log; error =
    it could not run, and `errors` names why, most likely cause first. `transport` is NCCL's word on
    how the data went, None where the log does not say. `launch_times`: the times are those of the
    launch on the CPU (-C 1), and say nothing of bandwidth. `findings` are the causes among the
    errors; `notes` what else the log names, which the outcome does not count. `requested` are the
    sizes in bytes that the header states, smallest first; empty where it is lost. `nccl_version` is
    that of the library, as 2.27.3.
    """

    collective: str | None
    version: str | None
    ranks: int | None
    devices: tuple[Device, ...]
    rows: tuple[Row, ...]
    out_of_bounds: int | None
    avg_busbw_gb_s: float | None
    outcome: Outcome
    errors: tuple[str, ...] = ()
    transport: Transport | None = None
    launch_times: bool = False
    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    requested: tuple[int, ...] = ()
    nccl_version: str | None = None

    @classmethod
    def nothing(cls, *errors: str) -> "Sweep":
        """Make the sweep of a log without any result: outcome error, and its causes."""
        return cls(None, None, None, (), (), None, None, "error", errors)

    @property
    def empty(self) -> bool:
        """Whether the program measured nothing: the sweep has a footer but no rows, and no
        cause.
        """
        return not self.rows and self.errors == (NO_ROWS,)

    @property
    def peak_busbw_gb_s(self) -> float | None:
        """The highest out-of-place busbw (in-place where nothing else was measured), GB/s."""
        sides = [row.out_of_place or row.in_place for row in self.rows]
        return max((s.busbw_gb_s for s in sides if s and s.busbw_gb_s is not None), default=None)

    @property
    def wrong_total(self) -> int | None:
        """Wrong elements over all rows and both sides; None where nothing was checked."""
        wrong = [side.wrong for row in self.rows for side in row.sides if side.wrong is not None]
        return sum(wrong) if wrong else None

    @property
    def hosts(self) -> frozenset[str]:
        """The host names of the header."""
        return frozenset(device.host for device in self.devices)

    @property
    def groups(self) -> int:
        """The groups of ranks that ran the collective at once and apart (NCCL_TESTS_SPLIT); 1
        without it.
        """
        return len({device.group for device in self.devices}) or 1

    @property
    def checked(self) -> bool:
        """Whether the results of any row were checked."""
        return any(side.checked for row in self.rows for side in row.sides)

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `seatrial parse --json` prints; every number in it is finite."""
        return {
            "collective": self.collective,
            "version": self.version,
            "ranks": self.ranks,
            "devices": [asdict(device) for device in self.devices],
            "rows": [row.to_dict() for row in self.rows],
            "out_of_bounds": self.out_of_bounds,
            "avg_busbw": finite(self.avg_busbw_gb_s),
            "outcome": self.outcome,
            "errors": list(self.errors),
        }


def render(sweeps: Iterable[Sweep]) -> str:
    """Return a table per sweep (bytes, us, GB/s; out-of-place, then in-place) and one line that
    sums it up.
    """
    return "\n\n".join(_sweep(sweep) for sweep in sweeps) + "\n"


def summary(sweep: Sweep) -> str:
    """Return one line: collective, ranks, peak busbw, the footer's average, outcome and the first
    causes.
    """
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
    lines: list[tuple[str, ...]] = [_HEADER]
    for row in sweep.rows:
        leading = map(_text, (row.size, row.count, row.type, row.redop, row.root))
        lines.append((*leading, *_side(row.out_of_place), *_side(row.in_place)))
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEADER))]
    table = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    return "\n".join([*table, summary(sweep)])


def _side(side: Timing | None) -> tuple[str, str, str, str]:
    if side is None:
        return "-", "-", "-", "-"
    return (
        _number(side.time_us),
        _number(side.algbw_gb_s),
        _number(side.busbw_gb_s),
        _text(side.wrong),
    )


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _text(value: object) -> str:
    return "-" if value is None else str(value)
