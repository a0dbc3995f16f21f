"""Read the measurements.csv that a run wrote."""

import csv
import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, TextIO

from seatrial.model.errors import InputError, os_errors_named
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.system.private import read_opener
from seatrial.text.escape import from_text

MAX_BYTES = 100_000_000  # of a file: the run.json of 1,000 nodes takes 6 MB
ByCheck = dict[str, list[Measurement]]
# Characters: all samples of a measurement are one cell, so 100,000 steps of training
MAX_LINE = 8_000_000
MAX_COLUMNS = 200
MAX_ROWS = 100_000
MAX_TABLE_VALUES = 2_000_000  # cells and samples: bounds the memory that they take
FIXED_COLUMNS = (
    "run_id",
    "cluster",
    "suite",
    "check",
    "metric",
    "subject_kind",
    "subject",
    "value",
    "unit",
    "better",
    "verdict",
    "expected_low",
    "expected_high",
    "source",
    "samples",
    "printed",
)


class _BoundError(ValueError):
    """The file exceeds a bound; the text says which."""


def read_measurements(file: Path, run_id: str) -> ByCheck:
    """Return measurements by check; nothing when the file is absent or of another run.

    Raises InputError with one line for a file that is too large or is none that a run writes.
    """
    with os_errors_named(f"{file}: cannot be read"):
        try:
            with open(file, encoding="utf-8", newline="", opener=read_opener) as content:
                size = os.fstat(content.fileno()).st_size
                if size > MAX_BYTES:
                    raise _BoundError(f"is larger than {MAX_BYTES:,} bytes ({size:,})")
                return _by_check(content, run_id)
        except FileNotFoundError:
            return {}
        except _BoundError as error:
            raise InputError(f"{file}: {error}; move it away to do without") from error
        except (
            KeyError,
            TypeError,
            ValueError,
            ArithmeticError,
            RecursionError,
            csv.Error,
        ) as error:
            raise InputError(
                f"{file}: is not the measurements.csv of a run ({error}); move it away to do without"
            ) from error


def _by_check(content: TextIO, run_id: str) -> ByCheck:
    # csv has one limit for the whole process and no other way, and by itself that is 128 KiB: a few
    # thousand steps of training. It is only ever raised, so that no other reader fails.
    csv.field_size_limit(max(MAX_LINE, csv.field_size_limit()))
    measurements: ByCheck = {}
    reader = csv.DictReader(_bounded_lines(content))
    columns = len(reader.fieldnames or ())
    if columns > MAX_COLUMNS:
        raise _BoundError(f"has more than {MAX_COLUMNS} columns ({columns:,})")
    for number, cells in enumerate(reader, 1):
        if number > MAX_ROWS:
            raise _BoundError(f"has more than {MAX_ROWS:,} rows")
        row: dict[str, Any] = {
            name: from_text(cell) for name, cell in cells.items() if cell is not None
        }
        if row["run_id"] == run_id:
            measurements.setdefault(row["check"], []).append(_measurement(row))
    return measurements


def _bounded_lines(content: TextIO) -> Iterator[str]:
    """Yield the lines; the size is counted again, because a file may grow while it is read."""
    characters = values = 0
    for number in count(1):
        line = content.readline(MAX_LINE + 1)
        if not line:
            return
        characters += len(line)
        values += line.count(",")
        if len(line) > MAX_LINE:
            raise _BoundError(f"line {number:,} is longer than {MAX_LINE:,} characters")
        if characters > MAX_BYTES:
            raise _BoundError(f"is larger than {MAX_BYTES:,} bytes")
        if values > MAX_TABLE_VALUES:
            raise _BoundError(f"has more than {MAX_TABLE_VALUES:,} values")
        yield line


def _measurement(row: dict[str, Any]) -> Measurement:
    conditions = {
        key: _condition(text) for key, text in row.items() if key not in FIXED_COLUMNS and text
    }
    samples = tuple(
        float("nan") if s is None else float(s) for s in json.loads(row["samples"] or "[]")
    )
    return Measurement(
        metric=row["metric"],
        value=float(row["value"]),
        unit=row["unit"],
        subject=Subject(row["subject_kind"], row["subject"]),
        conditions=conditions,
        samples=samples,
        better=row.get("better") or None,
        printed=float(row["printed"]) if row.get("printed") else None,
    )


def _condition(text: str) -> ConditionValue:
    if text in ("True", "False"):
        return text == "True"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
