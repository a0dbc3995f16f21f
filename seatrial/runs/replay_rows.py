"""The rows that a replay judges, read from a file and made ready: tidy, as measurements.csv has
them.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import numpy as np

from seatrial.model.errors import InputError
from seatrial.model.measurement import TIMES, SubjectKind
from seatrial.text.printable import printable
from seatrial.text.words import nearest_of

if TYPE_CHECKING:
    import pandas as pd


NEEDED = ("run_id", "metric", "subject_kind", "subject", "value", "unit")
FACTS = ("model", "driver", "clock")
OPTIONAL = ("started", "cluster", "suite", "check", "better", *FACTS)
_NAMES = ("run_id", "metric", "subject")  # which no row lacks
_LEGAL: Mapping[str, Sequence[str]] = {
    "subject_kind": get_args(SubjectKind),
    "better": ("higher", "lower", ""),
}
# Of measurements.csv
_RESULTS = ("verdict", "expected_low", "expected_high", "source", "samples", "printed", "reason")
_MOST_ERRORS = 5
_FIRST_LINE = 2  # the line of row 0 in a file


def read_rows(path: Path) -> "pd.DataFrame":
    """Return the rows of a CSV file.

    Raises InputError, one line for each error, where a column or a number is missing.
    """
    import pandas as pd

    try:
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(f"{path}: cannot be read as CSV: {printable(str(error))}") from error
    columns = len(rows.columns)
    if not isinstance(rows.index, pd.RangeIndex):  # pandas takes surplus columns for names of rows
        cells = columns + rows.index.nlevels
        raise InputError(f"{path}: line 2: {cells} cells, and the header names {columns} columns")
    errors = list(_missing_columns(rows))
    if not errors:
        errors = list(islice(_bad_cells(rows), _MOST_ERRORS))
    if errors:
        in_file = [f"{path}: {error}" for error in errors]
        raise InputError("; ".join(in_file))
    return rows


def _missing_columns(rows: "pd.DataFrame") -> Iterator[str]:
    """Yield that a column is missing, and what may be meant for it."""
    names = [printable(str(column)) for column in rows.columns]
    there = ", ".join(names[:20])
    for name in NEEDED:
        if name not in rows.columns:
            hint = nearest_of(name, names) or f"there are {there}"
            yield f"column {name} is missing; {hint}"


def _bad_cells(rows: "pd.DataFrame") -> Iterator[str]:
    """Yield the line of a bad cell in the file, and what is wrong: names first, then numbers, then
    words.
    """
    for name in _NAMES:
        column = rows[name]
        is_empty = column.str.strip() == ""
        for line, _ in _cells(column[is_empty]):
            yield f"line {line}: {name}: is empty"
    values = rows["value"]
    is_number = _are_numbers(values)
    for line, text in _cells(values[~is_number]):
        yield f"line {line}: value: {_shown(text)} is not a number"
    for name, legal in _LEGAL.items():
        if name in rows.columns:
            yield from _unknown_words(rows[name], legal)


def _unknown_words(column: "pd.Series[str]", legal: Sequence[str]) -> Iterator[str]:
    """Yield the cells whose word is not legal, and what may be meant."""
    words = [word for word in legal if word]
    all_words = ", ".join(words)
    is_legal = column.isin(legal)
    for line, text in _cells(column[~is_legal]):
        hint = nearest_of(text, words) or f"legal: {all_words}"
        yield f"line {line}: {column.name}: {_shown(text)}; {hint}"


def _cells(column: "pd.Series[str]") -> Iterator[tuple[int, str]]:
    """Yield the line in the file and the text of each cell."""
    for row, text in column.items():
        yield cast(int, row) + _FIRST_LINE, text


def _are_numbers(values: "pd.Series[str]") -> "pd.Series[bool]":
    import pandas as pd

    is_number = pd.to_numeric(values, errors="coerce").notna()
    is_not_finite = values.str.lower().isin(("nan", "inf", "-inf"))
    return is_number | is_not_finite


def _shown(text: str) -> str:
    return repr(printable(text)[:40])


def tidy(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Return the rows that are to be judged, runs in their order, with all columns that the replay
    uses.
    """
    import pandas as pd

    frame = rows.drop(columns=list(_RESULTS), errors="ignore").copy()
    for name in (*OPTIONAL, *NEEDED):
        if name not in frame.columns:
            frame[name] = ""
        elif name != "value":
            frame[name] = frame[name].fillna("").astype(str)
    frame["value"] = pd.to_numeric(frame["value"], errors="coerce")
    if "better" not in rows.columns:
        is_time = frame["unit"].isin(sorted(TIMES))
        frame["better"] = np.where(is_time, "lower", "higher")
    frame = frame[frame["better"] != ""]
    if (frame["started"] == "").any():
        return frame
    return frame.sort_values("started", kind="stable")
