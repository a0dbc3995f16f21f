"""Access to `seatrial serve`: its login, host names and origins."""

import asyncio
import os
import stat
from collections.abc import Mapping

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from tests.site import TLS, Site, as_nobody

EVIL = "https://evil.example.com"


def ask(
    served: Site, method: str, path: str, login: bool = False, **headers: str
) -> httpx.Response:
    body = (
        {"name": "evil", "flow_id": "00000000-0000-0000-0000-000000000000"}
        if method == "POST"
        else None
    )
    auth = served.auth if login else None
    return httpx.request(
        method, served.url + path, json=body, headers=headers, auth=auth, timeout=60, verify=TLS
    )


def websocket(
    served: Site, path: str, token: str | None, headers: Mapping[str, str] = {}
) -> object:
    """The first answer of a websocket of Prefect's; the error, where it does not let one in."""

    async def answer() -> object:
        url = served.url.replace("http", "ws") + path
        async with connect(
            url,
            subprotocols=["prefect"],  # type: ignore[list-item]
            additional_headers=headers,
            open_timeout=60,
        ) as opened:
            await opened.send(f'{{"type": "auth", "token": "{token or ""}"}}')
            return await opened.recv()

    try:
        return asyncio.run(answer())
    except WebSocketException as error:
        return error


def test_the_login_is_shown_once_and_kept_for_its_owner(served: Site) -> None:
    assert served.auth
    file = served.folder / "prefect" / "seatrial-serve.auth"
    auth_string = file.read_text().strip()
    assert served.log.count(auth_string) == 1
    assert f"login    {auth_string} (shown this once; kept in {file})" in served.log
    modes = [
        stat.S_IMODE(path.stat().st_mode)
        for path in (file.parent, file, file.parent / "prefect.db")
    ]
    assert modes == [0o700, 0o600, 0o600]
    assert not [
        command
        for command in served.processes().values()
        if auth_string.partition(":")[2] in command
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/deployments/"),
        ("POST", "/api/block_documents/filter"),
        ("GET", "/api/admin/settings"),
        ("GET", "/api/openapi.json"),
        ("GET", "/seatrial/runs/some/report.html"),
    ],
)
def test_without_the_login_every_request_is_refused(served: Site, method: str, path: str) -> None:
    assert ask(served, method, path).status_code == 401
    assert ask(served, method, path, Authorization="Basic c2VhdHJpYWw6").status_code == 401


def test_pages_without_a_login_reveal_nothing(served: Site) -> None:
    assert [
        ask(served, "GET", path).status_code for path in ("/docs", "/redoc", "/openapi.json")
    ] == [404] * 3
    assert ask(served, "GET", "/api/health").json() is True
    assert ask(served, "GET", "/ui-settings").json()["auth"] == "BASIC"


@pytest.mark.parametrize("path", ["/api/events/out", "/api/events/in", "/api/logs/out"])
def test_websockets_require_the_login_and_refuse_a_foreign_origin(served: Site, path: str) -> None:
    token = (served.folder / "prefect" / "seatrial-serve.auth").read_text().strip()
    assert websocket(served, path, token) == '{"type":"auth_success"}'
    assert isinstance(websocket(served, path, "wrong"), WebSocketException)
    assert isinstance(websocket(served, path, None), WebSocketException)
    assert isinstance(websocket(served, path, token, {"Origin": EVIL}), WebSocketException)


def test_pages_of_other_origins_and_names_are_refused_even_with_the_login(served: Site) -> None:
    """A name that begins to point here, as DNS rebinding has it, makes a page one of the server's
    own origin.
    """

    def preflight(origin: str) -> httpx.Response:
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        return httpx.options(f"{served.url}/api/deployments/", headers=asked, verify=TLS)

    foreign = preflight(EVIL)
    assert "access-control-allow-origin" not in foreign.headers
    own = preflight(served.url)
    assert own.headers["access-control-allow-origin"] == served.url
    assert ask(served, "POST", "/api/flow_runs/filter", login=True, Origin=EVIL).status_code == 403
    assert (
        ask(served, "GET", "/api/admin/version", login=True, Host="evil.example.com").status_code
        == 400
    )
    assert (
        ask(served, "GET", "/seatrial/runs/x", login=True, Host="evil.example.com").status_code
        == 400
    )
    assert ask(served, "GET", "/", Host="evil.example.com").status_code == 400


def test_folders_of_runs_require_the_login_and_serve_sandboxed_pages(served: Site) -> None:
    (served.folder / "runs").mkdir(exist_ok=True)
    (served.folder / "runs" / "report.html").write_text("<p>a report</p>")
    response = ask(served, "GET", "/seatrial/runs/report.html", login=True)
    assert response.text == "<p>a report</p>"
    assert "sandbox" in response.headers["Content-Security-Policy"]
    assert "allow-same-origin" not in response.headers["Content-Security-Policy"]
    with httpx.Client(verify=TLS) as browser:  # which has used the UI
        browser.get(f"{served.url}/api/admin/version", auth=served.auth)
        assert browser.get(f"{served.url}/seatrial/runs/report.html").status_code == 200
        assert browser.post(f"{served.url}/api/flow_runs/filter", json={}).status_code == 401
    assert ask(served, "PUT", "/seatrial/runs/report.html", login=True).status_code == 405
    unknown = httpx.get(f"{served.url}/seatrial/runs/report.html", verify=TLS)
    assert unknown.headers["WWW-Authenticate"].startswith("Basic ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a moment")
def test_other_users_cannot_read_the_environment_with_the_login(served: Site) -> None:
    assert as_nobody("cat /proc/self/environ")
    for word in ("seatrial.flows.serving.webserver", "seatrial.flows.serving.runner"):
        (pid,) = served.pids(word)
        assert not as_nobody(f"cat /proc/{pid}/environ")
