"""Faults of devices on real nodes: each is named, within its time limit, and the other nodes are
measured.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.contract import CheckContext
from seatrial.checks.devices.check import devices
from seatrial.checks.devices.section import Devices, Disk
from seatrial.config.run import Run, setup_of
from seatrial.model.result import Check
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.node_setup import set_up_node
from seatrial.remote.ssh import on_each
from seatrial.tasks.check import compare
from tests.integration.conftest import LocalTestbed, Up
from tests.stored_nights import as_before
from tests.suspects import suspect_names


def check_devices(run: Run, testbed: Testbed, **section: Any) -> tuple[Check, list[str]]:
    """The check, and the names of the nodes that are left."""
    on_each(testbed.nodes, lambda node: set_up_node(testbed, node, 60).transport.close())
    suite = run.suite.model_copy(
        update={"devices": Devices(**{"seconds": 0.05, "timeout_s": 600, **section})}
    )
    result = devices(CheckContext(Run(run.run_id, run.cluster, suite, run.out), testbed))
    return result.check, [node.name for node in result.testbed.nodes]


def test_healthy_nodes_compute_alike_and_a_disk_is_left_as_it_was(shared: Up) -> None:
    run, testbed = shared
    folders = [Path(testbed.workdir).parent / "nodes" / node.name / "tmp" for node in testbed.nodes]
    before = [sorted(folder.rglob("*")) for folder in folders]
    check, _ = check_devices(
        run, testbed, rounds=3, memory_share=0.9, disk=Disk(bytes=8 << 20, seconds=1)
    )
    assert (check.verdict, check.suspects) == (Verdict.PASS, ())
    assert [sorted(folder.rglob("*")) for folder in folders] == before
    metrics = {(m.subject.name, m.metric) for m in check.measurements}
    assert metrics >= {
        (node.name, metric)
        for node in testbed.nodes
        for metric in ("disk_write", "disk_read", "memory_tested")
    }


def named(check: Check) -> dict[str, str | None]:
    """The code of the evidence by suspect."""
    return {suspect.name: suspect.evidence.code for suspect in check.suspects}


def measured(check: Check) -> set[str]:
    return {m.subject.name for m in check.measurements}


def test_nodes_that_compute_wrongly_are_named(local_testbed: LocalTestbed) -> None:
    """Each in its way; a fault of a device that the node does not have changes nothing."""
    faults = [
        {"node": "node-1", "computes": "wrong"},
        {"node": "node-2", "computes": "unstable", "device": "cpu"},
        {"node": "node-3", "computes": "wrong", "device": "gpu-0"},
    ]
    with local_testbed(nodes=5, faults=faults) as (run, testbed):
        check, left = check_devices(run, testbed)
    assert check.verdict is Verdict.CORRUPT
    assert named(check) == {"node-1": "digest-differs", "node-2": "wrong-result"}
    assert left == ["node-0", "node-3", "node-4"]


@pytest.mark.slow
def test_a_node_with_a_busy_processor_is_the_slow_peer(local_testbed: LocalTestbed) -> None:
    with local_testbed(nodes=4, faults=[{"node": "node-2", "cpu_share": 0.015}]) as (run, testbed):
        check, _ = check_devices(run, testbed, timeout_s=280)
    assert check.verdict is Verdict.PASS
    (judged,) = compare([check], setup_of(run.cluster), repeat=as_before)
    assert judged.verdict in (Verdict.DEGRADED, Verdict.FAIL)
    assert set(suspect_names(judged)) == {"node-2"}


@contextmanager
def signalled(testbed: Testbed, node: str, number: signal.Signals) -> Iterator[None]:
    """The probe of that node gets the signal as soon as it runs."""
    over = threading.Event()

    def send() -> None:
        while not over.wait(0.01):
            if pid := probe_of(testbed, node):
                os.kill(pid, number)
                return

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def probe_of(testbed: Testbed, node: str) -> int | None:
    """The process of the probe `devices` on that local node, which its folder for temporary files
    tells.
    """
    temporary = f"{Path(testbed.workdir).parent}/nodes/{node}/tmp\0".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            ours = len(words) > 1 and words[1].endswith(b"/devices.py") and b"python" in words[0]
            if ours and temporary in (folder / "environ").read_bytes():
                return int(folder.name)
        except OSError:  # it has just ended
            continue
    return None


def test_a_probe_that_is_killed_is_named(shared: Up) -> None:
    run, testbed = shared
    with signalled(testbed, "node-1", signal.SIGKILL):
        check, left = check_devices(run, testbed, seconds=1)
    assert (check.verdict, named(check)) == (Verdict.FAIL, {"node-1": "probe-killed"})
    assert left == ["node-0", "node-2"] == sorted(measured(check))


@pytest.mark.slow
def test_a_probe_that_is_stopped_is_named_within_its_time(shared: Up) -> None:
    run, testbed = shared
    limit_s = 50
    with signalled(testbed, "node-1", signal.SIGSTOP):
        started = time.monotonic()
        check, left = check_devices(run, testbed, timeout_s=limit_s)
        assert time.monotonic() - started < limit_s + 60
    assert (check.verdict, named(check)) == (Verdict.FAIL, {"node-1": "probe-timeout"})
    assert left == ["node-0", "node-2"] == sorted(measured(check))
