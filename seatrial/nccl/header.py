"""The lines around the table of nccl-tests: versions, devices, the column header and the footer."""

import re
from dataclasses import dataclass
from typing import Literal

from seatrial.nccl.collectives import COLLECTIVES
from seatrial.nccl.model import Device
from seatrial.text.lazy_pattern import lazy
from seatrial.text.wrapping import cells

_PROGRAM = lazy(
    rf"\b({'|'.join(sorted(COLLECTIVES, key=len, reverse=True))})(?:_perf(?:_\w+)?\b|\.cu\b)"
)
_VERSION = lazy(r"nccl-tests version (\d\S*)|rccl-tests: Version (\S+)")
_TEST = lazy(r"Collective test starting: *(\S+)")
_PARAMS = lazy(r"nThreads?:? +\d+ +nGpus:? +\d+ .{0,400}?minBytes:? ")
_RANGE = lazy(
    r"minBytes:? +(\d{1,15}) +maxBytes:? +(\d{1,15}) +step:? *(\d{1,12})\((factor|bytes)\)"
)
_LIMIT = lazy(r"Reducing maxBytes to (\d{1,15}) due to memory limitation")
_MAX_SIZES = 1000
_DEVICE = lazy(
    r"Rank +(\d+) (?: *Group +(-?\d+) )? *(?:Pid +(\d+) +)?on +(\S+) +device +(\d+) "
    r"\[([0-9a-fA-Fx:.]*)\] ?(.*)"
)
_BOUNDS = lazy(r"Out of bounds values *: *(\d+) *(OK|FAILED)?")
_AVERAGE = lazy(r"Avg bus bandwidth *: *(\S+) *(OK|FAILED)?")
_LAUNCHER = lazy(r"\b(?:mpirun|mpiexec|prterun|srun)\b")
# A prompt, variables, and the program itself
_ALONE = lazy(r"\s*(?:\S*[$#>%]\s+)?(?:\w+=\S*\s+)*\S*$")
_NAMES = {
    "size": "size", "#size": "size", "size_bytes": "size", "bytes": "size", "n": "count", "message_size": "size",
    "count": "count", "type": "type", "redop": "redop", "op": "redop", "root": "root",
    "time": "time", "cputime": "time", "cpu_time": "time", "time_us": "time", "time(us)": "time", "latency_us": "time",
    "algbw": "algbw", "algbw_gbs": "algbw", "algbw_gb_s": "algbw", "algbw(gb/s)": "algbw", "alg_bw": "algbw",
    "busbw": "busbw", "busbw_gbs": "busbw", "busbw_gb_s": "busbw", "busbw(gb/s)": "busbw", "bus_bw": "busbw",
    "#wrong": "wrong", "wrong": "wrong", "nwrong": "wrong", "error": "error", "res": "error",
    "i_min": "i_min", "i_max": "i_max", "i_p99": "i_p99", "i_cv%": "i_cv%",
}  # fmt: skip
# Columns of the time stamp (-S), and of rccl-tests' -A or -M: algorithm, protocol, channels
_IGNORED = frozenset(
    {"#", "", "timestamp", "algo", "algorithm", "proto", "protocol", "nchannels", "channels"}
)
_LEADING = frozenset({"size", "count", "type", "redop", "root"})
_SIDE = lazy(r"^(out_of_place|oop|out|in_place|ip|in)[._]")


@dataclass(frozen=True, slots=True)
class Prologue:
    """A line above the table.

    nccl-tests' version or rccl-tests' hash, the collective that starts (None of an unknown
    program), the options, the largest size that memory allows, or the heading of the devices.
    """

    field: Literal["version", "collective", "params", "limit", "devices"]
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The footer's `Out of bounds values`."""

    count: int
    failed: bool


