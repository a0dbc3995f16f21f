"""Connect to the database: URL, schema migration, locks, and errors as one line."""

import itertools
import logging
import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    NullPool,
    StaticPool,
    create_engine,
    event,
    inspect,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from seatrial.history.schema import HEAD, OLDEST, VERSION_TABLE, metadata
from seatrial.model.errors import InputError, MissingError, SeatrialError
from seatrial.system.private import closed_folder, private_opener
from seatrial.system.state_home import state_home
from seatrial.text.redact import SECRET_OPTION, Secrets

log = logging.getLogger("seatrial.history")

_LEGAL = "legal: sqlite:////path/to/history.sqlite or postgresql://user:password@host/database"
_LOGIN = re.compile(r"^[^:/]*(?::[^@]*)?@")  # as SQLAlchemy reads it
_OPTION = re.compile(r"[?&]\w+=[^&]*")
# Any number that all processes share.
_ADVISORY_LOCK = 7228465
# alembic keeps the migration it is in, in module globals.
_one_thread = threading.Lock()
LOCK_TIMEOUT_S = 30


def parse_url(text: str) -> URL:
    """Parse the URL of a supported database.

    Raises InputError, without the text: it may hold a password.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise InputError(f"SEATRIAL_HISTORY is not a database URL; {_LEGAL}") from None
    if url.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg"):
        raise InputError(f"SEATRIAL_HISTORY: unknown database {url.drivername!r}; {_LEGAL}")
    # SQLAlchemy 2.0 and 2.1 disagree on PostgreSQL's default driver.
    url = url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url
    if problem := _problem(url, text):
        raise InputError(f"SEATRIAL_HISTORY: {problem}; {_LEGAL}")
    return url


def shown(url: URL) -> str:
    """Return the URL without its passwords."""
    return SECRET_OPTION.sub(r"\1***", url.render_as_string(hide_password=True))


def first_line(error: object, url: URL) -> str:
    """Return the first line of an error without the passwords of `url` and their parts."""
    lines = str(error).strip().splitlines()
    return "".join(_secrets(url).out_of(lines[:1])) or type(error).__name__


def _secrets(url: URL) -> Secrets:
    """Return passwords and their parts, the longest first: a badly quoted one may be parsed as a
    host.
    """
    queried = url.normalized_query.items()
    query = (
        value for name, values in queried if SECRET_OPTION.match(f"?{name}=") for value in values
    )
    parts = {
        part
        for secret in (url.password or "", *query)
        for part in (secret, *re.split(r"[@:/?#&=%]", secret))
    }
    # A shorter piece would be found in every text
    telling = (part for part in parts if len(part) >= 3)
    return Secrets(tuple(sorted(telling, key=len, reverse=True)))


def _problem(url: URL, text: str) -> str | None:
    """Return what is wrong with the URL, which is `text` parsed."""
    is_file = url.get_backend_name() == "sqlite"
    rest = _LOGIN.sub("", text.partition("://")[2])
    if not is_file and "@" in _OPTION.sub("", rest):  # it would end a password early
        return "an @ in a user or password must be written as %40"
    try:
        options = url.get_dialect()().create_connect_args(url)[1]
    except (ArgumentError, ValueError, TypeError) as error:
        return first_line(error, url)
    if is_file:
        return (
            f"{url.database} is a folder" if url.database and os.path.isdir(url.database) else None
        )
    if any(not _encodes(host) for host in str(options.get("host", "")).split(",")):
        return "its host is not the name of one"
    ports = str(options.get("port", "")).split(",")
    if any(port and not (port.isdecimal() and 1 <= int(port) <= 65535) for port in ports):
        return "its port must be 1 to 65535"
    return _bad_options(url, options)


def _encodes(host: str) -> bool:
    """Return whether `host` is a valid host name; one that starts with / is the folder of a
    socket.
    """
    try:
        return host.startswith("/") or bool(host.encode("idna")) or not host
    except UnicodeError:
        return False


def _bad_options(url: URL, options: Mapping[str, Any]) -> str | None:
    try:
        float(options.get("connect_timeout", 0))
    except (ValueError, TypeError):
        return "connect_timeout must be a number of seconds"
    with suppress(ImportError):  # opening the store says what to install
        from psycopg import Error
        from psycopg.conninfo import make_conninfo

        try:
            make_conninfo(**options)
        except Error as error:
            return first_line(error, url)
    return None


def migrate(engine: Engine) -> None:
    """Upgrade the schema to HEAD; several processes may do it at once.

    Raises SeatrialError when a newer seatrial wrote the store, or one before the first release.
    """
    with engine.connect() as connection:
        if version(connection) == HEAD:
            return
    # A migration replaces tables of SQLite: with the old table of runs, all that refers to it
    # would be deleted
    migrating = engine.execution_options(writes=True, foreign_keys="OFF")
    with _one_thread, migrating.begin() as connection:
        lock(connection, _ADVISORY_LOCK)
        if version(connection) is None:
            create(connection)
        elif version(connection) != HEAD:
            upgrade(connection)


def version(connection: Connection) -> str | None:
    """Return the revision of the schema; None for a database without a store."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return None if revision is None else str(revision)


