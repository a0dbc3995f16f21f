"""What `seatrial serve` listens on, and what its processes are given."""

import os
import re
import socket
import stat
from pathlib import Path

import pytest
from prefect.settings import PREFECT_SERVER_API_AUTH_STRING, temporary_settings

from flows.serving.serve import _listening
from flows.serving.server import configured_auth_string, kept_auth_string
from seatrial.model.errors import InputError


@pytest.mark.parametrize(
    ("host", "taken"), [("192.0.2.1", False), ("::1", False), ("é..b", False), ("127.0.0.1", True)]
)
def test_what_cannot_be_listened_on_is_named(host: str, taken: bool) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        option, given = ("--port", port) if taken else ("--host", host)
        with pytest.raises(InputError, match=rf"^{option} {given}: .+; give another {option}$"), _listening(host, port):
            pass


def test_a_login_is_made_once_and_kept_for_its_owner_alone(tmp_path: Path) -> None:
    made, is_new = kept_auth_string(tmp_path)
    assert is_new
    assert re.fullmatch(r"seatrial:[\w-]{32}", made)
    assert stat.S_IMODE((tmp_path / "seatrial-serve.auth").stat().st_mode) == 0o600
    assert kept_auth_string(tmp_path) == (made, False)
    (tmp_path / "other").mkdir()
    assert kept_auth_string(tmp_path / "other")[0] != made


@pytest.mark.parametrize("planted", ["link", "dangling link", "readable", "empty", "no password", "folder", "pipe"])
def test_a_login_that_somebody_else_may_have_put_there_is_refused(tmp_path: Path, planted: str) -> None:
    file, target = tmp_path / "seatrial-serve.auth", tmp_path / "target"
    match planted:
        case "link":
            target.write_text("ann:password\n")
            file.symlink_to(target)
        case "dangling link":
            file.symlink_to(target)
        case "folder":
            file.mkdir(mode=0o700)
        case "pipe":
            os.mkfifo(file, 0o600)
        case _:
            file.write_text({"readable": "ann:password", "empty": "", "no password": "ann"}[planted])
            file.chmod(0o644 if planted == "readable" else 0o600)
    with pytest.raises(InputError, match=rf"^{re.escape(str(file))}: .+; remove it"):
        kept_auth_string(tmp_path)
    assert planted == "link" or not target.exists()


@pytest.mark.parametrize("login", ["", "password", ":password", "ann:", "ann:pass word", "ann:pass\nword"])
def test_a_login_that_is_set_and_is_none_is_refused(login: str) -> None:
    """Prefect's own server takes it, also where it lets nobody or everybody in."""
    with (
        temporary_settings({PREFECT_SERVER_API_AUTH_STRING: login}),
        pytest.raises(InputError, match=r"^PREFECT_SERVER_API_AUTH_STRING: must be user:password"),
    ):
        configured_auth_string()


def test_a_login_of_the_environment_or_of_prefects_profile_counts() -> None:
    assert configured_auth_string() is None
    with temporary_settings({PREFECT_SERVER_API_AUTH_STRING: "ann:password"}):
        assert configured_auth_string() == "ann:password"
