"""Which requests a server takes, by host name and origin."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from flows.serving.server import _SERVE
from flows.serving.webserver import guarded, own_pages_alone


def asked(app: ASGIApp, method: str = "GET", path: str = "/", **given: Any) -> int:
    """The status of the answer to one request."""

    async def ask() -> int:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server:4200") as client:
            return (await client.request(method, path, **given)).status_code

    return asyncio.run(ask())


@pytest.mark.parametrize("path", ["/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"])
def test_pages_about_the_api_are_not_there(path: str) -> None:
    app = Starlette(routes=[Route("/{path:path}", lambda _: PlainTextResponse("about"))])
    assert asked(own_pages_alone(app, ["server"], []), path=path) == 404


@pytest.mark.parametrize(("method", "status"), [("GET", 404), ("HEAD", 404), ("PUT", 405), ("DELETE", 405)])
def test_the_runs_folders_are_only_read(tmp_path: Path, method: str, status: int) -> None:
    app = guarded(Starlette(), "ann:password", "/seatrial/runs", str(tmp_path))
    assert asked(app, method=method, path="/seatrial/runs/x", auth=("ann", "password")) == status
    assert asked(app, method=method, path="/seatrial/runs/x") == 401


_ASKED = """
import asyncio, httpx, uvicorn

def ask(app, **_):
    async def statuses():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1") as client:
            for headers in ({}, {"Host": "evil.example.com"}, {"Origin": "https://evil.example.com"}):
                yield (await client.get("/api/health", headers=headers)).status_code

    async def all_of_them():
        print(*[status async for status in statuses()])

    asyncio.run(all_of_them())

uvicorn.run = ask
"""


def test_the_server_of_a_run_has_a_single_name_and_no_pages() -> None:
    done = subprocess.run([sys.executable, "-c", _ASKED + _SERVE, "0"], capture_output=True, text=True, check=False)
    assert done.stdout == "200 400 403\n", done.stderr
