"""A store on SQLite, and one on PostgreSQL."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.history import open_store
from seatrial.history.schema import metadata
from seatrial.history.store import Store
from tests.postgres import postgres_server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_server() as folder:
        yield f"postgresql://postgres@/postgres?host={folder}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where no store is yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/history.sqlite"
    pytest.importorskip("psycopg")
    address: str = request.getfixturevalue("postgres_url")
    _empty(address)
    return address


@pytest.fixture(scope="session")
def postgres_store(postgres_url: str) -> str:
    """A database of its own with today's schema."""
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE made")
    url = postgres_url.replace("/postgres?", "/made?")
    open_store(url).close()
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def made_url(request: pytest.FixtureRequest, tmp_path: Path, empty_history: Path) -> str:
    """A store without runs; making its schema for each test takes longer than most of them."""
    if request.param == "sqlite":
        return f"sqlite:///{shutil.copy(empty_history, tmp_path)}"
    psycopg = pytest.importorskip("psycopg")
    url: str = request.getfixturevalue("postgres_store")
    with psycopg.connect(url) as connection:
        connection.execute(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY")
    return url


@pytest.fixture
def store(made_url: str) -> Iterator[Store]:
    with open_store(made_url) as opened:
        yield opened


def _empty(url: str) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
