"""Reach the database: its locks, and every failure as one clear line."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, StaticPool, create_engine, event
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError

from seatrial.history.migrate import migrate
from seatrial.history.url import first_line, parse_url, shown
from seatrial.model.errors import MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.system.private import closed_folder, private_opener
from seatrial.system.state_home import state_home

LOCK_TIMEOUT_S = 30


def connect(url: str | None) -> Engine:
    """An engine on the store at `url` (else $SEATRIAL_HISTORY, else the default), its schema current."""
    parsed = parse_url(url or os.environ.get("SEATRIAL_HISTORY") or default_url())
    with explained(parsed, "cannot be opened"):
        _make_private(parsed)
        engine = _engine(parsed)
        try:
            migrate(engine)
        except BaseException:
            engine.dispose()
            raise
    return engine


def default_url() -> str:
    """SQLite under $XDG_STATE_HOME (~/.local/state when unset)."""
    return URL.create("sqlite", database=str(state_home() / "history.sqlite")).render_as_string(hide_password=False)


@contextmanager
def explained(url: URL, what: str) -> Iterator[None]:
    """Turn whatever the database throws into one line that names the store."""
    name = shown(url)
    try:
        yield
    except (NoSuchModuleError, ImportError) as error:
        raise MissingError(
            Reason.of("history-driver-missing", place=name, action=what, problem=first_line(error, url))
        ) from error
    except DBAPIError as error:
        raise SeatrialError(_failed(name, what, first_line(error.orig, url), _next_step(error))) from error
    except (SQLAlchemyError, OSError, ValueError, TypeError) as error:
        raise SeatrialError(_failed(name, what, first_line(error, url))) from error


def _failed(place: str, action: str, problem: str, next_step: str = "") -> Reason:
    return Reason.of("history-failed", place=place, action=action, problem=problem, next_step=next_step)


def _make_private(url: URL) -> None:
    """A file of SQLite is its user's alone, with mode 0600, which what SQLite writes beside it takes over."""
    database = str(url.database)
    if url.get_backend_name() != "sqlite" or _in_memory(url) or database.startswith("file:"):
        return
    path = Path(database)
    if not path.parent.exists() or path.parent == state_home():
        closed_folder(path.parent)
    if not path.exists() or os.access(path, os.W_OK):  # one that is only read stays as it is
        os.close(private_opener(database, os.O_WRONLY | os.O_CREAT))


def _engine(url: URL) -> Engine:
    """No pool: a store is used a few times in a run, and an idle connection would only outlive its thread."""
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(url)
    # A database without an encoding of its own, as `initdb` makes it in the locale C, would answer in bytes.
    arguments = {**_unless_given(url, "connect_timeout", 10), **_unless_given(url, "client_encoding", "utf8")}
    engine = create_engine(url, poolclass=NullPool, connect_args=arguments)
    event.listen(engine, "begin", _limit_lock_wait)
    return engine


def _sqlite_engine(url: URL) -> Engine:
    arguments = {"check_same_thread": False, **_unless_given(url, "timeout", LOCK_TIMEOUT_S)}
    engine = create_engine(url, poolclass=StaticPool if _in_memory(url) else NullPool, connect_args=arguments)
    event.listen(engine, "connect", _take_over_transactions)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _in_memory(url: URL) -> bool:
    return url.database in (None, "", ":memory:")


def _unless_given(url: URL, name: str, value: float | str) -> dict[str, Any]:
    return {} if name in url.query else {name: value}


def _take_over_transactions(connection: Any, _record: Any) -> None:
    """Python's sqlite3 starts transactions late and never around DDL, so both are left to `_begin_sqlite`."""
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    """A writer takes the write lock first: upgrading a read lock later fails at once when two do it."""
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _limit_lock_wait(connection: Connection) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'")


def _next_step(error: DBAPIError) -> str:
    text = str(error.orig).lower()
    if "locked" in text or "lock timeout" in text:
        return "; another process holds it: try again, or give another store (SEATRIAL_HISTORY)"
    if "not a database" in text or "malformed" in text:
        return "; move the file away, or give another store (SEATRIAL_HISTORY)"
    return "; check the path, the server and the permissions, or give another store (SEATRIAL_HISTORY)"
