"""The chain from nodes to verdict, healthy and broken in every way that the local platform can be
broken.
"""

import csv
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.closing_lines import without_extent
from tests.e2e.conftest import BRIEF, TRAINING, Console, Finished, until
from tests.site import PATIENCE_S

SLOW = "40mbit"


def assert_remembered(console: Console, run_id: str) -> None:
    """The run alone is in the history, and passed."""
    listed = json.loads(console.run("history", "--json").out)
    assert [(row["run_id"], row["verdict"]) for row in listed] == [(run_id, "pass")]


@pytest.mark.gate
def test_a_healthy_cluster_passes_and_leaves_its_record(console: Console) -> None:
    run = console.check(
        console.cluster(), console.suite(devices={"seconds": 0.1}, training=TRAINING)
    )
    assert run.status == 0, run.output
    assert (
        without_extent(run.out.splitlines()[-1])
        == "pass: connectivity, devices, collectives, training: all pass"
    )
    document = run.document
    assert (document["schema"], document["verdict"], document["cluster"], document["suite"]) == (
        1,
        "pass",
        "trial",
        "brief",
    )
    names = [check["name"] for check in document["checks"]]
    assert names == ["connectivity", "devices", "collectives", "training"]
    assert [node["name"] for node in document["nodes"]] == [f"node-{n}" for n in range(4)]
    assert {"kernel", "openmpi", "torch", "openssh", "python"} <= set(document["fingerprint"])
    assert {"startup", "image", "launch", "teardown", *names} <= set(document["timings"])
    plateau = next(
        j for j in run.check("collectives")["judgements"] if j["metric"] == "busbw_plateau"
    )
    assert plateau["value"] > 0
    assert "sanity" in plateau["source"]

    out = console.folder / "out"
    rows = list(csv.DictReader((out / "measurements.csv").read_text().splitlines()))
    assert {row["metric"] for row in rows} >= {
        "matmul",
        "memory_copy",
        "busbw",
        "busbw_plateau",
        "loss_drop",
        "clock_skew",
    }
    assert "<svg" in (out / "report.html").read_text()
    assert "out-of-place" in (out / "logs" / "all_reduce.log").read_text()
    assert "4 of 4 nodes answer on port 222" in (out / "logs" / "run.log").read_text()
    # Rows are seen as they come, not only at the end.
    assert "all_reduce     4M" in run.err

    assert_remembered(console, document["run_id"])
    (out / "report.html").unlink()
    assert console.run("report", out).status == 0
    assert "<svg" in (out / "report.html").read_text()


@pytest.mark.timeout(3600)  # five runs
def test_a_slow_node_is_caught_against_three_healthy_runs_and_a_hiccup_is_not(
    console: Console,
) -> None:
    # Of so many iterations that a stolen time slice or two do not halve the average of a healthy
    # link; and a slow one that is slower by far more than the factor of 6 within which one size may
    # stray.
    sizes = {"min_bytes": "1M", "max_bytes": "1M", "warmup_iterations": 2, "iterations": 40}
    suite = console.suite(collectives={**BRIEF["collectives"], "cpu": sizes})
    for i in range(3):
        healthy = console.check(console.cluster(2), suite, f"healthy-{i}")
        assert healthy.status == 0, healthy.output
    # Of two nodes none can be told from the other: it is their history that tells.
    slow = console.check(
        console.cluster(2, faults=[{"node": "node-1", "rate": SLOW}]), suite, "slow", "--json"
    )
    assert slow.status == 1, slow.output
    assert json.loads(slow.out) == slow.document  # standard output is the document alone
    assert slow.document["verdict"] in ("degraded", "fail")
    plateau = plateau_of(slow)
    assert plateau["source"] == "history"
    assert plateau["value"] < plateau["expected"]["low"]
    assert plateau["deviation"] < -0.5
    # TCP names the link and its ends, which stand before the collective that names none.
    link = "link node-0--node-1 ("
    assert slow.document["reason"].startswith(link), slow.document["reason"]
    by_history = [s for s in slow.document["suspects"] if s["code"] == "worse-than-history"]
    assert {suspect["name"] for suspect in by_history} <= {"node-0", "node-1"}
    assert by_history
    for values in (suspect["values"] for suspect in by_history):
        assert values["agreeing"] == values["readings"] >= 3
    # TCP takes a second and the collective a minute: it is not read again once TCP is sure.
    assert "all_reduce at 1M once more: repeat 1 of " in slow.err
    taken = len(plateau["repeats"])
    assert f"in {taken} of {taken} measurements: stray readings may explain it" in plateau["reason"]
    assert taken < 3
    assert plateau["verdict"] == "inconclusive"
    assert max(plateau["repeats"]) < plateau["expected"]["low"]
    rows = (console.folder / "slow" / "measurements.csv").read_text().splitlines()
    assert sum("busbw_plateau" in row for row in rows) == taken
    assert (console.folder / "slow" / "logs" / "all_reduce-again-1.log").exists()

    assert_passes_after_a_hiccup(hiccup(console, suite))


