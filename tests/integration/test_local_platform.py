"""The local platform against the real kernel: namespaces, sshd on port 222, faults, teardown."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.model.errors import LaunchError
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms import state as states
from seatrial.platforms.local.platform import PLATFORM
from seatrial.remote.command import run_command
from seatrial.remote.ssh import HostKeyError, connected, on_each
from seatrial.tasks.launch import collect
from tests.conftest import leftovers
from tests.e2e.conftest import until
from tests.integration.conftest import LocalTestbed, Up


def say(testbed: Testbed, node: Node, command: str) -> str:
    with connected(testbed, node, 10) as transport:
        done = run_command(transport, command, timeout_s=120)
    assert done.exit_status == 0, done.output
    return done.output.strip()


def test_every_node_has_its_own_hostname_tmpdir_and_namespaces(shared: Up) -> None:
    run, testbed = shared
    names = on_each(testbed.nodes, lambda node: say(testbed, node, "hostname"))
    assert names == {"node-0": "node-0", "node-1": "node-1", "node-2": "node-2"}
    assert say(testbed, testbed.nodes[2], "ssh node-1 hostname") == "node-1"
    assert say(testbed, testbed.nodes[0], "getent hosts node-2").split() == [
        testbed.nodes[2].address,
        "node-2",
    ]
    assert len({say(testbed, node, "echo $TMPDIR") for node in testbed.nodes}) == 3
    assert say(testbed, testbed.head, "ps -e -o pid= | head -1").strip() == "1"
    listed = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout
    names_here = {line.split()[0] for line in listed.splitlines() if run.run_id in line}
    assert names_here == {f"seatrial-{run.run_id}-{node.name}" for node in testbed.nodes}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may replace files in /etc")
def test_a_package_that_adds_a_user_does_not_disturb_the_nodes(shared: Up) -> None:
    """It replaces /etc/passwd, and the kernel undoes whatever is mounted on the file that was
    there, on all nodes.
    """
    _, testbed = shared
    for name in ("passwd", "hosts"):
        replace_with_itself(Path("/etc") / name)
    assert say(testbed, testbed.head, "ssh node-1 hostname") == "node-1"


def replace_with_itself(file: Path) -> None:
    copy = file.with_name(f".{file.name}.seatrial")
    shutil.copy2(file, copy)
    shutil.chown(copy, file.owner(), file.group())
    try:
        copy.replace(file)
    except OSError:  # a container's own mount
        copy.unlink()


def test_two_testbeds_are_isolated_and_each_ends_with_its_processes(
    local_testbed: LocalTestbed,
) -> None:
    with local_testbed(nodes=2) as (run, first), local_testbed(nodes=2) as (_, second):
        # The same addresses, each in its own world
        assert first.head.address == second.head.address
        assert first.head.host_key != second.head.host_key
        assert (
            say(first, first.head, "hostname") == say(second, second.head, "hostname") == "node-0"
        )
        with pytest.raises(HostKeyError):
            say(first, second.head, "true")
        for testbed, seconds in ((first, "31415"), (second, "27182")):
            say(testbed, testbed.head, f"setsid sleep {seconds} >/dev/null 2>&1 & echo started")
        assert at_work("sleep 31415") and at_work("sleep 27182")
        PLATFORM.teardown(run.run_id)
        assert not at_work("sleep 31415") and at_work("sleep 27182")
        PLATFORM.teardown(run.run_id)  # again: nothing to do
    assert not at_work("sleep 27182")


def at_work(command: str) -> bool:
    return (
        subprocess.run(["pgrep", "-f", command], capture_output=True, check=False).returncode == 0
    )


def test_launch_fails_when_no_node_answers(local_testbed: LocalTestbed) -> None:
    with (
        pytest.raises(LaunchError, match="no node's sshd answers on port 222"),
        local_testbed(nodes=1, faults=[{"node": "node-0", "sshd": "stopped"}]),
    ):
        pass


@pytest.mark.slow
def test_64_nodes_reach_each_other(local_testbed: LocalTestbed) -> None:
    """How long it takes is benchmarks/local_nodes.py's business."""
    with local_testbed(nodes=64) as (_, testbed):
        names = on_each(testbed.nodes, lambda node: say(testbed, node, "hostname"))
        assert names == {f"node-{i}": f"node-{i}" for i in range(64)}


_OWNER = """
    import sys, time
    from pathlib import Path
    from seatrial.platforms.local.platform import PLATFORM
    from tests.integration.conftest import local_run
    run = local_run(Path("{out}"), 2)
    PLATFORM.launch(run)
    print(run.run_id, flush=True)
    time.sleep(120)
"""


@pytest.fixture
def owner(tmp_path: Path, nothing_left: None) -> "Iterator[subprocess.Popen[str]]":
    """Another process that has a testbed up and waits."""
    program = textwrap.dedent(_OWNER.format(out=tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _run_id(owner: "subprocess.Popen[str]") -> str:
    assert owner.stdout
    return owner.stdout.readline().strip()


def test_a_killed_owner_takes_its_nodes_along(owner: "subprocess.Popen[str]") -> None:
    """SIGKILL lets nobody clean up; the keeper notices that its owner is gone."""
    run_id = _run_id(owner)
    assert any(run_id in left for left in leftovers())
    owner.kill()
    until(lambda: not any(run_id in left for left in leftovers()))


def test_reap_removes_what_a_killed_run_left(owner: "subprocess.Popen[str]") -> None:
    """The keeper killed too: only the state folder says what was there."""
    run_id = _run_id(owner)
    # Alive: nobody else's to remove
    assert run_id not in {leftover.run_id for leftover in PLATFORM.leftovers()}
    keeper = states.read_owner(states.root_folder("local") / run_id, "keeper")
    assert keeper
    os.kill(keeper.pid, signal.SIGKILL)
    owner.kill()
    owner.wait()
    assert run_id in {leftover.run_id for leftover in PLATFORM.leftovers()}
    PLATFORM.teardown(run_id)
    assert not any(run_id in left for left in leftovers())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees namespaces by name")
def test_foreign_namespace_with_a_seatrial_name_is_left_alone() -> None:
    """A name shows no owner, and teardown kills the processes of a namespace."""
    name = "seatrial-other-node-0"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        assert "other" not in {leftover.run_id for leftover in PLATFORM.leftovers()}
        PLATFORM.teardown("other")
        assert Path("/run/netns", name).exists()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def test_nccl_debug_files_are_collected_over_a_nondefault_ssh_port(
    local_testbed: LocalTestbed,
) -> None:
    logs_of_nccl = {"NCCL_DEBUG_FILE": "/tmp/%h-seatrial-test-%p.log"}
    with local_testbed(nodes=2, ssh_port=2022, env=logs_of_nccl) as (run, testbed):
        assert say(testbed, testbed.head, "ssh node-1 'echo $SSH_CONNECTION'").split()[-1] == "2022"
        for node in testbed.nodes:
            say(testbed, node, "echo NET/IB on $(hostname) > /tmp/$(hostname)-seatrial-test-7.log")
        try:
            collect(run, testbed)
        finally:
            for node in testbed.nodes:
                say(testbed, node, "rm /tmp/$(hostname)-seatrial-test-7.log")
        logs = {path.name: path.read_text() for path in (run.logs / "nccl-debug").iterdir()}
    assert set(logs) == {"node-0.log", "node-1.log"}
    assert logs["node-1.log"].split("\n")[:2] == [
        "# /tmp/node-1-seatrial-test-7.log",
        "NET/IB on node-1",
    ]
