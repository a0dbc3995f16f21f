"""What `seatrial serve` listens on, and what its processes are given."""

import socket

import pytest
from prefect.settings import PREFECT_SERVER_API_AUTH_STRING, temporary_settings

from flows.artifacts import RUNS_URL
from flows.serve import _listening, _runner_environment
from seatrial.errors import InputError


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


@pytest.mark.parametrize("login", [None, "ann:password"])
def test_where_prefect_asks_for_a_login_the_runs_folders_are_not_served(login: str | None) -> None:
    """Be it set in Prefect's profile, as here, or in the environment."""
    with temporary_settings({PREFECT_SERVER_API_AUTH_STRING: login}):
        served = _runner_environment("http://127.0.0.1:4200", "http://checks.example.com:4200").get(RUNS_URL)
    assert served == (None if login else "http://checks.example.com:4200/seatrial/runs")
