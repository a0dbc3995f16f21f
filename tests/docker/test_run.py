"""`seatrial run` on real containers: the whole chain, and nothing left whatever happens."""

import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docker.engine import Engine
from tests.e2e.conftest import Console, until
from tests.images import lane
from tests.site import PATIENCE_S

PATIENT = {"connectivity": {"timeout_s": 60}}  # what else runs shares two processors
TRAINING = {"steps": 5, "batch_per_rank": 2, "min_loss_drop": 0.01, "timeout_s": 300}


def cluster_file(
    console: Console, engine: Engine, nodes: int, name: str = "trial", **platform: Any
) -> Path:
    described = {
        "name": name,
        "nodes": nodes,
        "image": engine.image,
        "platform": {**engine.settings, **platform},
    }
    path = console.folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(described))
    return path


@pytest.mark.gate
def test_two_containers_go_through_the_whole_chain(docker_engine: Engine, console: Console) -> None:
    suite = console.suite(**PATIENT, training=TRAINING)
    finished = console.check(cluster_file(console, docker_engine, 2), suite)
    assert finished.status == 0, finished.output
    assert {check["name"]: check["verdict"] for check in finished.document["checks"]} == {
        "connectivity": "pass",
        "collectives": "pass",
        "training": "pass",
    }
    assert [node["name"] for node in finished.document["nodes"]] == ["node-0", "node-1"]
    logs = console.folder / "out" / "logs" / "nodes"
    assert all(
        "Accepted publickey for root" in (logs / f"node-{i}.log").read_text() for i in range(2)
    )


@pytest.mark.parametrize("network", ["own", "host"])
def test_one_container_alone_is_checked(
    docker_engine: Engine, console: Console, network: str
) -> None:
    cluster = cluster_file(console, docker_engine, 1, network=network)
    # 222 may be the host's own
    cluster.write_text(cluster.read_text() + "slots_per_node: 2\nssh_port: 2291\n")
    finished = console.check(cluster, console.suite(**PATIENT, training=TRAINING))
    assert finished.status == 0, finished.output
    assert len(finished.document["nodes"]) == 1
    assert {check["name"] for check in finished.document["checks"]} >= {"connectivity", "training"}


def test_a_killed_run_is_reaped(docker_engine: Engine, console: Console) -> None:
    cluster = cluster_file(console, docker_engine, 2)
    process = console.start("run", cluster, "--suite", console.suite(**PATIENT), "--out", "out")
    until(lambda: len(docker_engine.objects()) == 3 or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(docker_engine.objects()) == 3
    reaped = console.run("reap", cluster)
    assert reaped.status == 0, reaped.output
    assert docker_engine.objects() == set()


def test_kept_run_accepts_logins_and_its_keys_are_not_in_inspect_output(
    docker_engine: Engine, console: Console
) -> None:
    cluster = cluster_file(console, docker_engine, 2)
    cluster.write_text(cluster.read_text() + "keep: always\n")
    finished = console.check(cluster, console.suite(**PATIENT))
    assert finished.status == 0, finished.output
    logged_in = console.run("ssh", "out", "node-1", "--", "hostname")
    assert (logged_in.status, logged_in.out.strip()) == (0, "node-1"), logged_in.output
    containers = [name for name in docker_engine.objects() if "node-" in name]
    inspected = lane.podman("inspect", *containers)
    assert "seatrial.run-id" in inspected
    assert "PRIVATE KEY" not in inspected
    assert "ssh-ed25519" not in inspected
    assert console.run("reap", "--run", finished.document["run_id"]).status == 0
    assert docker_engine.objects() == set()


def test_reap_leaves_containers_with_foreign_or_malformed_labels_alone(
    docker_engine: Engine, console: Console
) -> None:
    """Anybody who may use the daemon may write our labels."""
    cluster = cluster_file(console, docker_engine, 1)
    label = "seatrial.run-id"
    strange = {
        "a-path": {label: "../../etc"},
        "a-terminal": {label: "\x1b[31mred"},
        "no-expiry": {
            label: "run-of-another",
            "seatrial.owner": "other/1",
            "seatrial.expires": "soon",
        },
        "a-node": {label: "run-of-another", "seatrial.node": "node-" + "9" * 5000},
    }
    for name, labels in strange.items():
        options = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
        lane.podman("create", "--name", name, *lane.LIMITS, *options, docker_engine.image)
    reaped = console.run("reap", cluster)
    assert reaped.status == 0, reaped.output
    assert reaped.output.isprintable() or "\x1b" not in reaped.output
    assert docker_engine.objects() == set(strange)
    lane.podman("rm", "--force", *strange)


def test_two_concurrent_runs_do_not_interfere(docker_engine: Engine, console: Console) -> None:
    suite = console.suite(**PATIENT)
    files = [cluster_file(console, docker_engine, 2, name) for name in ("left", "right")]
    started = [console.start("run", file, "--suite", suite, "--out", file.stem) for file in files]
    ended = [(process.communicate(timeout=PATIENCE_S), process.returncode) for process in started]
    assert [status for _, status in ended] == [0, 0], ended


def test_a_container_that_somebody_removes_is_not_blamed(
    docker_engine: Engine, console: Console
) -> None:
    sweep = {"min_bytes": "1M", "max_bytes": "16M", "iterations": 10000}
    long = {"operations": ["all_reduce"], "cpu": sweep, "gpu": sweep, "timeout_s": 120}
    suite = console.suite(**PATIENT, collectives=long)
    process = console.start(
        "run", cluster_file(console, docker_engine, 2), "--suite", suite, "--out", "out"
    )
    log = console.folder / "out" / "logs" / "all_reduce.log"
    until(lambda: log.exists() or process.poll() is not None)
    lane.podman(
        "rm",
        "--force",
        "--time",
        "0",
        next(name for name in docker_engine.objects() if "node-1" in name),
    )
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3, f"{out}\n{err}"
    assert "the container of node-1 is gone" in out.splitlines()[-1]


def test_a_limit_that_the_host_refuses_is_named_by_the_run_and_by_doctor(
    docker_engine: Engine, console: Console
) -> None:
    cluster = cluster_file(console, docker_engine, 2, ulimits={"nofile": 2**40})
    diagnosed = console.run("doctor", cluster)
    assert diagnosed.status == 1, diagnosed.output
    assert "start a container for a trial" in diagnosed.out
    finished = console.check(cluster, console.suite())
    assert finished.status == 3, finished.output
    assert "Docker: start seatrial-" in finished.out.splitlines()[-1]


def test_doctor_finds_nothing_missing(docker_engine: Engine, console: Console) -> None:
    diagnosed = console.run("doctor", cluster_file(console, docker_engine, 2))
    assert "ok      platform docker" in diagnosed.out
