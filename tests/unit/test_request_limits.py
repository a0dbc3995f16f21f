"""Limits of requests to a lasting server, on a real uvicorn."""

import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from seatrial.flows.serving import request_limits
from seatrial.flows.serving.request_limits import FREE_TRIES, MAX_BODY_BYTES, HeadersInTime, limited

LOGIN = httpx.BasicAuth("admin", "right")


async def answer(request: Request) -> PlainTextResponse:
    """The length of the body, to who has the login."""
    if request.headers.get("Authorization") != LOGIN._auth_header:
        return PlainTextResponse("log in", 401)
    return PlainTextResponse(str(len(await request.body())))


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    app = Starlette(routes=[Route("/", answer, methods=["GET", "POST"])])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            limited(app), fd=listener.fileno(), log_level="error", http=HeadersInTime
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()
        server.should_exit = True
        thread.join()


def url(address: tuple[str, int]) -> str:
    return f"http://{address[0]}:{address[1]}/"


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n"],
    ids=["nothing", "half of the headers", "half of the second headers"],
)
def test_connection_with_incomplete_headers_is_closed(
    address: tuple[str, int], begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "HEADER_TIMEOUT_S", 0.2)
    with socket.create_connection(address, timeout=30) as half:
        half.sendall(begun)
        while received := half.recv(4096):  # a timeout raises
            pass
        assert received == b"", "the server closed the connection"


def test_a_body_has_a_limit_with_and_without_its_length(address: tuple[str, int]) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 65536 + 1):
            yield b"x" * 65536

    with httpx.Client(auth=LOGIN, timeout=60) as client:
        whole = client.post(url(address), content=b"x" * MAX_BODY_BYTES)
        assert (whole.status_code, whole.text) == (200, str(MAX_BODY_BYTES))
        assert client.post(url(address), content=pieces()).status_code == 413
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000000\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_only_wrong_logins_are_delayed(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "DELAY_S", 0.3)
    wrong = httpx.BasicAuth("admin", "wrong")
    with httpx.Client(timeout=60) as client:
        for _ in range(FREE_TRIES):
            assert client.get(url(address), auth=wrong).status_code == 401
        began = time.monotonic()
        for _ in range(4):
            assert client.get(url(address), auth=wrong).status_code == 401
        assert time.monotonic() - began > 4 * 0.3
        assert client.get(url(address), auth=LOGIN).text == "0"


def test_more_guesses_at_once_than_may_wait_are_refused(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "DELAY_S", 0.5)
    monkeypatch.setattr(request_limits, "FREE_TRIES", 0)
    monkeypatch.setattr(request_limits, "MOST_WAITING", 3)
    statuses: list[int] = []

    def guess() -> None:
        statuses.append(httpx.get(url(address), auth=("admin", "wrong"), timeout=60).status_code)

    threads = [threading.Thread(target=guess) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) == {401, 429}
