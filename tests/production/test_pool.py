"""The work pool of deployments/prefect.yaml, as deployments/server/start-worker makes it: its runs,
and what dies.
"""

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.closing_lines import without_extent
from tests.postgres import postgres_server
from tests.production.conftest import alarmed, alerted_site, cancel, process_of
from tests.site import Site, run_id_in

START = Path(__file__).parents[2] / "deployments" / "server" / "start-worker"
WRAPPER, WORKER = "seatrial.flows.worker", "prefect worker start"


@pytest.fixture(scope="module")
def pooled(
    tmp_path_factory: pytest.TempPathFactory, alerts: list[dict[str, Any]]
) -> Iterator[Site]:
    """A Prefect server on PostgreSQL, and one worker; runs/ is in the folder, and clusters trial
    and other are free.
    """
    with (
        postgres_server() as socket,
        alerted_site(tmp_path_factory.mktemp("site"), alerts) as new_site,
    ):
        new_site.write("other", nodes=2, platform={"kind": "local"})
        (new_site.folder / "tmp").mkdir()
        new_site.environment |= {
            "PATH": f"{Path(sys.executable).parent}:{new_site.environment['PATH']}",
            "TMPDIR": str(new_site.folder / "tmp"),  # a worker that is killed leaves some there
            "PREFECT_API_URL": f"{new_site.url}/api",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://postgres@/postgres?host={socket}",
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
            "PREFECT_WORKER_QUERY_SECONDS": "2",  # not 10, so that tests wait less
            "SEATRIAL_POOL": "seatrial",
            "SEATRIAL_HOME": str(new_site.folder),
            "SEATRIAL_CLUSTER": str(new_site.folder / "trial.yaml"),
            "SEATRIAL_CRON": "0 2 * * *",
            "SEATRIAL_TIMEZONE": "Asia/Tokyo",
        }
        new_site.spawn(
            "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(new_site.port)
        )
        new_site.until(lambda: bool(new_site.api("GET", "/health")))
        start_worker(new_site)
        yield new_site


def start_worker(pooled: Site) -> None:
    """Come back when it works for the pool."""
    before = len(pooled.log)
    pooled.spawn("sh", str(START), "seatrial", "process")
    pooled.until(lambda: " started!" in pooled.log[before:])


@pytest.fixture(autouse=True)
def _nothing_left(pooled: Site) -> Iterator[None]:
    """After each of them no run has a process or a node."""
    yield
    pooled.until(lambda: not pooled.pids("prefect.engine"))
    pooled.until(lambda: not pooled.left())


@pytest.fixture(scope="module")
def first(pooled: Site) -> dict[str, Any]:
    """A flow run that somebody started by the form, and that went well."""
    flow_run = pooled.run("ad-hoc", suite=str(pooled.folder / "brief.yaml"))
    assert pooled.ended(flow_run)["type"] == "COMPLETED", pooled.log
    return pooled.flow_run(flow_run)


@dataclass(frozen=True, slots=True)
class Long:
    """A run in the middle of its sweep: its flow run, and its folder."""

    flow_run: str
    out: Path


def start_longs(pooled: Site, name: str, *clusters: str) -> list[Long]:
    """A run of each of the clusters, all with nodes up and sweeping."""
    longs = []
    for cluster in clusters:
        file, out = pooled.folder / f"{cluster}.yaml", pooled.folder / "runs" / f"{name}-{cluster}"
        parameters = {
            "cluster": str(file),
            "suite": str(pooled.folder / "long.yaml"),
            "out": str(out),
        }
        longs.append(Long(pooled.run("ad-hoc", **parameters), out))
    for long in longs:
        pooled.until_sweeping(long.out)
        assert any(run_id_in(long.out) in left for left in pooled.left())
    return longs


def test_run_started_by_its_form_passes_and_writes_its_files(
    pooled: Site, first: dict[str, Any]
) -> None:
    assert without_extent(first["state"]["message"]) == "pass: connectivity, collectives: all pass"
    assert first["work_pool_name"] == "seatrial"
    folder = pooled.folder / "runs" / first["labels"]["seatrial.run"]
    assert pooled.document(folder)["verdict"] == "pass"
    assert {"measurements.csv", "report.html", "logs"} <= {path.name for path in folder.iterdir()}
    artifacts = pooled.api(
        "POST", "/artifacts/filter", artifacts={"flow_run_id": {"any_": [first["id"]]}}
    )
    keys = {artifact["key"] for artifact in artifacts}
    assert {"judgements-trial", "summary-trial"} <= keys, (folder / "logs" / "run.log").read_text()


