"""A command of this machine, followed like one on a node."""

import os
from pathlib import Path
from unittest.mock import Mock

import paramiko
import pytest
from paramiko.common import DEFAULT_WINDOW_SIZE

from seatrial.model.errors import FloodError
from seatrial.remote.command import LocalProcess, RemoteProcess


def started(script: str) -> LocalProcess:
    return LocalProcess(["sh", "-c", script], dict(os.environ), Path("/"))


def all_lines(process: LocalProcess) -> list[str]:
    lines: list[str] = []
    while (batch := process.read_lines(60)) is not None:
        lines += batch
    return lines


def test_input_output_and_status() -> None:
    process = started("cat; pwd >&2; exit 7")
    process.send(b"first\nhal")
    process.send(b"f")
    process.close_stdin()
    assert all_lines(process) == ["first", "half/"]
    assert (process.exit_status(), process.received_bytes) == (7, 12)
    process.close(1)


def test_nothing_arrives_in_time() -> None:
    process = started("read line")
    assert process.read(0.01) == b""
    process.close(5)  # closed input ends it
    assert process.exit_status() is not None


def test_what_does_not_leave_is_killed() -> None:
    process = started("trap '' TERM; exec 0</dev/null; echo up; while :; do sleep 0.1; done")
    assert process.read_lines(60) == ["up"]
    process.close(0.2)
    assert process.exit_status() == -9


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        LocalProcess(["/no/such/program"], {}, Path("/"))


def test_a_lost_machine_has_no_exit_status() -> None:
    process = LocalProcess(["sh", "-c", "exit 255"], dict(os.environ), Path("/"), lost_status=255)
    assert all_lines(process) == []
    assert process.exit_status() is None
    process.close(1)


# An SSH server that sends more than its window allows is cut off: paramiko itself would keep all of it.


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> paramiko.Channel:
    """Open, as far as it can be without a server."""
    channel = paramiko.Channel(1)
    monkeypatch.setattr(channel, "exec_command", Mock())
    channel.transport = Mock()
    channel.active = True
    return channel


def _feed(channel: paramiko.Channel, size: int) -> None:
    """As the transport does with what arrives."""
    message = paramiko.Message()
    message.add_string(bytes(size))
    message.rewind()
    vars(paramiko.Channel)["_feed"](channel, message)


def _process(channel: paramiko.Channel) -> RemoteProcess:
    return RemoteProcess(Mock(open_session=Mock(return_value=channel)), "true")


def test_a_full_window_is_read(channel: paramiko.Channel) -> None:
    _feed(channel, DEFAULT_WINDOW_SIZE)
    assert _process(channel).read(1) == bytes(64 * 1024)


def test_more_than_the_window_is_a_flood(channel: paramiko.Channel) -> None:
    for _ in range(3):
        _feed(channel, DEFAULT_WINDOW_SIZE)
    with pytest.raises(FloodError, match="sends more than the window allows"):
        _process(channel).read(1)
    assert channel.closed
