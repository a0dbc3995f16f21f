"""deployments/server/compose.yaml, started: server, database and worker, and runs that cannot
measure anything here.

podman-compose and podman in the place of Docker. What waits for a health check there is started
again here until what it needs is up, and the checks are run by hand: podman has systemd do it,
which a container for tests has not.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.images import lane, server
from tests.images.lane import ROOT
from tests.site import PATIENCE_S, SITES_DEPLOYMENTS, TLS, free_port

PROJECT = f"{lane.PREFIX}site"
AUTH = ("skipper", "word-of-the-api")
COMPOSE = ROOT / "deployments" / "server" / "compose.yaml"


@dataclass(frozen=True, slots=True)
class Compose:
    """The file with a site's .env."""

    folder: Path
    port: int

    def run(self, *arguments: str) -> None:
        own = ["--podman-args", " ".join([*lane.STORE, "--runtime", "runc"])]
        limits = ["--podman-run-args", " ".join(lane.LIMITS)]
        files = [
            "--env-file",
            str(self.folder / ".env"),
            "--file",
            str(COMPOSE),
            "--project-name",
            PROJECT,
        ]
        program = str(Path(sys.executable).with_name("podman-compose"))
        done = subprocess.run(
            [program, *own, *limits, *files, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def api(self, method: str, path: str, **body: Any) -> Any:
        url = f"http://127.0.0.1:{self.port}/api{path}"
        answer = httpx.request(method, url, json=body or None, auth=AUTH, timeout=60, verify=TLS)
        answer.raise_for_status()
        return answer.json()

    def ended(self, deployment: str) -> str:
        """The state in which a run of the deployment ends, with its message."""
        deployment_id = self.api("GET", f"/deployments/name/{deployment}")["id"]
        flow_run = self.api("POST", f"/deployments/{deployment_id}/create_flow_run", parameters={})[
            "id"
        ]
        until(
            lambda: (
                self.api("GET", f"/flow_runs/{flow_run}")["state"]["type"]
                in ("CRASHED", "COMPLETED", "FAILED")
            )
        )
        state = self.api("GET", f"/flow_runs/{flow_run}")["state"]
        return f"{state['name']}: {state['message']}"


@pytest.fixture(scope="module")
def compose(_lane: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    made = Compose(tmp_path_factory.mktemp("compose"), free_port())
    _fill_in(made, server.build_server())
    lane.podman("tag", server.build_postgres(), server.POSTGRES)
    try:
        made.run("up", "--detach", "--no-build")
        yield made
    finally:
        made.run("down", "--volumes")


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> None:
    """In the place of the lane's own: what is up here is taken down after the last test."""


def _fill_in(site: Compose, image: str) -> None:
    """A cluster that is nowhere, and .env as a person fills it in."""
    trial = {
        "name": "trial",
        "nodes": 2,
        "image": "localhost/none:1",
        "platform": {"kind": "kubernetes"},
    }
    (site.folder / "trial.yaml").write_text(yaml.safe_dump(trial))
    for folder in (site.folder, *list(site.folder.parents)[:2]):
        folder.chmod(0o755)  # the worker is another user
    filled = {
        "POSTGRES_PASSWORD": "wordofthedatabase",
        "HISTORY_PASSWORD": "wordofthehistory",
        "PREFECT_AUTH": ":".join(AUTH),
        "PREFECT_URL": f"http://127.0.0.1:{site.port}",
        "PREFECT_LISTEN": f"127.0.0.1:{site.port}",
        "SEATRIAL_IMAGE": image,
        "SEATRIAL_CLUSTERS": str(site.folder),
        "SEATRIAL_CLUSTER": "trial.yaml",
    }
    lines = (COMPOSE.parent / "example.env").read_text().splitlines()
    kept = [line for line in lines if line.partition("=")[0] not in filled]
    text = "\n".join([*kept, *(f"{name}={value}" for name, value in filled.items())])
    (site.folder / ".env").write_text(text + "\n")


def until(true: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, lane.Container(f"{PROJECT}_worker_1", "").logs()[-4000:]
        time.sleep(1)


def _is_healthy(service: str) -> bool:
    command = [
        "podman",
        *lane.STORE,
        "--runtime",
        "runc",
        "healthcheck",
        "run",
        f"{PROJECT}_{service}_1",
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _has_a_worker(site: Compose) -> bool:
    try:
        return bool(site.api("POST", "/work_pools/seatrial/workers/filter", limit=10))
    except httpx.HTTPError:
        return False


def test_all_compose_services_start_and_become_healthy(compose: Compose) -> None:
    until(lambda: _is_healthy("postgres") and _is_healthy("server"))
    until(lambda: _has_a_worker(compose))
    names = {each["name"] for each in compose.api("POST", "/deployments/filter", limit=50)}
    assert names == SITES_DEPLOYMENTS
    url = f"http://127.0.0.1:{compose.port}/"
    page = httpx.get(
        url, headers={"Accept": "text/html"}, follow_redirects=True, timeout=60, verify=TLS
    )
    assert "<title>Prefect" in page.text


def test_example_cluster_file_renders_in_the_worker_image(compose: Compose) -> None:
    """Including the build of the image, whose context is in none of the mounted folders."""
    worker = lane.Container(f"{PROJECT}_worker_1", "")
    rendered = worker.exec("seatrial", "render", "/opt/deployments/clusters/a4-gke.yaml")
    assert "# --- image-build" in rendered
    assert (
        worker.exec("python", "-c", "import gcsfs, s3fs, adlfs; print('uploads')").strip()
        == "uploads"
    )


def test_runs_crash_with_no_cluster_to_talk_to_and_need_no_writable_root(compose: Compose) -> None:
    """The read-only container lets a run write its log, its record and its history."""
    assert compose.ended("seatrial-check/ad-hoc").startswith(
        "Crashed: not_run: launch: no cluster to talk to: "
    )
    reaped = compose.ended("seatrial-reap/reap")
    assert reaped.startswith("Crashed: leftovers of 0 runs removed; no cluster to talk to: ")
    log = lane.Container(f"{PROJECT}_worker_1", "").logs()
    assert "Read-only file system" not in log
    assert "history" not in log