@dataclass(frozen=True, slots=True)
class Average:
    """The footer's `Avg bus bandwidth` in GB/s, None where it is no number; failed = below
    NCCL_TESTS_MIN_BW.
    """

    gb_s: float | None
    failed: bool


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The columns that a header names, in order; a side's are called `out.time`, `in.busbw` and so
    on.

    `separator` is None for blanks. `cpu_time` says that the time column is the CPU's, so that algbw
    is not size/time; `milliseconds` that it is not in microseconds, as under the header of
    nccl-tests 1 with its column `res`.
    """

    columns: tuple[str, ...]
    separator: str | None = None
    cpu_time: bool = False
    milliseconds: bool = False

    @property
    def typed(self) -> bool:
        """Whether rows carry the data type, which a row is recognised by."""
        return "type" in self.columns


Mark = Prologue | Device | Bounds | Average | ColumnLayout


def program(text: str) -> str | None:
    """Return the collective of the last nccl-tests program or source file that `text` names."""
    names = _PROGRAM.findall(text) if "_perf" in text or ".cu" in text else []
    return names[-1] if names else None


def command_ranks(text: str) -> int | None:
    """Return the ranks that a command line asks for: processes x -t x -g.

    None where it does not say how many processes.
    """
    launcher = _LAUNCHER.search(text)
    before, _, after = text.partition("_perf")
    processes = _option(before, "np", "n", "ntasks") if launcher else _ALONE.match(before) and 1
    threads = _option(after, "t", "nthreads") or 1
    gpus = _option(after, "g", "ngpus") or 1
    return (
        processes * threads * gpus
        if processes and (launcher or _option(after, "g", "ngpus", "t"))
        else None
    )


def _option(text: str, *names: str) -> int | None:
    """Return the number of the last of these command line options."""
    numbers = re.findall(rf"(?<!\S)--?(?:{'|'.join(names)})(?:[= ]?)(\d{{1,6}})(?!\S)", text)
    return int(numbers[-1]) if numbers else None


def read_mark(text: str, *, in_place_only: bool = False) -> Mark | None:
    """Return the line of nccl-tests' header or footer that `text` holds, wherever in the text it
    starts.
    """
    if "busbw" in text or "bus_bw" in text:
        return layout(text, in_place_only=in_place_only)
    if " device " in text and (match := _DEVICE.search(text)):
        rank, group, pid, host, device, pci, name = match.groups()
        return Device(
            _int(rank),
            _int(group or "0"),
            _int(pid) if pid else None,
            host,
            _int(device),
            pci,
            name.strip(),
        )
    if "-tests" in text and (match := _VERSION.search(text)):
        return Prologue("version", match[1] or match[2])
    return _plain_mark(text)


def layout(text: str, *, in_place_only: bool = False) -> ColumnLayout | None:
    """Return the columns of a header line; None for a line with any word that is no column of
    nccl-tests.
    """
    text = cells(text).strip()
    # Behind the prefix of any launcher
    if match := re.search(r"(?:^|\s)#?\s*(size\s+(?:count|time)\b.*)", text):
        text = match[1]
    separator = "," if text.count(",") >= 3 else None
    words = [word.strip().strip('"').lower() for word in text.split(separator)]
    words = [word for word in words if word not in _IGNORED]
    columns = _columns(words, in_place_only)
    if (
        columns is None
        or columns[0] != "size"
        or "busbw" not in " ".join(columns)
        or len(set(columns)) < len(columns)
    ):
        return None
    return ColumnLayout(
        tuple(columns), separator, any(word.startswith("cpu") for word in words), "res" in words
    )


def _columns(words: list[str], in_place_only: bool) -> list[str] | None:
    columns: list[str] = []
    side = "in" if in_place_only else "out"
    for word in words:
        prefix = _SIDE.match(word)
        name = _NAMES.get(word[prefix.end() :] if prefix else word)
        if name is None or len(columns) > 40:
            return None
        if name in _LEADING:
            columns.append(name)
            continue
        if prefix:
            side = "in" if prefix[1] in ("in_place", "ip", "in") else "out"
        elif f"{side}.{name}" in columns:
            side = "in"
        columns.append(f"{side}.{name}")
    return columns or None


def _plain_mark(text: str) -> Mark | None:
    if "Collective test" in text and (match := _TEST.search(text)):
        return Prologue("collective", program(match[1]))
    if "minBytes" in text and _PARAMS.search(text):
        return Prologue("params", text.strip())
    if "Using devices" in text:
        return Prologue("devices")
    if "Reducing maxBytes" in text:
        match = _LIMIT.search(text)
        return Prologue("limit", match[1]) if match else None
    return _footer(text)


def _footer(text: str) -> Mark | None:
    if "Out of bounds values" in text and (match := _BOUNDS.search(text)):
        return Bounds(
            _int(match[1]), match[2] == "FAILED" or (match[2] is None and _int(match[1]) > 0)
        )
    if "Avg bus bandwidth" in text and (match := _AVERAGE.search(text)):
        return Average(_float(match[1]), match[2] == "FAILED")
    return None


def requested_sizes(params: str | None, limit: str | None) -> tuple[int, ...]:
    """Return the message sizes in bytes that the options ask for, as far as memory allows.

    Empty if they are unknown.
    """
    match = _RANGE.search(params or "")
    if match is None:
        return ()
    size, largest, step = (_int(match[place]) for place in (1, 2, 3))
    largest = min(largest, _int(limit)) if limit else largest
    by_factor = match[4] == "factor"
    if by_factor and step < 2:  # nccl-tests then adds its step in bytes, which it does not print
        return ()
    sizes: list[int] = []
    while 0 < size <= largest and step:
        if len(sizes) == _MAX_SIZES:
            return ()
        sizes.append(size)
        size = size * step if by_factor else size + step
    return tuple(sizes)


def _int(digits: str) -> int:
    """Return a number as printed; more digits than any counter has are cut, so that int() stays
    cheap.
    """
    return int(digits[:18])


def _float(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None
