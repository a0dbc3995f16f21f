"""Runs that do not go on to their end as they began: a link goes down, a reader leaves, somebody
ends or kills them.
"""

import json
import os
import re
import signal
import subprocess
import time

import httpx
import pytest

from tests.e2e.conftest import TRAINING, Console, until
from tests.site import PATIENCE_S


def test_a_link_that_goes_down_in_the_middle_of_a_sweep_ends_within_its_timeout(
    console: Console,
) -> None:
    suite = console.suite(
        collectives={
            "operations": ["all_reduce", "broadcast"],
            "gpu": {"min_bytes": "1M", "max_bytes": "1M"},
            # The first row comes at once, and the second takes seconds: it is on its way when the
            # link goes down.
            "cpu": {
                "min_bytes": "256K",
                "max_bytes": "64M",
                "step_factor": 256,
                "warmup_iterations": 0,
                "iterations": 8,
            },
            "timeout_s": 60,  # in which ranks meet on a busy machine, too
        },
    )
    out = console.folder / "out"
    process = console.start("run", console.cluster(3), "--suite", suite, "--out", out)
    log = out / "logs" / "run.log"
    until(lambda: log.exists() and "all_reduce   256K" in log.read_text())
    (namespace,) = (left for left in console.left() if re.fullmatch(r"seatrial-\S+-node-2", left))
    subprocess.run(
        ["ip", "netns", "exec", namespace, "ip", "link", "set", "eth0", "down"], check=True
    )
    broken_at = time.monotonic()
    until(lambda: "node-2" in log.read_text().split("all_reduce   256K")[-1])
    assert time.monotonic() - broken_at < 110
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, errors
    document = json.loads((out / "run.json").read_text())
    assert document["verdict"] == "fail"
    assert document["reason"].startswith("node-2 (")
    assert "all_reduce" in next(
        check["reason"] for check in document["checks"] if check["name"] == "collectives"
    )
    # The node that died is named, and the other two go on without it.
    assert [suspect["name"] for suspect in document["suspects"]] == ["node-2"]
    verdicts = {check["name"]: check["verdict"] for check in document["checks"]}
    assert verdicts == {"connectivity": "pass", "collectives": "fail"}
    assert "broadcast   256K" in log.read_text()
    assert output.splitlines()[-1].startswith("fail: ")
    assert not console.left()


def test_closed_stdout_and_stderr_do_not_change_the_verdict(console: Console) -> None:
    process = console.start(
        "run", console.cluster(2), "--suite", console.suite(), "--out", console.folder / "out"
    )
    assert process.stdout
    assert process.stderr
    process.stderr.readline()  # as `2>&1 | head -1` does
    process.stderr.close()
    process.stdout.close()
    assert process.wait(timeout=PATIENCE_S) == 0
    process.stdout, process.stderr = None, None
    assert json.loads((console.folder / "out" / "run.json").read_text())["verdict"] == "pass"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGHUP, 143)])
def test_interrupted_runs_take_everything_down(
    console: Console, number: signal.Signals, status: int
) -> None:
    out = console.folder / "out"
    process = console.start("run", console.cluster(), "--suite", console.suite(), "--out", out)
    log = out / "logs" / "run.log"
    until(lambda: log.exists() and "mpirun: 4 ranks" in log.read_text())
    assert console.left()
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status, errors
    assert "everything is taken down" in errors
    assert not console.left()
    document = json.loads((out / "run.json").read_text())
    assert document["verdict"] == "inconclusive"
    assert "cut off by" in document["reason"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_two_signals_to_every_process_are_one_interruption(
    console: Console, number: signal.Signals, status: int
) -> None:
    out = console.folder / "out"
    process = console.start(
        "run", console.cluster(2), "--suite", console.suite(), "--out", out, group=True
    )
    log = out / "logs" / "run.log"
    until(lambda: log.exists() and "nodes, head" in log.read_text())
    for _ in range(2):
        os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status, errors
    assert "everything is taken down" in errors
    assert "Traceback" not in errors
    assert not console.left()
    assert "cut off by" in json.loads((out / "run.json").read_text())["reason"]


@pytest.mark.parametrize(
    "seen", ["nodes, head", pytest.param("all_reduce     1M", marks=pytest.mark.gate)]
)
def test_a_killed_run_leaves_nothing_once_the_next_reaps(console: Console, seen: str) -> None:
    out = console.folder / "out"
    process = console.start(
        "run", console.cluster(2), "--suite", console.suite(training=TRAINING), "--out", out
    )
    log = out / "logs" / "run.log"
    until(lambda: log.exists() and seen in log.read_text())
    process.kill()
    process.communicate()
    reaped = console.run("reap")
    assert reaped.status == 0, reaped.output
    until(lambda: not console.left())


def test_a_killed_run_is_recorded_by_the_next_command(console: Console) -> None:
    """By `watch`, which ends then; the history, `status` and Prefect have the same verdict."""
    out, killed = console.folder / "out", "inconclusive: the run was killed"
    process = console.start("run", console.cluster(2), "--suite", console.suite(), "--out", out)
    log = out / "logs" / "run.log"
    until(lambda: log.exists() and "nodes, head" in log.read_text())
    watching = console.start("watch", out)
    process.kill()
    process.communicate()
    printed, _ = watching.communicate(timeout=PATIENCE_S)
    assert (watching.returncode, printed.splitlines()[-1]) == (3, killed)
    document = json.loads((out / "run.json").read_text())
    assert (document["verdict"], document["reason"]) == ("inconclusive", "the run was killed")
    (recorded,) = json.loads(console.run("history", "--json").out)
    assert (recorded["run_id"], recorded["verdict"]) == (document["run_id"], "inconclusive")
    newest = {"sort": "START_TIME_DESC", "limit": 1}
    runs = httpx.post(
        f"{console.environment['PREFECT_API_URL']}/flow_runs/filter",
        json=newest,
        auth=console.auth,
        timeout=PATIENCE_S,
    )
    assert [(run["state_type"], run["state"]["message"]) for run in runs.json()] == [
        ("CRASHED", killed)
    ]
    assert console.run("reap").status == 0
    until(lambda: not console.left())


def test_a_folder_used_again_does_not_keep_the_old_verdict(console: Console) -> None:
    out = console.folder / "out"
    out.mkdir()
    for name in ("run.json", "measurements.csv", "report.html"):
        (out / name).write_text('{"verdict": "pass"}')
    process = console.start("run", console.cluster(2), "--suite", console.suite(), "--out", out)
    until(lambda: bool(console.run_ids()))
    process.kill()
    process.communicate()
    assert [path.name for path in out.iterdir()] == ["logs"]
    assert console.run("reap").status == 0
    until(lambda: not console.left())
