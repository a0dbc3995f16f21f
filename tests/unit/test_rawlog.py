"""Logs of what others print, which hold no secret at any moment."""

import logging
import os
import stat
from pathlib import Path

import pytest

from seatrial.system.rawlog import RawLog, write_log
from seatrial.text.redact import Secrets

SECRETS = Secrets(("s3cr3t-value",), ("LICENSE_FILE",))


def test_no_secret_is_in_the_file_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "x.log"
    log = RawLog(path, SECRETS)
    for piece in (
        "begin s3cr",
        "3t-value and LICENSE_FI",
        "LE=27000@host\nhf_ABCDEFGHIJKL",
        "MNOPQRSTUV\nlast s3cr3t-va",
    ):
        log.write(piece)
        assert "s3c" not in path.read_text()
        assert "27000" not in path.read_text()
    assert path.read_text() == "begin *** and LICENSE_FILE=***\n***\n"
    log.write("lue")
    log.close()
    assert path.read_text().endswith("last ***")


def test_what_is_ready_is_returned_as_it_is_written(tmp_path: Path) -> None:
    log = RawLog(tmp_path / "x.log", SECRETS)
    assert log.write("a s3cr3t-value\nrest") == "a ***\n"
    assert log.close() == "rest"
    assert log.close() == ""


def test_without_a_path_it_only_redacts() -> None:
    assert RawLog(None, SECRETS).write("a s3cr3t-value\n") == "a ***\n"


def test_a_log_goes_on_where_it_ended(tmp_path: Path) -> None:
    for text in ("one\n", "two\n"):
        with RawLog(tmp_path / "x.log", SECRETS, append=True) as log:
            log.write(text)
    assert (tmp_path / "x.log").read_text() == "one\ntwo\n"


def test_a_log_is_bounded(tmp_path: Path) -> None:
    with RawLog(tmp_path / "x.log", SECRETS, max_characters=100) as log:
        assert [len(log.write("y" * 39 + "\n")) for _ in range(5)] == [40] * 5
    text = (tmp_path / "x.log").read_text()
    assert text.startswith(("y" * 39 + "\n") * 2 + "y" * 20 + "\n[seatrial: the log ends here")
    assert len(text) < 200


@pytest.mark.usefixtures("no_umask")
def test_a_log_is_its_users_alone(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "x.log", b"\xff s3cr3t-value", SECRETS)
    assert (tmp_path / "logs" / "x.log").read_text() == "\ufffd ***"
    assert stat.S_IMODE((tmp_path / "logs" / "x.log").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700


def test_a_link_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "x.log").symlink_to(tmp_path / "victim")
    with caplog.at_level(logging.WARNING):
        write_log(tmp_path / "x.log", "text", SECRETS)
    assert (tmp_path / "victim").read_text() == "mine"
    assert "symbolic link" in caplog.text


def test_a_full_disk_ends_a_log_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = RawLog(tmp_path / "x.log", SECRETS)
    assert log._file is not None
    os.dup2(os.open("/dev/full", os.O_WRONLY), log._file.fileno())
    with caplog.at_level(logging.WARNING):
        assert log.write("one\n") == "one\n"
        assert log.write("two\n") == "two\n"
        log.close()
    assert caplog.messages == [f"{tmp_path / 'x.log'} ends early: No space left on device"]