def test_only_the_killed_of_two_runs_raises_an_alert(
    pooled: Site, alerts: list[dict[str, Any]]
) -> None:
    cancelled, killed = start_longs(pooled, "one-of-each", "trial", "other")
    environment = (
        Path(f"/proc/{process_of(pooled, killed.flow_run)}/environ").read_bytes().split(b"\0")
    )
    # Else the server would call it dead after 90 s
    assert b"PREFECT_FLOWS_HEARTBEAT_FREQUENCY=30" in environment
    cancel(pooled, cancelled.flow_run)
    os.kill(process_of(pooled, killed.flow_run), signal.SIGKILL)
    assert pooled.ended(cancelled.flow_run)["type"] == "CANCELLED"
    assert pooled.document(cancelled.out)["verdict"] == "inconclusive"
    assert pooled.ended(killed.flow_run)["type"] == "CRASHED"
    pooled.until(lambda: not pooled.left())
    pooled.until(lambda: set(alarmed(pooled)) == {killed.flow_run})
    pooled.until(lambda: any("the check of other died: " in alert["text"] for alert in alerts))


def registered(pooled: Site) -> tuple[list[Any], list[str]]:
    """The deployments with their schedules, and the automations, as they are now."""
    deployments = pooled.api("POST", "/deployments/filter")
    schedules = [
        (
            deployment["id"],
            deployment["name"],
            [(one["slug"], one["active"], one["schedule"]) for one in deployment["schedules"]],
        )
        for deployment in deployments
    ]
    return sorted(schedules), sorted(
        automation["name"] for automation in pooled.api("POST", "/automations/filter")
    )


def switch_off(pooled: Site, name: str) -> None:
    """As a person does in Prefect's UI."""
    deployment = pooled.deployment(name)
    (schedule,) = deployment["schedules"]
    pooled.api("PATCH", f"/deployments/{deployment['id']}/schedules/{schedule['id']}", active=False)


def test_restarted_worker_keeps_schedules_and_reports_runs_killed_with_it(pooled: Site) -> None:
    """The kernel ends one run with its worker, and that run takes its nodes down. The next run
    reports the one that was killed with the worker, before its heartbeat times out.
    """
    switch_off(pooled, "nightly")
    before = registered(pooled)
    assert {name: [active for _, active, _ in schedules] for _, name, schedules in before[0]} == {
        "nightly": [False],
        "reap": [True],
        "ad-hoc": [],
        "alarm": [],
        "promote": [],
        "qualify": [],
    }
    assert [len(before[0]), len(before[1])] == [6, 2]
    ended, killed = start_longs(pooled, "without-worker", "trial", "other")
    pooled.kill(WORKER, process_of(pooled, killed.flow_run))
    assert (
        pooled.ended(ended.flow_run)["message"] == "Execution was aborted by a termination signal."
    )
    assert pooled.document(ended.out)["verdict"] == "inconclusive"
    pooled.until(lambda: not pooled.left())
    start_worker(pooled)
    assert registered(pooled) == before
    after = pooled.run("ad-hoc", suite=str(pooled.folder / "brief.yaml"))
    assert pooled.ended(pooled.run("reap", "reap"))["type"] == "COMPLETED"
    state = pooled.ended(killed.flow_run)
    assert (state["type"], state["message"]) == ("CRASHED", "inconclusive: the run was killed")
    assert pooled.ended(after)["type"] == "COMPLETED"


def test_worker_stopped_by_sigterm_takes_its_nodes_down(pooled: Site) -> None:
    """As by `docker compose stop` or systemd: the run takes down its own nodes and records a
    verdict.
    """
    (stopped,) = start_longs(pooled, "stopped", "trial")
    (worker,) = pooled.pids(WRAPPER)
    os.kill(worker, signal.SIGTERM)
    assert pooled.ended(stopped.flow_run)["type"] == "CRASHED"
    assert pooled.document(stopped.out)["verdict"] == "inconclusive"
    assert "teardown: " in (stopped.out / "logs" / "run.log").read_text()
    pooled.until(lambda: not pooled.pids(WRAPPER) and not pooled.pids(WORKER))
