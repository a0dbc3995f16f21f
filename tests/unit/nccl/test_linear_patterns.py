"""No line makes a pattern that sees logs take more than linear time, however it is made."""

import re
import time
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

from seatrial import readers
from seatrial.builders import failures
from seatrial.builders.failures import CAUSES, build_failure
from seatrial.causes import classify
from seatrial.causes.classify import compiled
from seatrial.causes.table import CAUSES as LOG_CAUSES
from seatrial.checks.failures import gave_up
from seatrial.nccl import SweepReader, TransportReader
from seatrial.readers.report import Reader
from seatrial.text.lazy_pattern import LazyPattern

READERS = tuple(sorted(module.name for module in iter_modules(readers.__path__)))
PATTERNLESS = ("readers.documents", "readers.ports", "readers.report")
MODULES = (
    *(
        "text.redact",
        "checks.failures",
        "checks.lost_ranks",
        "catalog.hardware_names",
        "causes.classify",
        "causes.xid",
        "causes.watchdog",
        "causes.stages",
        "causes.warnings",
        *(f"readers.{name}" for name in READERS),
        "nccl.transport",
    ),
    *("text.wrapping", "nccl.rows", "nccl.header", "nccl.parse", "nccl.events", "nccl.sweeps"),
)
PIECES = (
    *(
        "a",
        "0",
        " ",
        "=",
        "-",
        ".",
        "/",
        "a.",
        "a: ",
        "0 ",
        "0:",
        "1.",
        "a=",
        "eyJ-",
        "://",
        "'",
        '"',
        "[",
        "[1",
        "<a",
    ),
    *("a:1:1 [1] ", "(a) ", "[a] ", "pyxis: ", "CUDA error ", "{", '"a": "'),
    *(
        "\x1b[",
        "\x1b]",
        "x rank 1",
        "a kernel: ",
        "a kernel: NVRM: Xid (",
        "Got completion from peer ",
        "a [1]: pmix ",
    ),
    *(
        "nThreads: 1 nGpus: 1 ",
        "process rank 1 with PID ",
        "Test NCCL failure a '",
        "connect to a returned ",
        "non-zero",
    ),
)
CHARACTERS = 4096  # what is quadratic takes a thousand times as long as what is linear


def patterns(value: Any) -> Iterator[re.Pattern[str]]:
    """Every pattern in a value, however deep."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, LazyPattern):
        yield re.compile(value.pattern, value.flags)
    elif isinstance(value, dict):
        yield from patterns(list(value.values()))
    elif isinstance(value, Reader):
        yield from patterns([value.begins, value.belongs, value.ends])
    elif isinstance(value, tuple | list):
        for each in value:
            yield from patterns(each)


@pytest.mark.parametrize("module", MODULES)
def test_every_pattern_of_a_module_is_linear(module: str) -> None:
    compiled = {
        each.pattern: each
        for each in patterns(list(vars(import_module(f"seatrial.{module}")).values()))
    }
    assert bool(compiled) is (module not in PATTERNLESS)
    for pattern in compiled.values():
        assert_linear(pattern)


def test_every_cause_of_a_failed_build_is_linear() -> None:
    for cause in CAUSES:
        assert_linear(re.compile(cause.pattern, re.IGNORECASE))
    assert failures._LONGEST <= CHARACTERS


def test_every_cause_of_the_table_is_linear() -> None:
    for cause in LOG_CAUSES:
        assert_linear(compiled(cause) if cause.needle else re.compile(cause.pattern))


def assert_linear(pattern: re.Pattern[str]) -> None:
    pattern.search("")  # a pattern may be compiled by its first search
    for piece in PIECES:
        text = (piece * CHARACTERS)[:CHARACTERS]
        started = time.thread_time()
        pattern.search(f"docker {text}!")
        assert time.thread_time() - started < 0.2, f"{pattern.pattern!r} on {piece!r}"


@pytest.mark.parametrize("piece", PIECES)
def test_a_line_of_half_a_million_characters_takes_no_time(piece: str) -> None:
    """A tenth of a second; what is quadratic takes hours."""
    line = (piece * 500_000)[:500_000]
    started = time.thread_time()
    sweep, transport = SweepReader("all_reduce"), TransportReader()
    list(sweep.feed(line))
    transport.feed(line)
    classify([line, f"{line} unhandled cuda error", f"unhandled system error {line}"])
    gave_up(line)
    build_failure("image", "build", line, "log")
    assert time.thread_time() - started < 2
