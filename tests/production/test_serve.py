"""`seatrial serve` from a fresh machine to the first scheduled run, and again after a stop or a
death; PostgreSQL.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from seatrial.platforms.local.platform import PLATFORM
from tests.postgres import postgres_server
from tests.production.conftest import furnish
from tests.site import Site, free_port, run_id_in, site


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Site]:
    if lacking := PLATFORM.missing():
        pytest.skip("; ".join(map(str, lacking)))
    with site(tmp_path) as new_site:
        furnish(new_site)
        yield new_site


def nightly_runs(served: Site, *states: str) -> list[str]:
    filters = {"tags": {"all_": ["nightly"]}, "state": {"type": {"any_": list(states)}}}
    return [str(run["id"]) for run in served.api("POST", "/flow_runs/filter", flow_runs=filters)]


def assert_no_second_one_starts(site: Site) -> None:
    """Neither on the same port, nor with the same folder of Prefect."""
    command = [sys.executable, "-m", "seatrial", "serve", "trial.yaml", "--port"]

    def refused(port: int) -> str:
        second = subprocess.run(
            [*command, str(port)],
            capture_output=True,
            text=True,
            check=False,
            cwd=site.folder,
            env=site.environment,
        )
        assert second.returncode == 2
        return second.stderr

    there = refused(site.port)
    assert there.startswith(f"seatrial: --port {site.port}: something listens there already")
    assert there.count("\n") == 1
    assert site.process
    works = (
        f"another seatrial serve (process {site.process.pid}) works there; give it all "
        "cluster files, or set"
    )
    home = site.environment["PREFECT_HOME"]
    assert refused(free_port()) == f"seatrial: PREFECT_HOME {home}: {works} PREFECT_HOME\n"


def test_serve_starts_a_scheduled_run_and_again_after_a_restart(fresh: Site) -> None:
    every_minute = [
        "trial.yaml",
        "--suite",
        "brief.yaml",
        "--cron",
        "* * * * *",
        "--timezone",
        "Asia/Tokyo",
    ]
    fresh.start(*every_minute)
    assert f"Prefect  {fresh.url}" in fresh.log
    assert "nightly  trial" in fresh.log
    assert "* * * * * (Asia/Tokyo), next " in fresh.log
    fresh.until(lambda: bool(nightly_runs(fresh, "COMPLETED")))
    (first, *_) = nightly_runs(fresh, "COMPLETED")
    run_id = fresh.flow_run(first)["labels"]["seatrial.run"]
    assert fresh.document(fresh.folder / "runs" / run_id)["verdict"] == "pass"
    # Not in /tmp, which users share
    assert (Path(fresh.environment["PREFECT_HOME"]) / "runner_storage").is_dir()

    assert_no_second_one_starts(fresh)
    automations = {automation["id"] for automation in fresh.api("POST", "/automations/filter")}
    assert fresh.stop() == 0
    assert fresh.processes() == {}
    assert not fresh.left()
    fresh.start(*every_minute)
    assert fresh.flow_run(first)["state"]["type"] == "COMPLETED"
    nightly = fresh.api("GET", "/deployments/name/seatrial-check/nightly")
    assert (nightly["paused"], [schedule["slug"] for schedule in nightly["schedules"]]) == (
        False,
        ["trial"],
    )
    assert len(automations) == 2
    assert {each["id"] for each in fresh.api("POST", "/automations/filter")} == automations, (
        "a new one saw no heartbeat"
    )
    assert fresh.stop(signal.SIGINT) == 0
    assert fresh.processes() == {}


def test_restarted_serve_keeps_schedules_and_paused_runs(fresh: Site) -> None:
    fresh.write("other", nodes=2, platform={"kind": "local"})
    fresh.start("trial.yaml", "other.yaml", "--timezone", "UTC")
    brief = str(fresh.folder / "brief.yaml")
    good = fresh.run("ad-hoc", suite=brief)
    assert fresh.ended(good)["type"] == "COMPLETED"
    asks = fresh.run("promote", "promote", run_id=fresh.flow_run(good)["labels"]["seatrial.run"])
    fresh.until(lambda: fresh.flow_run(asks)["state"]["type"] == "PAUSED")
    nightly = fresh.api("GET", "/deployments/name/seatrial-check/nightly")
    (own,) = (schedule["id"] for schedule in nightly["schedules"] if schedule["slug"] == "trial")
    # As a person does in the UI
    fresh.api("PATCH", f"/deployments/{nightly['id']}/schedules/{own}", active=False)
    out = fresh.folder / "runs" / "out"
    flow_run = fresh.run("ad-hoc", suite=str(fresh.folder / "long.yaml"), out=str(out))
    fresh.until_sweeping(out)
    assert fresh.process
    fresh.process.kill()
    fresh.process.wait()
    fresh.until(lambda: not fresh.processes())
    fresh.until(lambda: not fresh.left())
    fresh.start("trial.yaml", "--timezone", "UTC")
    assert fresh.flow_run(flow_run)["state"]["type"] in ("CRASHED", "CANCELLED")
    assert fresh.document(out)["verdict"] == "inconclusive"
    assert fresh.flow_run(asks)["state"]["type"] == "CRASHED"  # nobody would hear the answer
    nightly = fresh.api("GET", "/deployments/name/seatrial-check/nightly")
    # the other is served no more, and what was switched off stays so
    assert [(schedule["slug"], schedule["active"]) for schedule in nightly["schedules"]] == [
        ("trial", False)
    ]
    assert fresh.ended(fresh.run("ad-hoc", suite=brief))["type"] == "COMPLETED"


def test_sigterm_to_every_process_leaves_nothing(fresh: Site) -> None:
    """The run takes its nodes down and writes its verdict; it does not wait for the server, which
    has gone.
    """
    fresh.start("trial.yaml", "--timezone", "UTC")
    out = fresh.folder / "runs" / "out"
    fresh.run("ad-hoc", suite=str(fresh.folder / "long.yaml"), out=str(out))
    fresh.until_sweeping(out)
    for pid in fresh.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    fresh.until(lambda: not fresh.processes(), timeout_s=180)
    assert fresh.process and fresh.process.wait() == 0
    assert not fresh.left()
    assert fresh.document(out)["verdict"] == "inconclusive"


def run_elsewhere(site: Site, *arguments: str) -> subprocess.Popen[bytes]:
    """Start `seatrial run` as on another machine: with a process tree and a state of its own."""
    auth = site.folder / "prefect" / "seatrial-serve.auth"
    elsewhere = {
        **site.environment,
        "XDG_STATE_HOME": str(site.folder / "state-of-the-other"),
        "PREFECT_API_URL": f"{site.url}/api",
        "PREFECT_API_AUTH_STRING": auth.read_text().strip(),
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    }
    # Runs of this machine would take it for one that was killed, since they cannot see its process.
    mounts = "mkdir -p $folder; mount -t tmpfs -o mode=700 tmpfs $folder"
    own = f"for folder in /run/seatrial-local /run/netns; do {mounts}; done"
    own_tree = ["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
    own_run = ["sh", "-ec", f'{own}; exec "$@"', "sh"]
    run = [sys.executable, "-m", "seatrial", "run", *arguments]
    with (site.folder / "other.log").open("wb") as log:
        return subprocess.Popen(
            [*own_tree, *own_run, *run], cwd=site.folder, env=elsewhere, stdout=log, stderr=log
        )


def test_run_of_a_lost_machine_crashes_and_frees_its_cluster(fresh: Site) -> None:
    """The process cannot be asked: its lease expires, and the server misses its heartbeats."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a run a process tree of its own")
    fresh.start("trial.yaml", "--timezone", "UTC")
    out = fresh.folder / "runs" / "out"
    other = run_elsewhere(fresh, "trial.yaml", "--suite", "long.yaml", "--out", str(out))
    try:
        fresh.until_sweeping(out)
        at_work = {"tags": {"all_": ["cluster:trial"]}, "state": {"type": {"any_": ["RUNNING"]}}}
        (lost,) = (
            str(run["id"]) for run in fresh.api("POST", "/flow_runs/filter", flow_runs=at_work)
        )
        waits = fresh.run("ad-hoc", suite=str(fresh.folder / "brief.yaml"))
        fresh.until(lambda: fresh.flow_run(waits)["state"]["name"] == "Waiting")
        held = fresh.flow_run(waits)["state"]["message"]
        assert held.startswith(
            f"cluster trial is being checked by run {run_id_in(out)} (trial long) since "
        )
    finally:
        other.kill()
        other.wait()
    assert fresh.ended(waits)["type"] == "COMPLETED"
    state = fresh.ended(lost)
    assert (state["type"], state["message"]) == ("CRASHED", "no heartbeat for 90 s")


def test_serve_runs_with_postgresql_for_prefect_and_the_history(tmp_path: Path) -> None:
    with postgres_server() as socket:
        databases = {
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://postgres@/postgres?host={socket}",
            "SEATRIAL_HISTORY": f"postgresql://postgres@/postgres?host={socket}",
        }
        with site(tmp_path, databases) as served:
            furnish(served)
            served.start(
                "trial.yaml", "--suite", "brief.yaml", "--cron", "* * * * *", "--timezone", "UTC"
            )
            served.until(lambda: bool(nightly_runs(served, "COMPLETED")))
            served.api(
                "POST", f"/deployments/{served.deployment('nightly')['id']}/pause_deployment"
            )
            runs = [served.run("ad-hoc", suite=served.unjudged()) for _ in range(2)]
            assert [served.ended(run)["type"] for run in runs] == ["COMPLETED"] * 2
            assert served.stop() == 0
        assert not (tmp_path / "prefect" / "prefect.db").exists()
        count = [
            "psql",
            "-h",
            str(socket),
            "-U",
            "postgres",
            "-Atc",
            "select count(*) from runs where verdict='pass'",
        ]
        assert int(subprocess.run(count, check=True, capture_output=True, text=True).stdout) >= 3
