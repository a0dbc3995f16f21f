"""A lasting Prefect server for its own host names and pages alone: API, UI, scheduler.

python -m seatrial.flows.serving.webserver      in a container (deployments/server), on port 4200 of
every address python -m seatrial.flows.serving.webserver FD LIFE RUNS HOSTS      as `seatrial serve`
starts it

In a container SEATRIAL_SERVER_HOSTS lists further host names, with commas, besides localhost and
the host of PREFECT_SERVER_UI_API_URL. The pages of PREFECT_SERVER_CORS_ALLOWED_ORIGINS may talk to
it. The login is PREFECT_SERVER_API_AUTH_STRING; without one it does not start.

FD is a socket that listens already, RUNS the folder that browsers may read, HOSTS the server's
names with commas. LIFE is the end of a pipe: once it is closed on the other side, `seatrial serve`
and its runner have both ended, and this server ends too. Not sooner: runs that end with them report
here.

Prefect asks for the login on its API and on websockets. It leaves to others which names it is
reached by (a page whose name begins to point here would be of the server's own origin), which pages
may send what needs no answer, and files.
"""

import hmac
import logging
import os
import signal
import sys
import threading
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from seatrial.flows.serving.server import ORIGINS, SERVER_AUTH, collect_apart

_COOKIE = "seatrial-runs"
_LOOPBACK = ("127.0.0.1", "localhost")
# What is in a report came from nodes: its scripts run where they see neither the UI nor the login
# that it keeps.
_OF_FILES = {
    "Content-Security-Policy": "sandbox allow-scripts allow-popups allow-downloads",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-cache",
}
FILES = "/seatrial/runs"  # Prefect's own UI has pages under /runs


def own_hosts(host: str, public_host: str) -> list[str]:
    """Return the host names of a server on `host`, with the host of the address `public_host`."""
    return sorted({*_LOOPBACK, host, urlsplit(public_host).hostname or host} - {"0.0.0.0"})


def own_origins(host: str, port: int, public_url: str) -> list[str]:
    """Return the origins of the server's own pages."""
    parts = urlsplit(public_url)
    return sorted(
        {
            f"{parts.scheme}://{parts.netloc}",
            *(f"http://{name}:{port}" for name in (*_LOOPBACK, host)),
        }
    )


class Credentials:
    """The login as a header of HTTP or, for the runs' folders, as a cookie made of it."""

    def __init__(self, auth_string: str) -> None:
        self._basic = b"Basic " + b64encode(auth_string.encode())
        self.cookie = hmac.new(auth_string.encode(), b"the runs' folders", sha256).hexdigest()

    def is_given(self, headers: Headers) -> bool:
        return hmac.compare_digest(headers.get("Authorization", "").encode(), self._basic)

    def is_kept(self, request: HTTPConnection) -> bool:
        return hmac.compare_digest(request.cookies.get(_COOKIE, "").encode(), self.cookie.encode())


@dataclass(frozen=True, slots=True)
class _OwnPages:
    """Refuses requests from pages of other origins, among them forms and websockets, which browsers
    let through.

    FastAPI's pages about the API, for which Prefect asks for no login, are not there.
    """

    app: ASGIApp
    origins: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = (
            Headers(scope=scope).get("Origin") if scope["type"] in ("http", "websocket") else None
        )
        if scope["type"] == "http" and scope["path"].startswith(
            ("/docs", "/redoc", "/openapi.json")
        ):
            await PlainTextResponse("not found", 404)(scope, receive, send)
        elif origin is None or origin in self.origins:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose(code=1008, reason="foreign origin")(scope, receive, send)
        else:
            await PlainTextResponse("foreign origin", 403)(scope, receive, send)


