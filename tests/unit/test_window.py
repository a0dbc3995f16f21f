"""An SSH server that sends more than its window allows is cut off: paramiko itself would keep all of it."""

from unittest.mock import Mock

import paramiko
import pytest
from paramiko.common import DEFAULT_WINDOW_SIZE

from seatrial.model.errors import FloodError
from seatrial.remote.command import RemoteProcess


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
