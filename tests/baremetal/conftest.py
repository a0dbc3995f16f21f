"""The lane of hosts that are up: namespaces with sshd of their own; only when it is asked for by
its path.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seatrial.config.run import Run
from tests.baremetal.hosts import Hosts, lacking
from tests.e2e.conftest import Console, console, prefect_server, until
from tests.quick_run import quick_run
from tests.site import PATIENCE_S

__all__ = ["console", "prefect_server"]

NAMES = ("gpu-0", "gpu-1", "gpu-2", "gpu-3")


@pytest.fixture
def hosts(nothing_left: None) -> Iterator[Hosts]:
    """Four of them; whatever a test does, nothing of a run is left on those that are up, and
    here.
    """
    if os.geteuid():
        pytest.skip("only root can make hosts of namespaces")
    if packages := lacking():
        pytest.skip(f"missing: {packages}")
    hosts = Hosts(NAMES)
    with up(hosts):
        yield hosts


@contextmanager
def up(hosts: Hosts) -> Iterator[None]:
    """Within the block; nothing of a run may be left at its end."""
    hosts.start()
    try:
        yield
        left = settled(hosts)
    finally:
        hosts.stop()
    assert left == set()


def settled(hosts: Hosts) -> set[str]:
    """What is left once the processes that are ending have ended: on a busy machine that takes its
    time.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (left := hosts.left()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


@pytest.fixture
def settings(hosts: Hosts) -> dict[str, Any]:
    """The section `platform` of a cluster file for all hosts."""
    return {
        "kind": "baremetal",
        "hosts": ["gpu-[0-3]"],
        "ssh_config": str(hosts.folder / "ssh_config"),
        "python": sys.executable,
        "login_timeout_s": 5,
    }


@pytest.fixture
def run(settings: dict[str, Any], tmp_path: Path) -> Run:
    return run_on(settings, tmp_path)


def run_on(settings: dict[str, Any], folder: Path, nodes: int = len(NAMES), **fields: Any) -> Run:
    """A run of as many nodes as the settings name hosts."""
    return quick_run(folder, nodes=nodes, platform=settings, **fields)


def kill_and_reap(
    console: Console, cluster: Path, hosts: Hosts, is_up: Callable[[], bool]
) -> set[str]:
    """Kill a run once it is up; what `seatrial reap` leaves on the hosts."""
    process = console.start("run", cluster, "--suite", console.suite(), "--out", "out")
    until(lambda: is_up() or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert hosts.left()
    reaped = console.run("reap", cluster)
    assert reaped.status == 0, reaped.output
    return hosts.left()
