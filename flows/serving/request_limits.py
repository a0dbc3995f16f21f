"""Limits of requests to a lasting Prefect server: time for headers, bytes of a body, wrong logins
of an address.
"""

import asyncio
import contextlib
import time
from collections import defaultdict, deque

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

# From the connection, or from the end of a request, until the next one has all its headers
HEADER_TIMEOUT_S = 10.0
MAX_BODY_BYTES = 16 * 1024**2  # Prefect's own requests stay far below
LINGER_S = 5.0  # for the rest of a body that was refused, as nginx's lingering_timeout
# Wrong logins of an address within WINDOW_S that are answered at once
FREE_TRIES = 10
WINDOW_S = 60.0
DELAY_S = 1.0  # between the answers to further wrong logins
MOST_WAITING = 20  # requests of an address; more are refused before their login is read
_MOST_ADDRESSES = 10_000


class HeadersInTime(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol, which closes a connection whose request does not begin in time."""

    _too_late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._begin_to_wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._waits_for_headers:
            self._begin_to_wait()
        else:
            self._end_to_wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_to_wait()
        super().connection_lost(exc)

    @property
    def _waits_for_headers(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _begin_to_wait(self) -> None:
        if self._too_late is None:
            self._too_late = asyncio.get_running_loop().call_later(HEADER_TIMEOUT_S, self._close)

    def _end_to_wait(self) -> None:
        if self._too_late:
            self._too_late.cancel()
            self._too_late = None

    def _close(self) -> None:
        self._too_late = None
        # The connection has not become a websocket
        if self.transport.get_protocol() is self and self._waits_for_headers:
            self.transport.close()


class BoundedBodies:
    """Refuses bodies that are longer than MAX_BODY_BYTES, whether their length is given or not."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        left = MAX_BODY_BYTES
        has_begun = False
        length = Headers(scope=scope).get("Content-Length", "0")
        if not length.isdecimal() or int(length[:20]) > left:
            await _refuse(receive, send)
            return

        async def receive_some() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            return message if left >= 0 else {"type": "http.disconnect"}

        async def send_if_short(message: Message) -> None:
            nonlocal has_begun
            if left >= 0 or has_begun:
                has_begun = True
                await send(message)

        try:
            await self._app(scope, receive_some, send_if_short)
        except Exception:
            if left >= 0:
                raise
        if left < 0 and not has_begun:
            await _refuse(receive, send)


async def _refuse(receive: Receive, send: Send) -> None:
    """Answer 413, and read on for a while before the connection is closed.

    A connection that is closed with bytes unread is reset, and a client that still sends loses the
    answer.
    """
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    text = f"a body may have {MAX_BODY_BYTES} bytes".encode()
    await send({"type": "http.response.body", "body": text, "more_body": True})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            left = MAX_BODY_BYTES
            while left > 0 and (message := await receive()).get("more_body"):
                left -= len(message["body"])
    await send({"type": "http.response.body", "body": b""})


class SlowGuesses:
    """Answers an address that gives wrong logins ever later: ten a minute at once, then one a
    second.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._wrong: defaultdict[str, deque[float]] = defaultdict(deque)
        self._next_at: dict[str, float] = {}
        self._waiting: defaultdict[str, int] = defaultdict(int)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or "Authorization" not in Headers(scope=scope):
            await self._app(scope, receive, send)
            return
        address = (scope.get("client") or ("", 0))[0]
        if self._waiting[address] >= MOST_WAITING:
            busy = PlainTextResponse(
                "too many wrong logins", 429, {"Retry-After": str(int(DELAY_S * MOST_WAITING))}
            )
            await busy(scope, receive, send)
            return

        async def send_later(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                await self._wait(address)
            await send(message)

        await self._app(scope, receive, send_later)

    async def _wait(self, address: str) -> None:
        """Wait until it is the turn of one more wrong login of the address."""
        now = time.monotonic()
        wrong = self._wrong[address]
        wrong.append(now)
        while wrong[0] < now - WINDOW_S:
            wrong.popleft()
        if len(wrong) <= FREE_TRIES:
            self._forget(now)
            return
        turn = max(now, self._next_at.get(address, now)) + DELAY_S
        self._next_at[address] = turn
        self._waiting[address] += 1
        try:
            await asyncio.sleep(turn - now)
        finally:
            self._waiting[address] -= 1

    def _forget(self, now: float) -> None:
        """Drop addresses whose last wrong login is older than the window, if there are many."""
        if len(self._wrong) <= _MOST_ADDRESSES:
            return
        for address in [each for each, wrong in self._wrong.items() if wrong[-1] < now - WINDOW_S]:
            for kept in (self._wrong, self._next_at, self._waiting):
                kept.pop(address, None)


def limited(app: ASGIApp) -> ASGIApp:
    """Return `app` with bounded bodies and slow answers to wrong logins."""
    return SlowGuesses(BoundedBodies(app))
