"""Which store is opened, and what is said where it cannot be."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from seatrial.history import check_history, open_store
from seatrial.history.engine import first_line, parse_url, shown
from seatrial.model.errors import InputError, MissingError, SeatrialError
from tests.unit.history.stored import a_run


def test_flag_takes_precedence_over_environment_and_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("SEATRIAL_HISTORY", raising=False)
    open_store().close()
    assert (tmp_path / "state/seatrial/history.sqlite").exists()
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{tmp_path}/environment.sqlite")
    open_store().close()
    assert (tmp_path / "environment.sqlite").exists()
    open_store(f"sqlite:///{tmp_path}/deep/down/flag.sqlite").close()
    assert (tmp_path / "deep/down/flag.sqlite").exists()


@pytest.mark.parametrize(
    "nonsense",
    [
        "nonsense",
        "http://host/db",
        "mysql://ann:secret@host/db",
        "postgresql://ann:secret@host:port/db",
        "://",
        "sqlite+x://",
        "postgresql://ann:secret",
        "postgresql://ann:secret:80/db",
        "ann:secret@host/db",
        "postgresql://ann:pass@secret@host/db",
        "postgresql://ann:pass@secret/word@host/db",
        "postgresql://ann:pass@secret?word@host/db",
        "postgresql://ann/x:secret@host/db",
        "postgresql://ann:secret@host:99999/db",
        "postgresql://ann:secret@a..b/db",
        "postgresql://ann:secret@/db?host=here," + "x" * 64,
        "postgresql://ann:secret@host/db?connect_timeout=soon",
        "postgresql://ann:secret@host/db?conect_timeout=9",
        "postgresql://ann:secret@/db?host=a,b,c&port=1,2",
        "sqlite:////tmp/x?timeout=soon",
        "sqlite://ann:secret@host/x",
        "sqlite:////tmp",
    ],
)
def test_invalid_history_url_is_bad_input_without_its_password(nonsense: str) -> None:
    with pytest.raises(InputError, match=r"^SEATRIAL_HISTORY.*legal: sqlite:") as error:
        open_store(nonsense)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unreachable_server_is_named_without_its_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(SeatrialError, match="cannot be opened") as error:
        open_store("postgresql://ann:s3cret@127.0.0.1:1/db?connect_timeout=2&password=s3cret")
    assert "s3cret" not in str(error.value)
    assert "127.0.0.1:1/db" in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann@corp:a%40s3cret/pass@127.0.0.1:1/db?connect_timeout=2",
        "postgresql://ann@127.0.0.1:1/db?sslpassword=s3cret&application_name=a@b",
        "sqlite:////tmp/a@b/../history.sqlite",
        "postgresql://[::1]:5432/db",
    ],
)
def test_legal_urls_are_shown_without_passwords(url: str) -> None:
    assert "s3cret" not in shown(parse_url(url))


def test_database_driver_errors_are_shown_without_the_password() -> None:
    url = parse_url("postgresql://ann:ge%40heim%3Aword@host/db?sslpassword=schlüssel")
    message = first_line("failed to resolve host 'heim@host': ge@heim:word\nschlüssel", url)
    assert message.strip() == "failed to resolve host '***@host': ***"
    assert first_line("cannot read schlüssel", url) == "cannot read ***"
    assert first_line("", url) == "str"


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingError, match="extra `postgres`"):
        open_store("postgresql://host/db")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").write_text("dear diary" * 100)
    with pytest.raises(
        SeatrialError,
        match=r"history\.sqlite: cannot be opened: file is not a database; move the file",
    ):
        open_store(f"sqlite:///{tmp_path}/history.sqlite")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SeatrialError, match="cannot be opened"):
        open_store(f"sqlite:///{tmp_path}/file/history.sqlite")


def test_new_history_set_by_variable_is_announced_and_an_impossible_one_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{tmp_path}/histroy.sqlite")
    for _ in range(2):
        open_store().close()
    assert [record.getMessage() for record in caplog.records] == [
        (
            f"SEATRIAL_HISTORY: {tmp_path}/histroy.sqlite was not there: a new history "
            "begins, without earlier runs"
        )
    ]
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{tmp_path}/histroy.sqlite/history.sqlite")
    for use in (check_history, open_store):
        with pytest.raises(
            InputError,
            match=r"^SEATRIAL_HISTORY: .*: Not a directory; name a file that you may write",
        ):
            use()


def test_an_empty_file_is_set_aside_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "history.sqlite"
    warning = (
        "{} was empty and is kept as history.sqlite.empty-{}: a new history begins, without "
        "earlier runs"
    )
    for number in (1, 2):
        file.write_bytes(b"")
        with open_store(f"sqlite:///{file}") as store:
            assert store.runs() == []
        assert caplog.messages[-1] == warning.format(file, number)
    with open_store(f"sqlite:///{file}"):
        assert len(caplog.messages) == 2
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["history.sqlite", "history.sqlite.empty-1", "history.sqlite.empty-2"]


def test_a_locked_store_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    with (
        open_store(f"sqlite:///{file}?timeout=0.1") as store,
        closing(sqlite3.connect(file, isolation_level=None)) as other,
    ):
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SeatrialError, match="locked; another process holds it"):
            store.save(a_run(1), Path())


def test_a_read_only_store_can_be_read_but_not_written(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/history.sqlite") as store:
        store.save(a_run(1), Path())
    with open_store(f"sqlite:///file:{tmp_path}/history.sqlite?mode=ro&uri=true") as store:
        assert len(store.runs()) == 1
        with pytest.raises(
            SeatrialError, match="cannot be saved: attempt to write a readonly database"
        ):
            store.save(a_run(2), Path())


def test_a_store_in_memory_works() -> None:
    with open_store("sqlite://") as store:
        store.save(a_run(1), Path())
        assert len(store.runs()) == 1


def test_importing_the_package_is_light_and_opening_a_current_store_needs_no_alembic(
    empty_history: Path,
) -> None:
    program = f"""
import sys
import seatrial.history, seatrial.judge.assess
assert "sqlalchemy" not in sys.modules
seatrial.history.open_store("sqlite:///{empty_history}").close()
assert "alembic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_database_without_an_encoding_is_accepted(postgres_url: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            "CREATE DATABASE ascii ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' "
            "TEMPLATE template0"
        )
    with open_store(postgres_url.replace("/postgres?", "/ascii?")) as store:
        assert store.runs() == []
