"""The platform this-machine: the promises of every platform, and what is its own."""

import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import LaunchError
from seatrial.model.testbed import Testbed
from seatrial.platforms import Platform, platform_for
from seatrial.remote.command import run_command
from seatrial.remote.ssh import connected
from tests.contract.promises import Promises
from tests.quick_run import quick_run
from tests.site import free_port

ROOT = Path(__file__).parents[2]
UID = 12345
# Wherever it lies
READS_THIS_PYTHON = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """With a folder and a port of its own, as another run may have this machine."""
    described = {"nodes": 1, "ssh_port": free_port(), "slots_per_node": 2}
    return quick_run(
        tmp_path, **described, platform={"kind": "this-machine", "folder": str(tmp_path)}
    )


class TestPromises(Promises):
    """What every platform promises, as far as one node can keep it; and what is its own."""

    def test_node_is_this_machine_and_a_second_run_or_user_is_refused(
        self, launched: Testbed, platform: Platform, run: Run
    ) -> None:
        (node,) = launched.nodes
        with connected(launched, node, 10) as transport:
            shown = run_command(
                transport, "hostname; id -un; echo $SEATRIAL_SLACK_TOKEN", timeout_s=120
            ).output.split()
            ranks = run_command(
                transport,
                "mpirun --allow-run-as-root --oversubscribe -np 2 hostname",
                timeout_s=120,
            )
        assert shown == [socket.gethostname(), launched.user]
        assert ranks.output.split() == [socket.gethostname()] * 2
        listening = subprocess.run(
            ["ss", "-Htln", f"sport = :{node.port}"], capture_output=True, text=True, check=True
        )
        assert {line.split()[3] for line in listening.stdout.splitlines()} == {
            f"127.0.0.1:{node.port}"
        }
        second = Run(f"{run.run_id}-b", run.cluster, run.suite, run.out)
        try:
            with pytest.raises(LaunchError, match=run.run_id):
                platform.launch(second)
        finally:
            platform.teardown(second.run_id)


def test_unprivileged_user_can_launch_and_tear_down(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can become somebody else")
    folder = Path("/tmp") / f"seatrial-plain-{secrets.token_hex(4)}"
    folder.mkdir()
    os.chown(folder, UID, UID)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text(
        f"{Path('/etc/passwd').read_text()}plain:x:{UID}:{UID}::{folder}:/bin/sh\n"
    )
    program = (
        "import sys; from tests.integration.test_this_machine import plain; plain(sys.argv[1])"
    )
    become = shlex.join(
        ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", *READS_THIS_PYTHON]
    )
    python = shlex.join([sys.executable, "-c", program, str(folder)])
    # A bind mount would go as soon as somebody replaces this machine's /etc/passwd.
    script = (
        f"mount -t overlay -o lowerdir={tmp_path}/etc:/etc overlay /etc && exec {become} {python}"
    )
    home = {
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "PATH": os.environ["PATH"],
    }
    argv = ["unshare", "--mount", "sh", "-c", script]
    try:
        done = subprocess.run(
            argv, cwd=ROOT, env=home, capture_output=True, text=True, timeout=120, check=False
        )
        left = [path.name for path in folder.iterdir() if path.name.startswith("seatrial-")]
    finally:
        shutil.rmtree(folder)
    assert done.stdout.split() == ["plain", "gone"], done.stderr
    assert left == []


def plain(folder: str) -> None:
    """What the plain user runs: up, one command, down."""
    fields = {"name": "test", "nodes": 1, "platform": {"kind": "this-machine", "folder": folder}}
    run = Run("plain", Cluster.model_validate(fields), load_suite("quick"), Path(folder))
    platform = platform_for(run.cluster)
    try:
        testbed = platform.launch(run)
        with connected(testbed, testbed.head, 10) as transport:
            print(run_command(transport, "id -un", timeout_s=120).output.strip())
    finally:
        platform.teardown(run.run_id)
    print("left" if platform.leftovers() else "gone")
