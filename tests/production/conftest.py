"""What production asks for: `seatrial serve` with real nodes, whose processes are killed. make test-production"""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from seatrial.platforms.local import PLATFORM
from tests.e2e.conftest import console, prefect_url  # noqa: F401  fixtures here too
from tests.integration.loopback import web_server
from tests.site import LONG, QUICK, Site, site


@pytest.fixture(scope="module")
def alerts() -> list[dict[str, Any]]:
    """What the site's webhook was told."""
    return []


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, alerts: list[dict[str, Any]]) -> Iterator[Site]:
    """A site with a cluster `trial` of two local nodes, which a nightly and an ad-hoc deployment check."""
    if lacking := PLATFORM.missing():
        pytest.skip("; ".join(lacking))

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            alerts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    folder = tmp_path_factory.mktemp("site")
    with (
        web_server(Webhook) as port,
        site(folder, {"SEATRIAL_ALERT_WEBHOOK": f"http://127.0.0.1:{port}/"}) as found,
    ):
        furnish(found)
        found.start("trial.yaml", "--suite", "brief.yaml", "--timezone", "UTC")
        yield found


def furnish(found: Site) -> None:
    found.write("trial", nodes=2, platform={"kind": "local"})
    found.write("brief", **QUICK)
    found.write("long", **LONG)


@pytest.fixture
def out(served: Site, request: pytest.FixtureRequest) -> Path:
    name: str = request.node.name
    return served.folder / name
