"""Series and their numbers: what is read and written by the ten thousand, so plain rows and no objects per row."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import JSON, Connection, Select, and_, case, func, literal, select
from sqlalchemy.dialects import postgresql, sqlite

from seatrial.history.records import Key, Record, series_key
from seatrial.history.rows import VERDICTS, Readings
from seatrial.history.schema import readings, series
from seatrial.model.verdict import Verdict

_FEW = 500  # series that are looked up one by one; of more, runs are read whole


def listed(connection: Connection, values: Sequence[str | int]) -> Select[Any]:
    """A query of the values, however many: as one parameter, since both databases limit how many there may be."""
    each = func.json_each if connection.dialect.name == "sqlite" else func.json_array_elements_text
    return select(each(literal(list(values), JSON)).table_valued("value").c.value)


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
    columns = (series.c.series_key, series.c.check_name, series.c.unit, series.c.id)
    digests = sorted({digest for digest, _, _ in requested})
    query = select(*columns).where(series.c.series_key.in_(listed(connection, digests)))
    return {(digest, check, unit): series_id for digest, check, unit, series_id in _plain(connection, query)}


def numbers_of(connection: Connection, run_ids: Sequence[str], names: Sequence[str]) -> Readings:
    """What the runs measured of the series, as places in both lists."""
    place = {series_key(name): i for i, name in enumerate(names)}
    query = select(series.c.series_key, series.c.id).where(series.c.series_key.in_(listed(connection, sorted(place))))
    known = [(series_id, place[digest]) for digest, series_id in _plain(connection, query)]
    at = np.full(max((series_id for series_id, _ in known), default=0) + 2, -1, dtype=np.int64)
    for series_id, i in known:
        at[series_id] = i
    few = sorted(series_id for series_id, _ in known) if len(known) <= _FEW else None
    return _collected(connection, run_ids, at, few)


def _collected(
    connection: Connection, run_ids: Sequence[str], at: NDArray[np.int64], few: Sequence[int] | None
) -> Readings:
    """`at`: the place of each series by its id, -1 for those that were not asked for; `few`: the ids, if they are."""
    tables = [_table(_rows(connection, run_id, few)) for run_id in run_ids]
    run = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    ids, value, verdict = np.concatenate([_table([]), *tables]).T
    where = at[np.minimum(ids.astype(np.int64), at.size - 1)]
    return Readings(run, where, value, verdict.astype(np.int64)).moved(where)


def _table(rows: Sequence[Any]) -> NDArray[np.float64]:
    return np.array(rows, dtype=np.float64).reshape(-1, 3)


def _rows(connection: Connection, run_id: str, few: Sequence[int] | None) -> list[Any]:
    """The numbers of the run that are finite, of a whole run where `few` is None."""
    places = {verdict.value: VERDICTS.index(verdict) for verdict in (Verdict.PASS, *VERDICTS)}  # nearly all passed
    verdict = case(places, value=readings.c.verdict, else_=-1)
    query = (
        select(readings.c.series_id, readings.c.value, verdict)
        .where(and_(readings.c.run_id == run_id, readings.c.value.is_not(None)))
        .order_by(readings.c.series_id, readings.c.nth)
    )
    return _plain(connection, query if few is None else query.where(readings.c.series_id.in_(few)))


def _plain(connection: Connection, query: Select[Any]) -> list[Any]:
    """The rows as the driver has them: SQLAlchemy's own cost three times as much as reading."""
    cursor = connection.execute(query).cursor
    assert cursor is not None
    return list(cursor.fetchall())
