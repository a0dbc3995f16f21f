"""Whatever dies in the middle of a run: nothing stays up, the state is right, and what earlier runs
found is there.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.production.conftest import (
    alarmed,
    alerted_site,
    cancel,
    process_of,
    start_long,
    stop_watching,
)
from tests.site import LONG, Site

FLOW, RUNNER, SERVER = (
    "prefect.engine",
    "seatrial.flows.serving.runner",
    "seatrial.flows.serving.webserver",
)


@pytest.fixture(scope="module")
def first(served: Site) -> Path:
    """The folder of a run that went well before anything went wrong."""
    folder = served.folder / "runs" / "first"
    flow_run = served.run("ad-hoc", suite=str(served.folder / "brief.yaml"), out=str(folder))
    assert served.ended(flow_run)["type"] == "COMPLETED"
    return folder


@pytest.fixture(autouse=True)
def _nothing_lost(served: Site, first: Path) -> Iterator[None]:
    """After each of them: nothing is up, and the first run is still there, in its folder and in the
    history.
    """
    document = served.document(first)
    yield
    served.until(lambda: not served.pids(FLOW))
    served.until(lambda: not served.left())
    assert served.document(first) == document
    history = subprocess.run(
        [sys.executable, "-m", "seatrial", "history", "--json"],
        env=served.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f'"{document["run_id"]}"' in history.stdout


def goes_on(served: Site) -> None:
    """The next run is as good as any."""
    flow_run = served.run("ad-hoc", suite=served.unjudged())
    assert served.ended(flow_run)["type"] == "COMPLETED", served.flow_run(flow_run)["state"]


@pytest.mark.gate
def test_killed_flow_process_crashes_its_run_takes_nodes_down_and_alerts(
    served: Site, out: Path, alerts: list[dict[str, Any]]
) -> None:
    nights = {"tags": {"all_": ["nightly"]}, "state": {"type": {"any_": ["SCHEDULED"]}}}
    served.until(lambda: bool(served.api("POST", "/flow_runs/filter", flow_runs=nights)))
    flow_run = start_long(served, out)
    os.kill(process_of(served, flow_run), signal.SIGKILL)
    assert served.ended(flow_run)["type"] == "CRASHED"
    served.until(lambda: not served.left())
    served.until(lambda: flow_run in alarmed(served))
    served.until(lambda: any("the check of trial died: " in alert["text"] for alert in alerts))
    goes_on(served)


def test_nodes_of_a_killed_run_are_reaped_without_its_cluster_file(
    served: Site, out: Path, alerts: list[dict[str, Any]]
) -> None:
    """The nodes and the cluster's name in the alert are those of the file when the run started."""
    file = served.folder / "moved.yaml"
    file.write_text("{name: east, nodes: 2, platform: {kind: local}}")
    flow_run = start_long(served, out, cluster=str(file))
    file.unlink()
    os.kill(process_of(served, flow_run), signal.SIGKILL)
    assert served.ended(flow_run)["type"] == "CRASHED"
    served.until(lambda: not served.left())
    served.until(lambda: any(alert["incident"]["cluster"] == "east" for alert in alerts))


@pytest.mark.parametrize("name", ["/proc/results", "../results", "link"])
def test_a_run_by_a_form_writes_below_the_runs_folder_alone(served: Site, name: str) -> None:
    elsewhere = served.folder / "elsewhere"
    (served.folder / "runs" / "link").unlink(missing_ok=True)
    (served.folder / "runs" / "link").symlink_to(elsewhere)
    state = served.ended(served.run("ad-hoc", out=name))
    assert state["type"] == "CRASHED"
    assert state["message"].startswith(
        f"could not measure: out '{name}': must be a folder below {served.folder}/runs"
    )
    assert not elsewhere.exists()
    assert not (served.folder / "results").exists()


def test_a_killed_runner_ends_its_run_as_crashed(served: Site, out: Path) -> None:
    flow_run = start_long(served, out)
    stop_watching(served)
    served.kill(RUNNER)
    state = served.ended(flow_run)
    assert (state["type"], state["message"]) == (
        "CRASHED",
        "Execution was aborted by a termination signal.",
    )
    served.until(lambda: not served.left())
    assert served.document(out)["verdict"] == "inconclusive"
    served.until(lambda: bool(served.pids(RUNNER)))
    goes_on(served)


