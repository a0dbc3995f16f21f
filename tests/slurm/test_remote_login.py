"""A login node that is another machine: Slurm's commands, sshd of the nodes and srun through its
sshd.
"""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.platforms import platform_for
from seatrial.remote.mpi import mpirun
from seatrial.remote.node_setup import set_up_node
from seatrial.text.redact import Secrets
from tests.e2e.conftest import Console
from tests.quick_run import launched, quick_run
from tests.site import PATIENCE_S
from tests.slurm.cluster import USER, SlurmCluster
from tests.slurm.login_node import LoginNode, jump_host, login_node
from tests.slurm.test_run import PATIENT


@pytest.fixture
def login(slurm: SlurmCluster, tmp_path: Path) -> Iterator[LoginNode]:
    with login_node(slurm, tmp_path) as node:
        yield node


@pytest.fixture
def elsewhere(
    login: LoginNode, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The section `platform` of a cluster file on a machine that has no Slurm of its own."""
    monkeypatch.setenv("SLURM_CONF", "/nowhere/slurm.conf")
    return {**settings, **login.fields()}


@pytest.mark.parametrize("launch", ["sshd", "srun"])
def test_sessions_ranks_and_logs_go_through_the_login_node(
    elsewhere: dict[str, Any], tmp_path: Path, launch: str
) -> None:
    run = quick_run(
        tmp_path, nodes=2, platform={**elsewhere, "launch": launch, "mpi_plugin": "none"}
    )
    with launched(run) as testbed:
        with testbed.dial(testbed.head, 20) as stream:
            assert stream.family == socket.AF_UNIX  # to an ssh, not to the node
        for node in testbed.nodes:
            set_up_node(testbed, node, 30).transport.close()
        result = mpirun(testbed, ["hostname"], timeout_s=PATIENCE_S)
        assert {line for line in result.lines if not line.startswith("srun: ")} == {
            node.name for node in testbed.nodes
        }
        platform_for(run.cluster).collect(run.run_id, tmp_path / "logs", 30, Secrets.of({}))
        assert (tmp_path / "logs" / "nodes" / f"{testbed.head.name}.log").exists()


def test_the_login_node_is_reached_through_a_jump_host(
    elsewhere: dict[str, Any], login: LoginNode, tmp_path: Path
) -> None:
    """Which knows nothing of Slurm. The nodes are reached through both."""
    (tmp_path / "jump").mkdir()
    with jump_host(login, tmp_path / "jump") as jump:
        platform = {**elsewhere, "jump": f"root@localhost:{jump.port}"}
        with launched(quick_run(tmp_path, nodes=2, platform=platform)) as testbed:
            logins = jump.log.count("Accepted publickey")
            for node in testbed.nodes:
                set_up_node(testbed, node, 60).transport.close()
            assert jump.log.count("Accepted publickey") == logins + 2 > 2
        assert login.log.count("Accepted publickey") == jump.log.count("Accepted publickey")


def test_a_plain_user_of_the_cluster_has_nodes_of_their_own(
    slurm: SlurmCluster, elsewhere: dict[str, Any], tmp_path: Path
) -> None:
    """No root on the login node or on the nodes: sshd of the run has ports that a plain user may
    take.
    """
    platform = {
        **elsewhere,
        "user": USER,
        "folder": f"{slurm.shared}/{USER}",
        "python": "/usr/bin/python3",
    }
    with launched(quick_run(tmp_path, nodes=2, platform=platform)) as testbed:
        assert (testbed.user, min(node.port for node in testbed.nodes) > 1024) == (USER, True)
        for node in testbed.nodes:
            set_up_node(testbed, node, 60).transport.close()
        result = mpirun(testbed, ["sh", "-c", "echo $(id -un) $(hostname)"], timeout_s=PATIENCE_S)
        assert set(result.lines) == {f"{USER} {node.name}" for node in testbed.nodes}
    assert list((slurm.shared / USER).iterdir()) == []


def test_run_passes_and_its_kept_node_accepts_ssh(
    slurm_console: Console, elsewhere: dict[str, Any], slurm: SlurmCluster
) -> None:
    del slurm_console.environment["SLURM_CONF"]
    cluster = slurm_console.cluster(2, platform=elsewhere, keep="always")
    finished = slurm_console.check(cluster, slurm_console.suite(**PATIENT))
    assert finished.status == 0, finished.output
    node = finished.document["nodes"][1]["name"]
    temporary = slurm_console.folder / "tmp"
    temporary.mkdir()
    slurm_console.environment["TMPDIR"] = str(temporary)
    logged_in = slurm_console.run("ssh", "out", node, "--", "hostname")
    assert (logged_in.status, logged_in.out.strip()) == (0, node), logged_in.output
    # `seatrial ssh` has become ssh, which removes nothing of ours
    assert list(temporary.iterdir()) == []
    assert slurm_console.run("reap", "--run", finished.document["run_id"]).status == 0