@dataclass(frozen=True, slots=True)
class _Remembered:
    """Gives a browser that has logged in to the API a cookie for the runs' folders."""

    app: ASGIApp
    login: Credentials
    path: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                cookie = (
                    f"{_COOKIE}={self.login.cookie}; Path={self.path}; HttpOnly; SameSite=Strict"
                )
                MutableHeaders(scope=message).append("Set-Cookie", cookie)
            await send(message)

        has_login = scope["type"] == "http" and self.login.is_given(Headers(scope=scope))
        await self.app(scope, receive, send_with_cookie if has_login else send)


@dataclass(frozen=True, slots=True)
class _AskForLogin:
    """Serves files only with the login."""

    app: ASGIApp
    login: Credentials

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = HTTPConnection(scope)

        async def send_shut_in(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_OF_FILES)
            await send(message)

        if not (self.login.is_given(request.headers) or self.login.is_kept(request)):
            ask = {"WWW-Authenticate": 'Basic realm="seatrial", charset="UTF-8"'}
            await PlainTextResponse("log in", 401, ask)(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            # Else Prefect calls it a failure, 500
            await PlainTextResponse("method not allowed", 405, {"Allow": "GET, HEAD"})(
                scope, receive, send
            )
        else:
            await self.app(scope, receive, send_shut_in)


def guarded(app: Starlette, auth_string: str, files: str, runs: str) -> ASGIApp:
    """Return `app` with the folder `runs` at `files`, behind the app's own login."""
    login = Credentials(auth_string)
    folder = StaticFiles(directory=runs, check_dir=False)
    mount = Mount(files, folder, name="runs", middleware=[Middleware(_AskForLogin, login=login)])
    app.router.routes.insert(0, mount)  # the UI takes every path that is left
    return _Remembered(app, login, files)


def own_pages_alone(app: ASGIApp, hosts: Sequence[str], origins: Sequence[str]) -> ASGIApp:
    """Return `app` for requests to those hosts, from pages of those origins or from no page.

    It wraps the app from outside: Prefect's automations call the app within this process, by a host
    name that is not ours.
    """
    return TrustedHostMiddleware(
        _OwnPages(app, origins), allowed_hosts=list(hosts), www_redirect=False
    )


def own_names(environment: Mapping[str, str]) -> list[str]:
    """List the host names that requests to a container may be for."""
    listed = [name.strip() for name in environment.get("SEATRIAL_SERVER_HOSTS", "").split(",")]
    public_host = urlsplit(environment.get("PREFECT_SERVER_UI_API_URL", "")).hostname or ""
    return sorted({*_LOOPBACK, public_host, *listed} - {"", "*"})


def main(fd: str = "", life: str = "", runs: str = "", hosts: str = "") -> None:
    if not os.environ.get(SERVER_AUTH):
        sys.exit(f"seatrial: {SERVER_AUTH}: is not set; give USER:PASSWORD")
    os.umask(0o077)  # its database holds secrets
    if life:
        threading.Thread(target=_end_with, args=(int(life),), name="life", daemon=True).start()
    import uvicorn
    from prefect.server.api.server import create_app

    from seatrial.flows.serving.request_limits import HeadersInTime, limited

    app: Any = create_app()
    # Without the line for a heartbeat of a run that has ended
    logging.getLogger("prefect.server.events.actions").addFilter(
        lambda record: "already in terminal state" not in record.getMessage()
    )
    origins = [origin for origin in os.environ.get(ORIGINS, "").split(",") if origin]
    if runs:
        app = guarded(app, os.environ[SERVER_AUTH], FILES, runs)
    where: dict[str, Any] = {"fd": int(fd)} if fd else {"host": "0.0.0.0", "port": 4200}
    served = own_pages_alone(
        limited(app), hosts.split(",") if hosts else own_names(os.environ), origins
    )
    collect_apart()
    uvicorn.run(
        served,
        **where,
        log_level="warning",
        lifespan="on",
        timeout_graceful_shutdown=3,
        http=HeadersInTime,
    )


def _end_with(life: int) -> None:
    os.read(life, 1)  # nothing is ever written
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(*sys.argv[1:])