def assert_passes_after_a_hiccup(document: dict[str, Any]) -> None:
    """One slow reading, and others that are not."""
    assert document["verdict"] == "pass", document["reason"]
    assert not document["suspects"]
    (plateau,) = (j for j in judged(document) if j["metric"] == "busbw_plateau")
    assert plateau["verdict"] == "pass", plateau
    taken = len(plateau["repeats"])
    assert taken >= 3
    assert plateau["repeats"][0] < plateau["expected"]["low"] < median(plateau["repeats"])
    assert f"the median of {taken} measurements" in plateau["reason"]
    assert "repeated" in next(
        check["reason"] for check in document["checks"] if check["name"] == "collectives"
    )


def hiccup(console: Console, suite: Path) -> dict[str, Any]:
    """The run.json of a run whose link is slow only until the first measurements are through."""
    out = console.folder / "hiccup"
    process = console.start("run", console.cluster(2), "--suite", suite, "--out", out)
    log = out / "logs" / "run.log"
    until(lambda: log.exists() and "nodes, head" in log.read_text())
    (namespace,) = (left for left in console.left() if re.fullmatch(r"seatrial-\S+-node-1", left))
    link = ["ip", "netns", "exec", namespace, "tc", "qdisc"]
    shape = ["tbf", "rate", SLOW, "burst", "32kbit", "latency", "400ms"]
    subprocess.run([*link, "add", "dev", "eth0", "root", *shape], check=True)
    until(lambda: "once more: repeat" in log.read_text())
    subprocess.run([*link, "del", "dev", "eth0", "root"], check=True)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    document: dict[str, Any] = json.loads((out / "run.json").read_text())
    return document


def judged(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [judgement for check in document["checks"] for judgement in check["judgements"]]


def plateau_of(run: Finished) -> dict[str, Any]:
    return next(j for j in run.check("collectives")["judgements"] if j["metric"] == "busbw_plateau")


def test_arms_sweep_each_node_by_itself_and_small_messages(console: Console) -> None:
    sweep = {
        "min_bytes": "1M",
        "max_bytes": "4M",
        "step_factor": 4,
        "warmup_iterations": 1,
        "iterations": 3,
    }
    collectives = {
        "arms": ["intra", "network", "latency"],
        "gpu": sweep,
        "cpu": sweep,
        "timeout_s": 120,
    }
    run = console.check(
        console.cluster(2, slots_per_node=2), console.suite(collectives=collectives)
    )
    assert run.status == 0, run.output
    measured = [
        (j["metric"], j["subject"]["name"], j["conditions"])
        for j in run.check("collectives")["judgements"]
    ]
    inside = [
        (name, c["ranks"])
        for metric, name, c in measured
        if metric == "busbw_plateau" and "arm" in c
    ]
    assert inside == [("node-0", 2), ("node-1", 2)], "the network alone needs GPUs"
    sizes = [
        c["message_bytes"]
        for metric, _, c in measured
        if metric == "latency" and c.get("arm") == "latency"
    ]
    assert sizes == [8 << 2 * step for step in range(7)]
    logs = {path.name for path in (console.folder / "out" / "logs").glob("all_reduce*.log")}
    each = {f"all_reduce-intra-node-{node}.log" for node in range(2)}
    assert logs == {"all_reduce.log", "all_reduce-latency.log", *each}


def test_doctor_names_programs_missing_from_path(console: Console) -> None:
    tools = console.folder / "bin"
    tools.mkdir()
    for tool in ("ip", "unshare", "nsenter", "ssh", "sshd", "true"):
        (tools / tool).symlink_to(shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin") or "")
    console.environment["PATH"] = str(tools)
    doctor = console.run("doctor")
    assert doctor.status == 1
    assert "ok      platform local" in doctor.out
    assert "missing mpirun: install Open MPI" in doctor.out
    (tools / "nsenter").unlink()
    assert (
        "missing platform local: nsenter is missing: install util-linux"
        in console.run("doctor").out
    )


def test_concurrent_runs_are_isolated(console: Console) -> None:
    cluster, suite = console.cluster(2), console.suite()
    runs = [
        console.start("run", cluster, "--suite", suite, "--out", console.folder / f"out-{i}")
        for i in range(2)
    ]
    for run in runs:
        _, errors = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 0, errors