def test_stopped_runner_ends_its_run_and_starts_no_other(served: Site, out: Path) -> None:
    """As at the end of `seatrial serve`: the run takes down its own nodes and records a verdict."""
    flow_run = start_long(served, out)
    (runner,) = served.pids(RUNNER)
    os.kill(runner, signal.SIGTERM)
    due = served.run("ad-hoc", suite=served.unjudged())  # not for the runner that ends
    assert served.ended(flow_run)["type"] == "CRASHED"
    assert served.document(out)["verdict"] == "inconclusive"
    assert "teardown: " in (out / "logs" / "run.log").read_text()
    served.until(lambda: runner not in served.pids(RUNNER) and bool(served.pids(RUNNER)))
    assert served.ended(due)["type"] == "COMPLETED", served.flow_run(due)["state"]


def test_run_crashes_by_missing_heartbeat_when_runner_and_flow_are_killed(
    served: Site, out: Path
) -> None:
    flow_run = start_long(served, out)
    for pid in (*served.pids(RUNNER), *served.pids(FLOW)):
        os.kill(pid, signal.SIGKILL)
    state = served.ended(flow_run)
    assert (state["type"], state["message"]) == ("CRASHED", "no heartbeat for 90 s")
    goes_on(served)


def test_run_completes_when_the_server_is_killed(served: Site, out: Path) -> None:
    flow_run = served.run("ad-hoc", suite=served.unjudged(), out=str(out))
    log = out / "logs" / "run.log"
    served.until(lambda: log.exists() and "launch ..." in log.read_text())
    served.kill(SERVER)
    assert served.ended(flow_run)["type"] == "COMPLETED"
    assert served.document(out)["verdict"] == "pass"
    artifacts = served.api(
        "POST", "/artifacts/filter", artifacts={"flow_run_id": {"any_": [flow_run]}}
    )
    keys = {artifact["key"] for artifact in artifacts}
    assert {"judgements-trial", "summary-trial"} <= keys, (out / "logs" / "run.log").read_text()


@pytest.mark.gate
def test_cancelled_run_is_inconclusive(served: Site, out: Path) -> None:
    flow_run = start_long(served, out)
    cancel(served, flow_run)
    assert served.ended(flow_run)["type"] == "CANCELLED"
    assert served.document(out)["verdict"] == "inconclusive"


def waits_with(served: Site, run: str, message: str) -> bool:
    return message in (served.flow_run(run)["state"]["message"] or "")


def test_waiting_runs_start_in_the_order_of_arrival(served: Site, out: Path) -> None:
    holder, runs = start_long(served, out), list[str]()
    for place in ("cluster trial is being checked by run ", "; 1 run before this one"):
        runs.append(served.run("nightly"))
        served.until(partial(waits_with, served, runs[-1], place))
        assert served.flow_run(runs[-1])["state"]["name"] == "Waiting"
    cancel(served, holder)
    assert [served.ended(run)["type"] for run in runs] == ["COMPLETED"] * 2
    first, second = (_nodes_up(served, run) for run in runs)
    assert first[1] <= second[0]


def _nodes_up(served: Site, flow_run: str) -> tuple[str, str]:
    """From when to when a run had nodes, by its log."""
    run_id = served.flow_run(flow_run)["labels"]["seatrial.run"]
    lines = (served.folder / "runs" / run_id / "logs" / "run.log").read_text().splitlines()
    times = [line[:23] for line in lines if "launch ..." in line or "teardown: " in line]
    return times[0], times[-1]


def test_a_second_run_that_may_not_wait_names_the_holder(served: Site, out: Path) -> None:
    flow_run = start_long(served, out)
    refused = served.ended(served.run("ad-hoc", wait_s=0))
    assert refused["type"] == "CRASHED"
    assert refused["message"].startswith("not_run: turn: cluster trial is being checked by run ")
    assert served.flow_run(flow_run)["state"]["type"] == "RUNNING"
    cancel(served, flow_run)
    assert served.ended(flow_run)["type"] == "CANCELLED"


