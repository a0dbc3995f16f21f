"""Bring the schema up to date. The common case, nothing to do, costs one query and no import of alembic."""

import threading

from sqlalchemy import Connection, Engine, inspect, text

from seatrial.history.schema import HEAD, VERSION_TABLE
from seatrial.history.url import shown
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import Reason

# Any number will do, as long as every process takes the same one.
_ADVISORY_LOCK = 7228465
# alembic keeps the migration it is in, in module globals.
_one_thread = threading.Lock()


def migrate(engine: Engine) -> None:
    """Upgrade to HEAD unless it is there already; safe when several processes do it at once.

    Raises SeatrialError when a newer seatrial wrote the store.
    """
    with engine.connect() as connection:
        if version(connection) == HEAD:
            return
    with _one_thread, engine.execution_options(writes=True).begin() as connection:
        lock(connection, _ADVISORY_LOCK)
        if version(connection) != HEAD:
            upgrade(connection)


def version(connection: Connection) -> str | None:
    """The revision the schema is at; None for a database that holds no store yet."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return None if revision is None else str(revision)


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Run the migrations up to `revision` inside the connection's transaction."""
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", "seatrial:history/migrations")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, revision)
    except CommandError as error:
        place = shown(connection.engine.url)
        raise SeatrialError(Reason.of("history-too-new", place=place, problem=str(error))) from error


def lock(connection: Connection, key: int) -> None:
    """Until the transaction ends. SQLite's writer holds its lock from the start; PostgreSQL has locks to name."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
