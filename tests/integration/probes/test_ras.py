"""What a rank asks NCCL's RAS when a step does not end; the server speaks as
`src/ras/client_support.cc` does.
"""

import socket
import threading
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.integration.probes.conftest import Load

STATUS = "\n".join(["DEAD", "  Process 60004 on node 10.0.0.13 managing GPU 0", ""])


@pytest.fixture
def hang(load: Load) -> ModuleType:
    return load("hang")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def served(listener: socket.socket, answer: bytes, heard: list[bytes]) -> threading.Thread:
    """Answer one client, then close."""

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            heard.append(client.recv(100))
            client.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def address(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_the_status_is_read_to_its_end(hang: ModuleType, listener: socket.socket) -> None:
    heard: list[bytes] = []
    thread = served(listener, STATUS.encode(), heard)
    assert hang.ras_status(address(listener)) == STATUS.splitlines()
    thread.join()
    assert heard == [b"verbose status\n"]


def test_a_long_status_is_cut(hang: ModuleType, listener: socket.socket) -> None:
    thread = served(listener, b"x" * (hang._MOST_RAS_BYTES + 5000), [])
    assert len(hang.ras_status(address(listener))[0]) == hang._MOST_RAS_BYTES
    thread.join()


def test_a_silent_server_does_not_hold_the_rank(
    hang: ModuleType, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hang, "_RAS_S", 0.2)
    assert hang.ras_status(address(listener)) == []


@pytest.mark.parametrize("wrong", ["localhost:1", "nowhere.invalid:28028", "words", ":"])
def test_without_a_listener_the_status_is_empty(hang: ModuleType, wrong: str) -> None:
    assert hang.ras_status(wrong) == []
