"""The unit is part of a series: numbers in GB/s and in Gb/s are not the same series."""

import hashlib
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_AT_ONCE = 5000  # rows


def upgrade() -> None:
    for name in ("series", "baselines"):
        _add_unit(op.get_bind(), name)


def _add_unit(connection: sa.Connection, name: str) -> None:
    columns = ("id", "series", "series_key", "unit")
    table = sa.table(name, *(sa.column(column) for column in columns))
    change = (
        table.update()
        .where(table.c.id == sa.bindparam("at"))
        .values(series=sa.bindparam("to"), series_key=sa.bindparam("key"))
    )
    for rows in _slices(connection, table):
        renamed = [(row.id, f"{row.series}|{row.unit}") for row in rows]
        values = [{"at": at, "to": series, "key": _series_key(series)} for at, series in renamed]
        connection.execute(change, values)


def _slices(connection: sa.Connection, table: sa.TableClause) -> Iterator[list[sa.Row[tuple[object, ...]]]]:
    last = -1
    query = sa.select(table.c.id, table.c.series, table.c.unit).order_by(table.c.id).limit(_AT_ONCE)
    while rows := list(connection.execute(query.where(table.c.id > last))):
        last = rows[-1].id
        yield rows


def _series_key(series: str) -> str:
    """As seatrial.history.records.series_key was at this revision."""
    return hashlib.sha256(series.encode("utf-8", "replace")).hexdigest()
