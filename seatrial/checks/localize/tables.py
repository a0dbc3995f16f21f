"""Tests of pairs from a CSV or JSON file of another tool:
`node_a,node_b,gb_s[,operation][,size][,gpus]`.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from seatrial.localize.group_tests import Addresses, GroupTest
from seatrial.model.errors import InputError
from seatrial.model.sizes import parse_size
from seatrial.text.printable import printable
from seatrial.text.words import nearest_of

TableRow = Mapping[str, Any]
_COLUMNS = ("node_a", "node_b", "gb_s")
_FIELDS = (*_COLUMNS, "operation", "size", "gpus")
_FAILED = ("", "failed", "nan", "null", "none")
_SEPARATORS = (",", ";", "\t")
_BEFORE = "\ufeff \t\r\n"  # characters that may precede the table
_MOST_ROWS = 1_000_000
_LONGEST = 253
_HIGHEST_GB_S = 1e6


def looks_like_pairs(head: str) -> bool:
    """Return whether the beginning of a file is that of a table of pairs."""
    start = head.lstrip(_BEFORE)
    first, _, _ = start.partition("\n")
    names_node = "node_a" in first.lower()
    is_csv = names_node and _separator(first) in first
    begins = start[:1]
    is_json = begins in ("[", "{") and '"node_a"' in head
    return is_csv or is_json


def tests_of_table(name: str, text: str) -> list[GroupTest]:
    """Return the tests of a table; consecutive sizes of the same pair, operation and GPUs make one
    test.

    Raises InputError with row and field.
    """
    tests: list[GroupTest] = []
    counted = _counts_gpus(name, _rows(name, text))
    for number, row in enumerate(_rows(name, text), start=1):
        if number > _MOST_ROWS:
            raise InputError(f"{printable(name)}: more than {_MOST_ROWS:,} rows")
        test = _test(f"{name}#{number}", row, counted=counted)
        if tests and _continues(tests[-1], test):
            before = tests.pop()
            rates = {**before.busbw_gb_s, **test.busbw_gb_s}
            test = replace(before, busbw_gb_s=rates)
        tests.append(test)
    return tests


def _rows(name: str, text: str) -> Iterator[TableRow]:
    """Yield the rows of CSV or JSON, with lower-case column names."""
    text = text.lstrip(_BEFORE)
    if text[:1] in ("[", "{"):
        document = text.rstrip()
        yield from _rows_of_json(name, document)
        return
    first, _, _ = text.partition("\n")
    separator = _separator(first)
    lines = io.StringIO(text)
    reader = csv.DictReader(lines, delimiter=separator, skipinitialspace=True)
    header = [(field or "").strip().lower() for field in reader.fieldnames or ()]
    _check_header(name, header)
    reader.fieldnames = header
    try:
        for row in reader:
            if None in row or None in row.values():
                raise InputError(
                    f"{printable(name)}: line {reader.line_num}: must have the {len(header)} "
                    "fields of the header; a number with a comma needs ; between the fields"
                )
            yield row
    except csv.Error as error:
        raise InputError(f"{printable(name)}: line {reader.line_num}: {error}") from error


def _separator(header: str) -> str:
    """Return the separator of the columns: a comma, a semicolon or a tab."""
    return max(_SEPARATORS, key=header.count)


def _rows_of_json(name: str, text: str) -> Iterator[TableRow]:
    """Yield the pairs in a JSON list, in an object with such a list, or in a file with an object
    per line.
    """
    first, _, others = text.partition("\n")
    is_one_object = first.rstrip().endswith("}")
    if is_one_object and others:
        by_line = filter(str.strip, text.splitlines())
        rows = ",".join(by_line)
        text = f"[{rows}]"
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{printable(name)}: is no JSON: {error}") from error
    pairs = document
    if isinstance(document, dict):
        pairs = document.get("pairs", [document])
    if not isinstance(pairs, list) or not all(isinstance(row, dict) for row in pairs):
        raise InputError(
            f'{printable(name)}: must be a list of pairs, or {{"pairs": [...]}}, each '
            "with node_a, node_b, gb_s"
        )
    for row in pairs:
        _check_header(name, [str(field) for field in row])
        yield row


def _check_header(name: str, fields: Sequence[str]) -> None:
    """Raise InputError for an unknown or a missing field."""
    for field in fields:
        if field not in _FIELDS:
            shown = field[:100]
            hint = nearest_of(shown, _FIELDS) or f"legal are {', '.join(_FIELDS)}"
            raise InputError(f"{printable(name)}: {printable(shown)!r} is no field; {hint}")
    for field in _COLUMNS:
        if field not in fields:
            raise InputError(
                f"{printable(name)}: field {field!r} is missing; needed are {', '.join(_COLUMNS)}"
            )


def _counts_gpus(name: str, rows: Iterable[TableRow]) -> bool:
    """Return whether the column of GPUs has only numbers of GPUs, from 1 on.

    A bus such as 43 is an address beside one such as 9d, and an index such as 1 beside 0.
    """
    column = {_text(name, "gpus", row) for row in rows}
    return all(text.isdecimal() and text[0] != "0" for text in column - {""})


def _test(name: str, row: TableRow, *, counted: bool) -> GroupTest:
    """Return the test of one row; `counted` is whether it has a number of GPUs."""
    first = _node(name, "node_a", row)
    second = _node(name, "node_b", row)
    if first == second:
        raise InputError(f"{printable(name)}: node_a and node_b are the same, {printable(first)}")
    size = _size(name, row)
    rate = _rate(name, row)
    rates = {}
    if rate:
        rates[size] = rate
    gpus = _text(name, "gpus", row).lower()
    operation = _text(name, "operation", row) or "pairs"
    return GroupTest(
        name=name,
        collective=operation[:_LONGEST],
        nodes=(first, second),
        busbw_gb_s=rates,
        gpus=() if counted else _addresses(gpus),
        conditions=f"{gpus} GPUs" if counted and gpus else "",
    )


def _node(name: str, field: str, row: TableRow) -> str:
    """Return the name in a column."""
    node = _text(name, field, row)
    if not 0 < len(node) <= _LONGEST:
        raise InputError(f"{printable(name)}: {field} must have 1 to {_LONGEST} characters")
    return node


def _text(name: str, field: str, row: TableRow) -> str:
    """Return what a column has; empty if it has nothing."""
    value = row.get(field)
    if isinstance(value, list | dict):
        raise InputError(f"{printable(name)}: {field} must be a text or a number")
    return "" if value is None else str(value).strip()


def _rate(name: str, row: TableRow) -> float:
    """Return GB/s; 0 for a failed test."""
    text = _text(name, "gb_s", row)
    if text.lower() in _FAILED:
        return 0.0
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 <= rate < _HIGHEST_GB_S:
        raise InputError(
            f"{printable(name)}: gb_s must be a number of GB/s, or empty for a test that failed;"
            f" is {printable(text[:60])!r}"
        )
    return rate


def _size(name: str, row: TableRow) -> int:
    """Return message bytes; 1 if the table has no sizes."""
    text = _text(name, "size", row)
    if not text:
        return 1
    try:
        return parse_size(text)
    except ValueError as error:
        raise InputError(f"{printable(name)}: size: {error}") from error


def _addresses(text: str) -> Addresses:
    """Return the GPU addresses of both ends, such as `9d c3` or `9d c3 | 1b 43`."""
    ends = [tuple(sorted(end.split())[:64]) for end in text.split("|")[:2]]
    return (ends[0], ends[-1]) if any(ends) else ()


def _continues(before: GroupTest, test: GroupTest) -> bool:
    """Return whether the test has the same nodes and GPUs as the one before, but other sizes."""
    if before.failed or test.failed:
        return False
    return (
        before.nodes == test.nodes
        and before.collective == test.collective
        and before.gpus == test.gpus
        and before.conditions == test.conditions
        and before.busbw_gb_s.keys().isdisjoint(test.busbw_gb_s)
    )
