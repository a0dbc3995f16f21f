"""A store on SQLite, and one on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.history import open_store
from seatrial.history.store import Store
from tests.postgres import postgres_server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_server() as folder:
        yield f"postgresql://postgres@/postgres?host={folder}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/history.sqlite"
    pytest.importorskip("psycopg")
    address: str = request.getfixturevalue("postgres_url")
    _empty(address)
    return address


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


def _empty(url: str) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