def create(connection: Connection) -> None:
    """Make a store with today's schema (alembic's cookbook, "Building an Up to Date Database from
    Scratch").
    """
    from alembic.command import stamp

    metadata.create_all(connection, checkfirst=False)
    stamp(_config(connection), HEAD)


def _config(connection: Connection) -> Any:
    """Return alembic's settings, which have no types."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "seatrial:history/migrations")
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection) -> None:
    """Run the migrations inside the connection's transaction."""
    from alembic import command
    from alembic.util import CommandError

    try:
        command.upgrade(_config(connection), HEAD)
    except CommandError as error:
        place = shown(connection.engine.url)
        before = version(connection)
        if before and before < OLDEST:
            raise SeatrialError.of("history-too-old", place=place, revision=before) from error
        raise SeatrialError.of("history-too-new", place=place, problem=str(error)) from error


def lock(connection: Connection, key: int) -> None:
    """Take an advisory lock of PostgreSQL for the transaction; a writer of SQLite has a lock
    already.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def connect(url: str | None) -> Engine:
    """Connect to the store at `url` (else $SEATRIAL_HISTORY, else the default) and upgrade its
    schema.
    """
    by_hand = os.environ.get("SEATRIAL_HISTORY")
    parsed = parse_url(url or by_hand or default_url())
    if by_hand and not url:
        make_usable(parsed)
    with explained(parsed, "cannot be opened"):
        _set_empty_aside(parsed)
        _make_private(parsed)
        engine = _engine(parsed)
        try:
            migrate(engine)
        except BaseException:
            engine.dispose()
            raise
    return engine


def default_url() -> str:
    """Return the URL of SQLite under $XDG_STATE_HOME (~/.local/state when unset)."""
    return URL.create("sqlite", database=str(state_home() / "history.sqlite")).render_as_string(
        hide_password=False
    )


@contextmanager
def explained(url: URL, action: str) -> Iterator[None]:
    """Turn errors of the database into one line that names the store."""
    name = shown(url)
    try:
        yield
    except (NoSuchModuleError, ImportError) as error:
        raise MissingError.of(
            "history-driver-missing", place=name, action=action, problem=first_line(error, url)
        ) from error
    except (SQLAlchemyError, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        cause, next_step = (
            (error.orig, _next_step(error)) if isinstance(error, DBAPIError) else (error, "")
        )
        raise SeatrialError.of(
            "history-failed",
            place=name,
            action=action,
            problem=first_line(cause, url),
            next_step=next_step,
        ) from error


def make_usable(url: URL) -> None:
    """Create the file of SQLite that SEATRIAL_HISTORY names, with a warning.

    Raises InputError if that fails.
    """
    path = _file(url)
    is_new = path is not None and not os.path.exists(path)
    try:
        _set_empty_aside(url)
        _make_private(url)
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"SEATRIAL_HISTORY: {path}: {problem}; name a file that you may write"
        ) from error
    if is_new:
        log.warning(
            "SEATRIAL_HISTORY: %s was not there: a new history begins, without earlier runs", path
        )


def _set_empty_aside(url: URL) -> None:
    """Keep a file of zero bytes under another name, with a warning: seatrial leaves none, so it
    lost its runs.
    """
    path = _file(url)
    if path is None or not path.is_file() or path.stat().st_size:
        return
    kept = next(
        name
        for number in itertools.count(1)
        if not (name := Path(f"{path}.empty-{number}")).exists()
    )
    path.rename(kept)
    kept.chmod(0o600)
    log.warning(
        "%s was empty and is kept as %s: a new history begins, without earlier runs",
        path,
        kept.name,
    )


def _file(url: URL) -> Path | None:
    """Return the file of SQLite; None for other databases, and for SQLite in memory or by a `file:`
    URI.
    """
    database = str(url.database)
    is_none = url.get_backend_name() != "sqlite" or _in_memory(url) or database.startswith("file:")
    return None if is_none else Path(database)


def _make_private(url: URL) -> None:
    """Create a file of SQLite with mode 0600, which the files beside it inherit."""
    path = _file(url)
    if path is None:
        return
    if not path.parent.exists() or path.parent == state_home():
        closed_folder(path.parent)
    if not path.exists():
        _create(path)
    elif os.access(path, os.W_OK):  # one that is only read stays as it is
        os.close(private_opener(str(path), os.O_WRONLY))


def _create(path: Path) -> None:
    """Make a file of SQLite that is never empty for another process, unless one has made it
    meanwhile.
    """
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    os.close(private_opener(str(new), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    try:
        with closing(sqlite3.connect(new)) as connection:
            connection.execute("PRAGMA user_version = 1")
        try:
            os.link(new, path)
        except FileExistsError:
            pass
        except OSError:
            new.rename(path)
    finally:
        new.unlink(missing_ok=True)


def _engine(url: URL) -> Engine:
    """Create an engine without a pool: an idle connection would outlive its thread."""
    if url.get_backend_name() == "sqlite":
        arguments = {"check_same_thread": False, **_unless_given(url, "timeout", LOCK_TIMEOUT_S)}
        engine = create_engine(
            url, poolclass=StaticPool if _in_memory(url) else NullPool, connect_args=arguments
        )
        event.listen(engine, "connect", _take_over_transactions)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    # A database without an encoding of its own, as `initdb` makes it in the locale C, would answer
    # in bytes.
    arguments = {
        **_unless_given(url, "connect_timeout", 10),
        **_unless_given(url, "client_encoding", "utf8"),
    }
    engine = create_engine(url, poolclass=NullPool, connect_args=arguments)
    event.listen(engine, "begin", _limit_lock_wait)
    return engine


def _in_memory(url: URL) -> bool:
    return url.database in (None, "", ":memory:")


def _unless_given(url: URL, name: str, value: float | str) -> dict[str, Any]:
    return {} if name in url.query else {name: value}


def _take_over_transactions(connection: Any, _record: Any) -> None:
    """Turn off sqlite3's own transactions, which start late and never around DDL; see
    `_begin_sqlite`.
    """
    connection.isolation_level = None


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction; a writer takes the write lock first, since upgrading a read lock fails
    for two at once.
    """
    options = connection.get_execution_options()
    foreign_keys = options.get("foreign_keys", "ON")
    connection.exec_driver_sql(f"PRAGMA foreign_keys = {foreign_keys}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes") else "BEGIN")


def _limit_lock_wait(connection: Connection) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'")


def _next_step(error: DBAPIError) -> str:
    text = str(error.orig).lower()
    if "locked" in text or "lock timeout" in text:
        return "; another process holds it: try again, or give another store (SEATRIAL_HISTORY)"
    if "not a database" in text or "malformed" in text:
        return "; move the file away, or give another store (SEATRIAL_HISTORY)"
    return (
        "; check the path, the server and the permissions, or give another store (SEATRIAL_HISTORY)"
    )