def test_run_that_lost_its_cluster_to_another_blames_no_node(served: Site, out: Path) -> None:
    """As after the server was away for longer than a lease lasts: no node is blamed for numbers or
    failures of that time.
    """
    collectives = {**LONG["collectives"], "timeout_s": 45}  # then the sweep is cut off
    suite = served.write(
        "cut", connectivity={"timeout_s": 30}, devices=None, collectives=collectives
    )
    flow_run = served.run("ad-hoc", suite=suite, out=str(out))
    served.until_sweeping(out)
    other = {
        "flow_id": served.flow_run(flow_run)["flow_id"],
        "tags": ["cluster:trial"],
        "state": {"type": "RUNNING"},
    }
    run_of_another = served.api("POST", "/flow_runs/", **other, labels={"seatrial.slot": "held"})[
        "id"
    ]
    state = served.ended(flow_run)
    served.api("DELETE", f"/flow_runs/{run_of_another}")
    assert (state["type"], state["message"].partition(":")[0]) == ("CRASHED", "inconclusive")
    document = served.document(out)
    assert {check["name"]: check["verdict"] for check in document["checks"]} == {
        "connectivity": "pass",
        "collectives": "inconclusive",
        "turn": "inconclusive",
    }
    assert not document["suspects"]
    assert "another run has this cluster now" in state["message"]
    goes_on(served)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Nobody else can write to, or read from, this SQLite database meanwhile."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield


def test_run_completes_though_the_prefect_database_is_locked_for_a_while(
    served: Site, out: Path
) -> None:
    flow_run = served.run("ad-hoc", suite=served.unjudged(), out=str(out))
    log = out / "logs" / "run.log"
    served.until(lambda: log.exists() and "launch ..." in log.read_text())
    with _locked(served.folder / "prefect" / "prefect.db"):
        time.sleep(15)  # the time itself is the fault: longer than SQLite and Prefect wait at once
    assert served.ended(flow_run)["type"] == "COMPLETED"
    assert served.document(out)["verdict"] == "pass"


def test_run_with_a_locked_history_is_inconclusive(served: Site, out: Path) -> None:
    with _locked(served.folder / "state" / "seatrial" / "history.sqlite"):
        state = served.ended(served.run("ad-hoc", suite=served.unjudged(), out=str(out)))
    assert state["type"] == "CRASHED"
    assert state["message"].startswith("inconclusive: history: cannot be opened")
    assert served.document(out)["checks"]


@contextmanager
def _disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own at `folder`."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "seatrial-disk", str(folder)],
        check=True,
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def small_disk(out: Path) -> Iterator[Path]:
    with _disk(out, "4m") as folder:
        yield folder


def test_run_keeps_its_verdict_when_the_disk_of_the_server_fills_up(tmp_path: Path) -> None:
    """The run takes its nodes down; once there is room again, the server runs the next one."""
    out = tmp_path / "runs" / "full"
    with alerted_site(tmp_path, []) as own, _disk(tmp_path / "prefect", "64m") as disk:
        own.start("trial.yaml", "--suite", "brief.yaml", "--timezone", "UTC")
        flow_run = own.run("ad-hoc", suite=own.unjudged(), out=str(out))
        log = out / "logs" / "run.log"
        own.until(lambda: log.exists() and "launch ..." in log.read_text())
        _fill(disk)
        own.until(lambda: (out / "run.json").exists() and not own.left())
        assert own.document(out)["verdict"] == "pass"
        (disk / "ballast").unlink()
        own.ended(flow_run)
        assert own.ended(own.run("ad-hoc", suite=own.unjudged()))["type"] == "COMPLETED"


def test_run_keeps_its_verdict_when_its_disk_fills_up_before_recording(
    served: Site, small_disk: Path
) -> None:
    """Room for run.json is reserved when a run begins, so its state follows the verdict and no
    alarm is raised.
    """
    flow_run = served.run("ad-hoc", suite=served.unjudged(), out=str(small_disk))
    log = small_disk / "logs" / "run.log"
    served.until(lambda: log.exists() and "all_reduce     1M" in log.read_text())
    _fill(small_disk)
    assert served.ended(flow_run)["type"] == "COMPLETED"
    assert served.document(small_disk)["verdict"] == "pass"
    assert flow_run not in alarmed(served)
    goes_on(served)


def _fill(folder: Path) -> None:
    with (
        (folder / "ballast").open("wb", buffering=0) as file,
        pytest.raises(OSError, match="No space left"),
    ):
        while True:
            file.write(bytes(4096))
