"""Read series and their numbers back from the tables."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import (
    JSON,
    Case,
    ColumnElement,
    Connection,
    Join,
    Select,
    and_,
    case,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from seatrial.history.records import Key, Record, series_key
from seatrial.history.rows import VERDICTS, Readings
from seatrial.history.schema import readings, samples, series
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.verdict import Verdict

if TYPE_CHECKING:
    from seatrial.detection.readings import Ints

# The columns of the tables
_SERIES = series.c
_READING = readings.c
_SAMPLE = samples.c
_FEW_SERIES = 500  # are looked up one by one; of more, runs are read whole
_DESCRIBED = (
    "check_name",
    "metric",
    "unit",
    "subject_kind",
    "subject_name",
    "conditions",
    "better",
)


def listed(connection: Connection, values: Sequence[str | int]) -> Select[Any]:
    """Return a query of the values as one parameter, since databases limit the number of
    parameters.
    """
    each = func.json_array_elements_text
    if connection.dialect.name == "sqlite":
        each = func.json_each
    parameter = literal(list(values), JSON)
    table = each(parameter).table_valued("value")
    return select(table.c.value)


def series_ids(connection: Connection, requested: Mapping[Key, Record]) -> dict[Key, int]:
    """Return the id of each series, adding new ones; others may add the same at the same time."""
    ids = _ids(connection, requested)
    # Always in the same order, or two runs that add the same series could wait for each other for
    # ever.
    new = [requested[key] for key in sorted(requested) if key not in ids]
    if not new:
        return ids
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    insertion = dialect.insert(series).on_conflict_do_nothing()
    connection.execute(insertion, new)
    return _ids(connection, requested)


def _ids(connection: Connection, requested: Mapping[Key, Record]) -> dict[Key, int]:
    digests = sorted({digest for digest, _, _ in requested})
    query = _requested(connection, digests, _SERIES.check_name, _SERIES.unit)
    ids = {}
    for digest, series_id, check, unit in _plain(connection, query):
        ids[digest, check, unit] = series_id
    return ids


def _requested(
    connection: Connection, digests: Sequence[str], *more: ColumnElement[str]
) -> Select[Any]:
    """Return a query of the series of those digests: digest, id, and `more` columns."""
    is_requested = _SERIES.series_key.in_(listed(connection, digests))
    return select(_SERIES.series_key, _SERIES.id, *more).where(is_requested)


def numbers_of(connection: Connection, run_ids: Sequence[str], names: Sequence[str]) -> Readings:
    """Return the readings of the series in the runs, as indexes of both lists."""
    place_by_id = _places(connection, names)
    few = None
    if len(place_by_id) <= _FEW_SERIES:
        few = sorted(place_by_id)
    tables = []
    lengths = []
    for run_id in run_ids:
        rows = _rows(connection, run_id, few)
        table = np.array(rows, dtype=np.float64)
        tables.append(table.reshape(-1, 3))
        lengths.append(len(rows))
    run = np.repeat(np.arange(len(tables)), lengths)
    ids, value, verdict = np.concatenate([np.empty((0, 3)), *tables]).T
    place = _looked_up(place_by_id, ids.astype(np.int64))
    stored = Readings(run, place, value, verdict.astype(np.int64))
    return stored.moved(place)


def _looked_up(place_by_id: Mapping[int, int], ids: "Ints") -> "Ints":
    """Return the place of each id; -1 for those that have none."""
    largest = max(place_by_id, default=0)
    places = np.full(largest + 2, -1, dtype=np.int64)
    for series_id, place in place_by_id.items():
        places[series_id] = place
    known = np.minimum(ids, largest + 1)
    looked_up: Ints = places[known]
    return looked_up


def _places(connection: Connection, names: Sequence[str]) -> dict[int, int]:
    """Return the place in `names` of each series that is stored, by its id."""
    place_by_digest = {series_key(name): i for i, name in enumerate(names)}
    query = _requested(connection, sorted(place_by_digest))
    place_by_id = {}
    for digest, series_id in _plain(connection, query):
        place_by_id[series_id] = place_by_digest[digest]
    return place_by_id


def _rows(connection: Connection, run_id: str, few: Sequence[int] | None) -> list[Any]:
    """Return the finite numbers of the run, of all series if `few` is None."""
    is_finite = _READING.value.is_not(None)
    query = (
        select(_READING.series_id, _READING.value, _verdict_index())
        .where(_READING.run_id == run_id, is_finite)
        .order_by(_READING.series_id, _READING.nth)
    )
    if few is not None:
        query = query.where(_READING.series_id.in_(few))
    return _plain(connection, query)


def _verdict_index() -> Case[int]:
    """Return the index of a reading's verdict in VERDICTS as SQL; -1 without one."""
    index = {Verdict.PASS.value: VERDICTS.index(Verdict.PASS)}  # first, since nearly all passed
    for i, verdict in enumerate(VERDICTS):
        index[verdict.value] = i
    return case(index, value=_READING.verdict, else_=-1)


def _plain(connection: Connection, query: Select[Any]) -> list[Any]:
    """Return the driver's rows: SQLAlchemy's cost three times as much as reading."""
    cursor = connection.execute(query).cursor
    assert cursor is not None
    return list(cursor.fetchall())


def stored_measurements(connection: Connection, run_id: str) -> list[tuple[str, Measurement]]:
    """Return every measurement of the run with its check; NaN for values that were not finite."""
    columns = [_SERIES[name] for name in _DESCRIBED]
    query = (
        select(*columns, _READING.value, _SAMPLE.samples)
        .select_from(_readings_with_samples())
        .where(_READING.run_id == run_id)
        .order_by(_READING.series_id, _READING.nth)
    )
    stored = []
    for row in connection.execute(query):
        stored.append((row.check_name, _measurement(row)))
    return stored


def _readings_with_samples() -> Join:
    """Join the readings with their series and, if stored, their samples."""
    beside = and_(
        _SAMPLE.run_id == _READING.run_id,
        _SAMPLE.series_id == _READING.series_id,
        _SAMPLE.nth == _READING.nth,
    )
    of_series = readings.join(series, _READING.series_id == _SERIES.id)
    return of_series.outerjoin(samples, beside)


def described_series(connection: Connection, subject: Subject) -> list[Measurement]:
    """Return every series of the subject with NaN for a value."""
    nothing = [literal(None).label(name) for name in ("value", "samples")]
    query = (
        select(series, *nothing)
        .where(_SERIES.subject_kind == subject.kind, _SERIES.subject_name == subject.name)
        .order_by(_SERIES.id)
    )
    by_series = {}
    for row in connection.execute(query):
        m = _measurement(row)
        by_series[m.series()] = m
    return list(by_series.values())


def _measurement(row: Any) -> Measurement:
    return Measurement(
        row.metric,
        _number(row.value),
        row.unit,
        subject=Subject(row.subject_kind, row.subject_name),
        conditions=row.conditions,
        samples=tuple(map(_number, row.samples or ())),
        better=row.better,
    )


def _number(stored: float | None) -> float:
    """Return the number, which is null where it was not finite."""
    if stored is None:
        return math.nan
    return stored
