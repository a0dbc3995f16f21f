"""The entry points: files, texts and streams of lines in, sweeps out; `-J` files (versions 1 to 3)
among them.

A `-J` file dumps the whole environment, tokens included, under `env`, and the command line under
`args`: neither is kept, and no message quotes the file.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import StringIO, TextIOBase, TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn, TextIO

from seatrial.model.errors import InputError, NothingFoundError
from seatrial.nccl.busbw import agrees, infer_ranks
from seatrial.nccl.draft import MAX_DEVICES, MAX_ROWS
from seatrial.nccl.header import program
from seatrial.nccl.labels import LabelledReader
from seatrial.nccl.model import Device, Outcome, Row, Sweep, Timing
from seatrial.text.lazy_pattern import lazy
from seatrial.text.wrapping import MAX_LINE

Json = dict[str, Any]  # an object
_NAMES = re.compile(r'"(?:start_time|args|env|nccl_version|config|results)"\s*:')
_INFINITE = re.compile(r"(?<=[:,\[])\s*-?(?:inf|nan)\s*(?=[,}\]])")
_LOG = lazy(
    r"(?m)^(?:(?P<kernel>(?:<\d+>)?\[ *\+?\d{1,9}\.\d{1,9}\] |.{0,40}?\d\d:\d\d:\d\S{0,30} "
    r"\S{1,253} kernel: )"
    r"|(?P<NCCL>.{0,200}? NCCL INFO )|(?P<Slurm>\[\d{4}-\d\d-\d\dT[\d:.]{8,15}\] )"
    r"|(?P<system>\w{3} +\d{1,2} [\d:]{8} [\w.-]{1,253} \S{1,80}: ))"
)
MAX_JSON = 96 << 20
"""Characters of a -J file that are read, the rest counts as cut off; with -I, 1,000 processes write
some 20 million.
"""
_LEGAL = (
    "legal: the text that an nccl-tests or rccl-tests program prints, a file of nccl-tests -J, or a "
    "launcher's log that names an error"
)
PEEK = 4096
# gzip, zstd, xz, bzip2, zip
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\x03\x04")


def looks_like_json_log(head: str) -> bool:
    """Return whether a text that begins with `head` is a `-J` file: an object that names one of its
    keys.
    """
    return head.lstrip("\ufeff \t\r\n").startswith("{") and bool(_NAMES.search(head))


def parse_json(text: str, source: str) -> list[Sweep]:
    """Return the sweep of a `-J` file, or of each one of several in a row; a file that was cut
    short gives the rows before the cut, outcome truncated.

    Raises NothingFoundError for a text that is no `-J` file.
    """
    text = _INFINITE.sub("null", text)
    sweeps: list[Sweep] = []
    at = 0
    while not sweeps or (looks_like_json_log(text[at : at + PEEK]) and len(sweeps) < MAX_ROWS):
        at = text.index("{", at)
        document, at = _decoded(text, at) or (_salvaged(text[at:]), len(text))
        sweeps.append(_sweep_of(document, source))
    return sweeps


def _sweep_of(document: Json, source: str) -> Sweep:
    """Return the sweep of the object in a `-J` file. Raises NothingFoundError where it is none."""
    if not isinstance(document.get("results"), list) and "config" not in document:
        raise NothingFoundError(
            f"no nccl-tests output found in {source}: JSON without `results` (legal: a "
            "file written by -J)"
        )
    results = _list(document, "results")[:MAX_ROWS]
    rows = tuple(row for item in results if (row := _row(item)))
    config = _object(document.get("config"))
    args = _list(document, "args")  # of which only the program's own name is looked at
    collective = program(args[0]) if args and isinstance(args[0], str) else None
    bounds = _object(document.get("out_of_bounds"))
    average = _object(document.get("average_bus_bandwidth"))
    # ncclGetLastError's texts
    texts = [text for text in _list(document, "errors") if isinstance(text, str) and text.strip()]
    errors = tuple(" ".join(text.split())[:300] for text in texts)[:32]
    outcome = _outcome(rows, bounds, average, errors)
    if outcome == "error" and not errors:
        errors = ("results without a row: nothing was measured",)
    devices = _devices(config)
    return Sweep(
        collective,
        None,
        _ranks(collective, devices, config, rows),
        devices,
        rows,
        _integer(bounds, "count"),
        _number(average, "bandwidth"),
        outcome,
        errors,
        launch_times=any(
            "cpu_time" in _object(item.get("out_of_place")) for item in map(_object, results)
        ),
    )


def _salvaged(text: str) -> Json:
    """Return args, config and the whole results of a file that was cut short."""
    document: Json = {"cut": True}
    for key in ("args", "config"):
        match = re.search(rf'"{key}"\s*:\s*(?=[\[{{])', text)
        if match and (value := _decoded(text, match.end())):
            document[key] = value[0]
    if match := re.search(r'"results"\s*:\s*\[\s*', text):
        document["results"] = results = []
        at = match.end()
        while decoded := _decoded(text, at):
            results.append(decoded[0])
            at = decoded[1]
            while at < len(text) and text[at] in ", \t\r\n":
                at += 1
    return document


def _decoded(text: str, at: int) -> tuple[Any, int] | None:
    try:
        return json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def _outcome(
    rows: tuple[Row, ...], bounds: Json, average: Json, errors: tuple[str, ...]
) -> Outcome:
    wrong = any(side.wrong for row in rows for side in row.sides)
    if rows and (
        wrong
        or _is_false(bounds.get("okay"))
        or _is_false(average.get("okay"))
        or _integer(bounds, "count")
    ):
        return "failed"
    if rows and bounds:
        return "ok"
    return "error" if errors or bounds else "truncated"


def _row(item: Any) -> Row | None:
    item = _object(item)
    size = _integer(item, "size")
    out = _side(item.get("out_of_place"))
    inside = _side(item.get("in_place"))
    if size is None or (out is None and inside is None):
        return None
    return Row(
        size,
        _integer(item, "count"),
        _text(item, "type"),
        _text(item, "redop"),
        _integer(item, "root"),
        out,
        inside,
    )


def _side(value: Any) -> Timing | None:
    side = _object(value)
    if "bus_bw" not in side:
        return None
    return Timing(
        _number(side, "time" if "time" in side else "cpu_time"),
        _number(side, "alg_bw"),
        _number(side, "bus_bw"),
        _integer(side, "nwrong"),
    )


def _devices(config: Json) -> tuple[Device, ...]:
    """Return the first device of each process: the file lists no more of them."""
    items = [_object(item) for item in _list(config, "devices")[:MAX_DEVICES]]
    return tuple(
        Device(
            _integer(item, "rank") or 0,
            _integer(item, "group") or 0,
            _integer(item, "pid"),
            _text(item, "hostname") or "",
            _integer(item, "device") or 0,
            _text(item, "device_hex") or "",
            _text(item, "device_info") or "",
        )
        for item in items
        if item
    )


def _ranks(
    collective: str | None, devices: tuple[Device, ...], config: Json, rows: tuple[Row, ...]
) -> int | None:
    """Return processes x threads x GPUs where busbw/algbw agrees with it, else what that ratio
    says.
    """
    per_process = (_integer(config, "nthreads") or 1) * (_integer(config, "ngpus") or 1)
    group = [d for d in devices if d.group == devices[0].group]
    counted = len(group) * per_process if devices else None
    if collective is None or not counted or counted < 1 or agrees(collective, counted, rows):
        return counted
    return infer_ranks(collective, rows) or counted


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _list(item: Json, key: str) -> list[Any]:
    value = item.get(key)
    return value if isinstance(value, list) else []


def _text(item: Json, key: str) -> str | None:
    value = item.get(key)
    return value.strip()[:300] or None if isinstance(value, str) else None


def _is_false(value: Any) -> bool:
    """Return whether a value is "false": booleans are strings there; bandwidth's may be
    "unchecked".
    """
    return value is False or (isinstance(value, str) and value.lower() == "false")


def _number(item: Json, key: str) -> float | None:
    """Return a finite number; NaN is the string "nan" there."""
    value = item.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _integer(item: Json, key: str) -> int | None:
    """Return a whole number; root is a padded string there."""
    number = _number(item, key)
    return round(number) if number is not None and abs(number) < 1e18 else None


def parse_file(path: str | Path) -> list[Sweep]:
    """Return the sweeps of the log (or `-J` file) at `path`, in order, at least one.

    Raises InputError for a file that cannot be read, NothingFoundError for one with neither a sweep
    nor a known cause. Memory is bounded whatever the file is: lines are cut at 16 Ki characters,
    and 100,000 rows are kept.
    """
    with open_log(path) as stream:
        return parse_stream(stream, str(path))


@contextmanager
def open_log(path: str | Path) -> Iterator[TextIOWrapper]:
    """Open a log as text.

    Raises InputError for one that cannot be read, NothingFoundError for one that is compressed.
    """
    try:
        with Path(path).open("rb") as raw:
            start = raw.peek(5)
            if start.startswith(_COMPRESSED):
                raise NothingFoundError.of("log-compressed", path=path)
            # UTF-16 where a byte order mark says so (PowerShell's tee). A pipe is not read twice
            # for it.
            encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
            with TextIOWrapper(raw, encoding=encoding, errors="replace") as stream:
                yield stream
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        reason = problem.strerror if isinstance(problem, OSError) else "not a file name"
        raise InputError(f"cannot read {str(path)!r}: {reason or problem}") from None


def parse_text(text: str | Iterable[str], source: str = "input") -> list[Sweep]:
    """Return the sweeps in `text`: a string, an open text stream, or lines.

    `source` is what an InputError calls it.
    """
    if isinstance(text, str):
        return parse_stream(StringIO(text, None), source)
    if isinstance(text, TextIOWrapper):
        # Standard input is strict, and logs are not always UTF-8
        text.reconfigure(errors="replace")
    return parse_stream(text, source) if isinstance(text, TextIOBase) else parse_lines(text, source)


def parse_lines(lines: Iterable[str], source: str = "input") -> list[Sweep]:
    """Return the sweeps in `lines`, which may be endless: nothing but rows, devices and causes is
    kept of them.

    Raises NothingFoundError where they hold neither a sweep nor a known cause of failure.
    """
    reader = LabelledReader(source)
    for line in lines:
        reader.feed(line)
    return reader.first.sweeps() or nothing_found(source)


def nothing_found(source: str, head: str = "") -> NoReturn:
    """Raise NothingFoundError with what would have been legal, with the program whose log begins
    with `head`, with the command for a table of pairs, or with what to cut off before the
    JSON of `-J`.
    """
    if match := _LOG.search(head):
        raise NothingFoundError.of("log-without-failure", program=match.lastgroup)
    if "node_a" in head.lower():
        raise NothingFoundError(
            f"{source} is a table of pairs of nodes; the command for it is `seatrial localize`"
        )
    if len(_NAMES.findall(head)) > 1:
        raise NothingFoundError(
            f"{source} has other text, or a [, before the JSON of nccl-tests -J; the file must begin "
            "with the {"
        )
    raise NothingFoundError(f"no nccl-tests output found in {source} ({_LEGAL})")


def parse_stream(stream: TextIOBase, source: str, head: str = "") -> list[Sweep]:
    """Return the sweeps in a stream whose `head` was read already.

    Raises NothingFoundError as `parse_lines` does.
    """
    head = head or stream.read(PEEK)
    if looks_like_json_log(head):
        return parse_json(head + stream.read(MAX_JSON), source)
    return parse_lines(stream_lines(head, stream), source if head else f"{source}: it is empty")


def stream_lines(head: str, stream: TextIO | TextIOBase) -> Iterator[str]:
    """Return the lines of a stream of which `head` was read already, each of bounded length."""
    first, newline, rest = head.rpartition("\n")
    return chain(first.split("\n") if newline else (), _bounded_lines(stream, rest))


def _bounded_lines(stream: TextIO | TextIOBase, start: str) -> Iterator[str]:
    """Yield the lines of `stream`, the first of them beginning with `start`.

    What is past MAX_LINE of a line is skipped.
    """
    line = start
    kept = True
    while chunk := stream.readline(MAX_LINE):
        # A log in a line of JSON
        if kept and (line + chunk).lstrip()[:1] in ("{", '"') and not chunk.endswith("\n"):
            chunk += stream.readline(4 << 20)
        if kept:
            yield line + chunk
        line = ""
        kept = chunk.endswith("\n")
    if line:
        yield line
