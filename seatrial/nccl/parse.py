"""The entry points: files, texts and streams of lines in, sweeps out."""

from collections.abc import Iterable, Iterator
from io import BufferedReader, TextIOBase, TextIOWrapper
from itertools import chain
from pathlib import Path

from seatrial.model.errors import InputError, NothingFoundError
from seatrial.nccl.jsonlog import looks_like_json_log, parse_json
from seatrial.nccl.model import Sweep
from seatrial.nccl.sweeps import SweepReader
from seatrial.nccl.text import MAX_LINE

MAX_JSON = 96 << 20
"""Characters of a -J file that are read, the rest counts as cut off; with -I, 1,000 processes write some 20 million."""
_LEGAL = (
    "legal: the output of an nccl-tests or rccl-tests program, its -J file, or a launcher's log that names an error"
)
_PEEK = 4096


def parse_file(path: str | Path) -> list[Sweep]:
    """The sweeps of the log (or `-J` file) at `path`, in order, at least one.

    Raises InputError for a file that cannot be read, NothingFoundError for one with neither a sweep nor a known cause.
    Memory is bounded whatever the file is: lines are cut at 16 Ki characters, and 100,000 rows are kept.
    """
    try:
        with Path(path).open("rb") as raw, TextIOWrapper(raw, encoding=_encoding(raw), errors="replace") as stream:
            return _parse_stream(stream, str(path))
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        reason = problem.strerror if isinstance(problem, OSError) else "not a file name"
        raise InputError(f"cannot read {str(path)!r}: {reason or problem}") from None


def parse_text(text: str | Iterable[str], source: str = "input") -> list[Sweep]:
    """The sweeps in `text`: a string, an open text stream, or lines. `source` is what an InputError calls it."""
    if isinstance(text, str):
        if looks_like_json_log(text[:_PEEK]):
            return parse_json(text[:MAX_JSON], source)
        return parse_lines(text.splitlines(), source)
    if isinstance(text, TextIOWrapper):
        text.reconfigure(errors="replace")  # standard input is strict, and logs are not always UTF-8
    return _parse_stream(text, source) if isinstance(text, TextIOBase) else parse_lines(text, source)


def parse_lines(lines: Iterable[str], source: str = "input") -> list[Sweep]:
    """The sweeps in `lines`, which may be endless: nothing but rows, devices and causes is kept of them.

    Raises NothingFoundError where they hold neither a sweep nor a known cause of failure.
    """
    reader = SweepReader(source)
    for line in lines:
        reader.feed(line)
    sweeps = reader.sweeps()
    if not sweeps:
        raise NothingFoundError(f"no nccl-tests output found in {source} ({_LEGAL})")
    return sweeps


def _parse_stream(stream: TextIOBase, source: str) -> list[Sweep]:
    head = stream.read(_PEEK)
    if looks_like_json_log(head):
        return parse_json(head + stream.read(MAX_JSON), source)
    if not head:
        raise NothingFoundError(f"no nccl-tests output found in {source}: it is empty ({_LEGAL})")
    first, newline, rest = head.rpartition("\n")
    return parse_lines(chain(first.split("\n") if newline else (), _bounded_lines(stream, rest)), source)


def _bounded_lines(stream: TextIOBase, start: str) -> Iterator[str]:
    """The lines of `stream`, the first of them beginning with `start`; what is past MAX_LINE of a line is skipped."""
    line, kept = start, True
    while chunk := stream.readline(MAX_LINE):
        if kept:
            yield line + chunk
        line, kept = "", chunk.endswith("\n")
    if line:
        yield line


def _encoding(raw: BufferedReader) -> str:
    """UTF-8, or UTF-16 where a byte order mark says so (PowerShell's tee). A pipe is not read twice for it."""
    return "utf-16" if raw.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
