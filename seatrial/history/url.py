"""The URL of the store: what is legal, and what of it may show."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from seatrial.model.errors import InputError
from seatrial.text.redact import Secrets

_DRIVERS = ("sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg")
_LEGAL = "legal: sqlite:////path/to/history.sqlite or postgresql://user:password@host/database"
_LOGIN = re.compile(r"^[^:/]*(?::[^@]*)?@")  # as SQLAlchemy reads it
_OPTION = re.compile(r"[?&]\w+=[^&]*")
_SECRET = re.compile(r"([?&][^=&]*(?:password|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)
_SHORTEST = 3  # characters: a shorter piece of a password would be found in every text
_PORTS = range(1, 65536)


def parse_url(text: str) -> URL:
    """`text` as a URL of a database that the store runs on.

    Raises InputError. It does not quote what cannot be read, as nobody can tell then where a password in it ends.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise InputError(f"SEATRIAL_HISTORY is not a database URL; {_LEGAL}") from None
    if url.drivername not in _DRIVERS:
        raise InputError(f"SEATRIAL_HISTORY: unknown database {url.drivername!r}; {_LEGAL}")
    # SQLAlchemy 2.0 and 2.1 disagree on PostgreSQL's default driver.
    url = url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url
    if problem := _bad_file(url) if url.get_backend_name() == "sqlite" else _stray_at(text) or _bad_server(url):
        raise InputError(f"SEATRIAL_HISTORY: {problem}; {_LEGAL}")
    return url


def shown(url: URL) -> str:
    """The URL without its passwords."""
    return _SECRET.sub(r"\1***", url.render_as_string(hide_password=True))


def first_line(error: object, url: URL) -> str:
    """What an error says on its first line, without the passwords of `url` and what they are made of."""
    lines = str(error).strip().splitlines()
    return "".join(_secrets(url).out_of(lines[:1])) or type(error).__name__


def _secrets(url: URL) -> Secrets:
    """The longest first. Of a password that is written amiss, a piece may pass for a host or a database."""
    queried = url.normalized_query.items()
    query = (value for name, values in queried if _SECRET.match(f"?{name}=") for value in values)
    parts = {part for secret in (url.password or "", *query) for part in (secret, *re.split(r"[@:/?#&=%]", secret))}
    return Secrets(tuple(sorted((part for part in parts if len(part) >= _SHORTEST), key=len, reverse=True)))


def _stray_at(text: str) -> str | None:
    """Whatever stands between an @ of the password and the last one would be taken for the host."""
    rest = _LOGIN.sub("", text.partition("://")[2])
    return "an @ in a user or password must be written as %40" if "@" in _OPTION.sub("", rest) else None


def _bad_file(url: URL) -> str | None:
    problem = _bad_parameters(url)
    return problem or (f"{url.database} is a folder" if url.database and os.path.isdir(url.database) else None)


def _bad_server(url: URL) -> str | None:
    if problem := _bad_parameters(url):
        return problem
    given = _parameters(url)
    if any(not _encodes(host) for host in str(given.get("host", "")).split(",")):
        return "its host is not the name of one"
    if any(port and not (port.isdecimal() and int(port) in _PORTS) for port in str(given.get("port", "")).split(",")):
        return "its port must be 1 to 65535"
    return _bad_options(url, given)


def _bad_parameters(url: URL) -> str | None:
    try:
        _parameters(url)
    except (ArgumentError, ValueError, TypeError) as error:
        return first_line(error, url)
    return None


def _parameters(url: URL) -> Mapping[str, Any]:
    """What the driver is given."""
    return url.get_dialect()().create_connect_args(url)[1]


def _encodes(host: str) -> bool:
    """Whether it can be asked for; one that starts with / is the folder of a socket."""
    try:
        return host.startswith("/") or bool(host.encode("idna")) or not host
    except UnicodeError:
        return False


def _bad_options(url: URL, given: Mapping[str, Any]) -> str | None:
    try:
        float(given.get("connect_timeout", 0))
    except (ValueError, TypeError):
        return "connect_timeout must be a number of seconds"
    with suppress(ImportError):  # whoever opens the store hears what to install
        from psycopg import Error
        from psycopg.conninfo import make_conninfo

        try:
            make_conninfo(**given)
        except Error as error:
            return first_line(error, url)
    return None
