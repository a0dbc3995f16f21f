"""What a run on a real Kubernetes leaves: logs of its pods, events, uploads, and nodes to look at
for a while.
"""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from seatrial.platforms import state as states
from tests.e2e.conftest import Console, Finished
from tests.e2e.kubernetes.cluster import Cluster
from tests.e2e.kubernetes.kinds import left
from tests.e2e.kubernetes.runs import in_the_middle_of_a_sweep
from tests.site import PATIENCE_S


def with_fields(file: Path, **fields: Any) -> Path:
    """The cluster file with more at its top."""
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **fields}))
    return file


def uploaded(console: Console, run_id: str) -> Path:
    return console.folder / "bucket" / run_id


def events(folder: Path) -> list[str]:
    """The lines of events.txt, which are in time order."""
    lines = (folder / "logs" / "events.txt").read_text().splitlines()
    times = [line.split()[0] for line in lines]
    assert times == sorted(times)
    return lines


def run_id_of(finished: Finished) -> str:
    return str(finished.document["run_id"])


def test_a_failed_run_is_kept_with_its_logs_until_its_time_is_over(
    console: Console,
    trial: Callable[..., Path],
    least_rights: None,
    cluster: Cluster,
    namespace: str,
) -> None:
    file = with_fields(
        trial(),
        mpi={"mpirun": "/nowhere/mpirun"},
        upload=f"file://{console.folder}/bucket",
        keep="on_failure",
        keep_s=3600,
    )
    run = console.check(file, console.suite())
    assert run.status == 3, run.output
    run_id, *names = run_id_of(run), *(node["name"] for node in run.document["nodes"])
    assert f"seatrial ssh {run_id} head" in run.out
    assert f"file://{console.folder}/bucket/{run_id}/" in run.out
    assert run.out.splitlines()[-1].startswith("not_run: ")

    head, worker = names
    assert_uploaded(uploaded(console, run_id), run_id, head, worker)
    inside = console.run(
        "ssh", run_id, "head", "--", "echo $((6 * 7)); cat /run/seatrial/pid; exit 5"
    )
    assert inside.status == 5, inside.output
    assert inside.out.splitlines()[0] == "42"
    assert console.run("ssh", console.folder / "out", worker, "true").status == 0
    unknown = console.run("ssh", run_id, "node-77")
    assert unknown.status == 2
    assert f"has no node 'node-77'; legal: {head}, {worker}, head, or 0 to 1" in unknown.err

    assert "0 runs reaped" in console.run("reap", file).out
    assert left(cluster, namespace)
    states.keep(states.root_folder("kubernetes") / run_id, -1)
    assert "1 run reaped" in console.run("reap", file).out
    assert left(cluster, namespace) == ""
    over = console.run("ssh", run_id, "head")
    assert (over.status, f"run {run_id}: is over" in over.err) == (2, True)


def assert_uploaded(there: Path, run_id: str, head: str, worker: str) -> None:
    """The run's folder has its pods' logs and events, and no key."""
    assert {"run.json", "report.html", "measurements.csv", "connectivity-test.log"} <= {
        path.name for path in there.iterdir()
    }
    assert {path.name for path in (there / "pod-logs").iterdir()} == {
        "coordinator.log",
        f"worker-{worker}.log",
    }
    for name, node in (("coordinator.log", head), (f"worker-{worker}.log", worker)):
        title, *lines = (there / "pod-logs" / name).read_text().splitlines()
        assert f" on {node} (" in title
        assert any("Accepted publickey for root" in line for line in lines)
    assert any(f"Pod/seatrial-{run_id}-" in line and " Started " in line for line in events(there))
    assert "PRIVATE KEY" not in "".join(
        path.read_text() for path in there.rglob("*") if path.is_file()
    )


def test_an_image_that_cannot_be_had_leaves_its_events_and_pods(
    console: Console, trial: Callable[..., Path], cluster: Cluster, namespace: str
) -> None:
    file = with_fields(
        trial(nodes=1, image="localhost/nothing:1", image_pull_policy="Never"),
        upload=f"file://{console.folder}/bucket",
        keep="on_failure",
    )
    run = console.check(file, console.suite())
    assert run.status == 3, run.output
    run_id = run_id_of(run)
    there = uploaded(console, run_id)
    assert any("ErrImageNeverPull" in line for line in events(there))
    title, reason = (there / "pod-logs" / "coordinator.log").read_text().splitlines()
    assert "container node: waiting ErrImageNeverPull" in title
    assert reason.startswith("# no log: ")
    assert json.loads((there / "run.json").read_text())["verdict"] == "inconclusive"

    assert left(cluster, namespace)  # to be looked at, with kubectl: there is nothing to log in to
    nobody = console.run("ssh", run_id, "head")
    assert (nobody.status, "no node of it is up" in nobody.err) == (2, True)
    ended = console.run("reap", "--run", run_id)
    assert (ended.status, ended.out) == (0, f"{run_id}: removed\n")
    assert left(cluster, namespace) == ""


def test_an_interrupted_run_is_not_kept_and_its_logs_are_uploaded(
    console: Console, trial: Callable[..., Path], cluster: Cluster, namespace: str
) -> None:
    keeping = with_fields(trial(), upload=f"file://{console.folder}/bucket", keep="always")
    process = in_the_middle_of_a_sweep(console, keeping).process
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, errors
    assert left(cluster, namespace) == ""
    (run_id,) = console.run_ids()
    there = uploaded(console, run_id)
    assert "cut off by" in json.loads((there / "run.json").read_text())["reason"]
    assert "Accepted publickey" in (there / "pod-logs" / "coordinator.log").read_text()
    assert "all_reduce" in (there / "nccl-test-results.txt").read_text()
