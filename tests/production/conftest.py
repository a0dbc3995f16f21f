"""What production asks for: `seatrial serve`, or a work pool, with real nodes and processes that
are killed.

make test-production
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from seatrial.flows.serving.automations import zombies
from seatrial.platforms.local.platform import PLATFORM
from tests.e2e.conftest import console, prefect_server  # noqa: F401  fixtures here too
from tests.integration.loopback import web_server
from tests.site import LONG, QUICK, Site, site


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            # Several runs each, and the machine may be busy
            item.add_marker(pytest.mark.timeout(3600))


@pytest.fixture(scope="module")
def alerts() -> list[dict[str, Any]]:
    """What the site's webhook was told."""
    return []


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, alerts: list[dict[str, Any]]
) -> Iterator[Site]:
    """A site with a cluster `trial` of two local nodes, which a nightly and an ad-hoc deployment
    check.
    """
    with alerted_site(tmp_path_factory.mktemp("site"), alerts) as new_site:
        new_site.start("trial.yaml", "--suite", "brief.yaml", "--timezone", "UTC")
        yield new_site


@contextmanager
def alerted_site(folder: Path, alerts: list[dict[str, Any]]) -> Iterator[Site]:
    """A furnished site that serves nothing yet, whose webhook adds to `alerts`."""
    if lacking := PLATFORM.missing():
        pytest.skip("; ".join(map(str, lacking)))

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            alerts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with (
        web_server(Webhook) as port,
        site(folder, {"SEATRIAL_ALERT_WEBHOOK": f"http://127.0.0.1:{port}/"}) as new_site,
    ):
        furnish(new_site)
        yield new_site


def furnish(new_site: Site) -> None:
    new_site.write("trial", nodes=2, platform={"kind": "local"})
    new_site.write("brief", **QUICK)
    new_site.write("long", **LONG)


@pytest.fixture
def out(served: Site, request: pytest.FixtureRequest) -> Path:
    name: str = request.node.name
    return served.folder / "runs" / name


def start_long(site: Site, out: Path, **parameters: str) -> str:
    """A run that is in the middle of its sweep."""
    flow_run = site.run("ad-hoc", suite=str(site.folder / "long.yaml"), out=str(out), **parameters)
    site.until_sweeping(out)
    assert site.left()
    return flow_run


def stop_watching(site: Site) -> None:
    """Until a runner or worker starts, the server does not say of a run without a heartbeat that it
    died, after 90 s.

    So it is the run itself that says so, however long that takes.
    """
    (watch,) = (
        automation
        for automation in site.api("POST", "/automations/filter")
        if automation["name"] == zombies().name
    )
    site.api("DELETE", f"/automations/{watch['id']}")


def process_of(site: Site, flow_run: str) -> int:
    """The run's process: a `reap` or an alarm may be at work beside it."""
    mark = f"PREFECT__FLOW_RUN_ID={flow_run}".encode()
    (pid,) = (
        one
        for one in site.pids("prefect.engine")
        if mark in Path(f"/proc/{one}/environ").read_bytes()
    )
    return pid


def cancel(site: Site, flow_run: str) -> None:
    """As Prefect's UI does."""
    site.api(
        "POST",
        f"/flow_runs/{flow_run}/set_state",
        state={"type": "CANCELLING", "name": "Cancelling"},
    )


def alarmed(site: Site) -> dict[str, str]:
    """The flow runs that the alarm was raised for, each with that alarm's own flow run."""
    alarms = site.api("POST", "/flow_runs/filter", flows={"name": {"any_": ["seatrial-alarm"]}})
    return {alarm["parameters"]["flow_run"]: alarm["id"] for alarm in alarms}
