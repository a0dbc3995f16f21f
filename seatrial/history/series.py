"""Series and their numbers: what is read and written by the ten thousand, so plain rows and no objects per row."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, and_, case, select
from sqlalchemy.dialects import postgresql, sqlite

from seatrial.history.records import Key, Record, series_key
from seatrial.history.rows import VERDICTS, Readings
from seatrial.history.schema import readings, series

# Both databases limit the parameters of one statement, SQLite at 32766.
KEYS_PER_QUERY = 500


def known_series(connection: Connection, requested: Mapping[Key, Record]) -> dict[Key, int]:
    """The id of each series; those that are new are added. Others may add the same ones at the same moment."""
    ids = _ids(connection, requested)
    # Always in the same order, or two runs that add the same series could wait for each other for ever.
    new = [requested[key] for key in sorted(requested) if key not in ids]
    if not new:
        return ids
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(series).on_conflict_do_nothing(), new)
    return _ids(connection, requested)


def _ids(connection: Connection, requested: Mapping[Key, Record]) -> dict[Key, int]:
    digests = sorted({digest for digest, _, _ in requested})
    columns = (series.c.series_key, series.c.check_name, series.c.unit, series.c.id)
    rows = (
        row
        for some in _slices(digests)
        for row in connection.execute(select(*columns).where(series.c.series_key.in_(some)))
    )
    return {(digest, check, unit): series_id for digest, check, unit, series_id in rows}


def numbers_of(connection: Connection, run_ids: Sequence[str], names: Sequence[str]) -> Readings:
    """What the runs measured of the series, as places in both lists."""
    place = {series_key(name): i for i, name in enumerate(names)}
    columns = (series.c.series_key, series.c.id)
    known = [
        (int(series_id), place[digest])
        for some in _slices(sorted(place))
        for digest, series_id in connection.execute(select(*columns).where(series.c.series_key.in_(some)))
    ]
    at = np.full(max((series_id for series_id, _ in known), default=0) + 2, -1, dtype=np.int64)
    for series_id, i in known:
        at[series_id] = i
    few = sorted(series_id for series_id, _ in known) if len(known) <= KEYS_PER_QUERY else None
    return _collected(connection, run_ids, at, few)


def _collected(connection: Connection, run_ids: Sequence[str], at: Any, few: Sequence[int] | None) -> Readings:
    """`at`: the place of each series by its id, -1 for those that were not asked for; `few`: the ids, if they are."""
    runs: list[Any] = []
    columns: list[tuple[Any, ...]] = []
    for i, run_id in enumerate(run_ids):
        rows = _rows(connection, run_id, few)
        runs.append(np.full(len(rows), i))
        columns.append(_columns(rows))
    ids, nth, value, verdict = (np.concatenate([c[n] for c in columns]) if columns else np.empty(0) for n in range(4))
    where = at[np.minimum(ids.astype(np.int64), at.size - 1)]
    requested = where >= 0
    run = np.concatenate(runs) if runs else np.empty(0, dtype=np.int64)
    return Readings(
        run[requested],
        where[requested],
        nth[requested].astype(np.int64),
        value[requested],
        verdict[requested].astype(np.int64),
    )


def _rows(connection: Connection, run_id: str, few: Sequence[int] | None) -> list[Any]:
    """Past SQLAlchemy's own rows, which cost three times as much as reading; the whole run where `few` is None."""
    verdict = case({verdict.value: i for i, verdict in enumerate(VERDICTS)}, value=readings.c.verdict, else_=-1)
    query = (
        select(readings.c.series_id, readings.c.nth, readings.c.value, verdict)
        .where(and_(readings.c.run_id == run_id, readings.c.value.is_not(None)))
        .order_by(readings.c.series_id, readings.c.nth)
    )
    if few is not None:
        query = query.where(readings.c.series_id.in_(few))
    cursor = connection.execute(query)
    assert cursor.cursor is not None
    return list(cursor.cursor.fetchall())


def _columns(rows: list[Any]) -> tuple[Any, ...]:
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3]


def _slices(values: Sequence[str]) -> Iterator[Sequence[str]]:
    return (values[start : start + KEYS_PER_QUERY] for start in range(0, len(values), KEYS_PER_QUERY))
