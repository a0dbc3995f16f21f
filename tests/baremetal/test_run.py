"""`seatrial run` on hosts that are up: whole runs, as root and as a plain user, and what goes
wrong.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.config.run import Run
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms import platform_for
from seatrial.remote.node_setup import set_up_node
from seatrial.runs.login import ssh_argv
from tests.baremetal.conftest import NAMES, run_on, up
from tests.baremetal.hosts import USER, Hosts
from tests.e2e.conftest import Console
from tests.quick_run import launched
from tests.site import PATIENCE_S

TRAINING = {"steps": 5, "batch_per_rank": 2, "min_loss_drop": 0.01, "timeout_s": 300}
CHAIN = {"connectivity": {"timeout_s": 60}, "training": TRAINING}
LOCK = "/tmp/seatrial.lock"


def refused(run: Run) -> Reason:
    """Why the launch failed; everything is taken down."""
    with pytest.raises(SeatrialError) as caught, launched(run):
        pass
    return caught.value.reason


@pytest.mark.gate
def test_run_passes_for_an_unprivileged_user_with_a_host_behind_a_jump_host(
    console: Console, hosts: Hosts, settings: dict[str, Any]
) -> None:
    """gpu-3 is reached through gpu-0 alone, and there as root; the run's sshd has ports that a
    plain user may take.
    """
    hosts.hide("gpu-3")
    own = {"gpu-3": {"user": "root", "jump": "gpu-0"}}
    platform = {**settings, "user": USER, "host_settings": own}
    finished = console.check(console.cluster(4, platform=platform), console.suite(**CHAIN))
    assert finished.status == 0, finished.output
    assert {check["name"]: check["verdict"] for check in finished.document["checks"]} == {
        "connectivity": "pass",
        "collectives": "pass",
        "training": "pass",
    }
    ports = {node["name"]: node["port"] for node in finished.document["nodes"]}
    assert ports["gpu-3"] == 222
    assert min(ports[name] for name in NAMES[:3]) > 1024


def test_qualify_tests_only_hosts_named_on_the_command_line(
    console: Console, hosts: Hosts, settings: dict[str, Any]
) -> None:
    file = console.cluster(4, platform=settings, qualify={})
    finished = console.run("qualify", file, "gpu-2")
    assert finished.status == 0, finished.output
    assert finished.out.startswith("gpu-2: pass (not-compared), run ")
    assert console.run("qualify", file).out.startswith("pass: no node was tested")


def test_private_keys_on_a_host_are_unreadable_for_other_users(run: Run, hosts: Hosts) -> None:
    as_user = ["setpriv", f"--reuid={USER}", "--regid=12345", "--clear-groups"]
    python = f"-path {sys.prefix} -prune"  # a clone of the repository may lie in /tmp
    files = (
        f"find /tmp /home /var/tmp {python} -o -readable -type f -exec cat {{}} + 2>/dev/null; true"
    )
    with launched(run):
        texts = [
            hosts.on("gpu-1", "sh", "-c", "cat /proc/[0-9]*/cmdline"),
            hosts.on("gpu-1", "sh", "-c", "cat /proc/[0-9]*/environ"),
            hosts.on("gpu-1", *as_user, "sh", "-c", files),
        ]
        folders = hosts.on("gpu-1", "stat", "-c", "%a", f"/tmp/seatrial-{run.run_id}").split()
    assert all(texts)
    assert not any("PRIVATE KEY" in text for text in texts)
    assert folders == ["700"]


def test_a_person_logs_in_behind_a_jump_host(
    settings: dict[str, Any], hosts: Hosts, tmp_path: Path
) -> None:
    hosts.hide("gpu-3")
    with launched(
        run_on({**settings, "host_settings": {"gpu-3": {"jump": "gpu-1"}}}, tmp_path)
    ) as testbed:
        argv = ssh_argv(testbed, testbed.nodes[3], ("hostname",), terminal=False)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "gpu-3"), done.stderr


class HostsOfOldOpenSSH(Hosts):
    """Whose sshd does not know the option SetEnv, as before release 7.8."""

    def environment(self, name: str) -> dict[str, str]:
        sshd = self.folder / "old" / "sshd"
        sshd.parent.mkdir(exist_ok=True)
        refusal = "echo 'command-line: line 0: Bad configuration option: SetEnv' >&2; exit 255"
        sshd.write_text(
            f'#!/bin/sh\ncase "$*" in *SetEnv*) {refusal} ;; esac\nexec /usr/sbin/sshd "$@"\n'
        )
        sshd.chmod(0o755)
        return {"PATH": f"{sshd.parent}:/usr/local/bin:/usr/bin:/bin"}


def test_launch_works_with_an_old_sshd_without_setenv(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    hosts = HostsOfOldOpenSSH(NAMES[:2])
    with up(hosts):
        platform = {
            **settings,
            "hosts": ["gpu-[0-1]"],
            "ssh_config": str(hosts.folder / "ssh_config"),
        }
        with launched(run_on(platform, tmp_path, nodes=2)) as testbed:
            assert [node.port for node in testbed.nodes] == [222, 222]
            for node in testbed.nodes:
                set_up_node(testbed, node, 60).transport.close()


# --- host keys ---


def test_a_host_whose_key_is_unknown_is_refused(run: Run, hosts: Hosts) -> None:
    hosts.know({hosts.address(name): hosts.keys[name] for name in NAMES[:3]})
    reason = refused(run)
    assert reason.code == "baremetal-host-key-unknown"
    assert reason.sentence.startswith(
        f"gpu-3: the host key of {hosts.address('gpu-3')} is not in {hosts.folder}/known_hosts; "
    )
    assert f"`ssh-keyscan {hosts.address('gpu-3')} | ssh-keygen -lf -`" in reason.sentence


def test_hashed_known_hosts_and_host_certificates_are_accepted(run: Run, hosts: Hosts) -> None:
    """known_hosts as `ssh-keygen -H` leaves it; gpu-3 proves itself by a certificate."""
    known = hosts.folder / "known_hosts"
    hosts.know({hosts.address(name): hosts.keys[name] for name in NAMES[:3]})
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert hosts.address("gpu-0") not in known.read_text()
    with known.open("a") as file:
        file.write(f"@cert-authority {hosts.address('gpu-3')} {hosts.certify('gpu-3')}\n")
    with launched(run) as testbed:
        assert [node.name for node in testbed.nodes] == list(NAMES)


def test_a_jump_host_with_an_unknown_key_is_refused(
    settings: dict[str, Any], hosts: Hosts, tmp_path: Path
) -> None:
    """Whatever the user's configuration says."""
    hosts.know({hosts.address(name): hosts.keys[name] for name in NAMES if name != "gpu-1"})
    config = hosts.folder / "ssh_config"
    config.write_text("StrictHostKeyChecking no\nUpdateHostKeys yes\n" + config.read_text())
    run = run_on({**settings, "hosts": ["gpu-[2-3]"], "jump": "gpu-1"}, tmp_path, nodes=2)
    reason = refused(run)
    assert reason.code == "baremetal-host-key-unknown"
    assert f"the host key of {hosts.address('gpu-1')}" in reason.sentence
    assert hosts.address("gpu-1") not in (hosts.folder / "known_hosts").read_text()


# --- one run at a time ---


def test_a_second_run_is_refused_and_names_it(
    run: Run, settings: dict[str, Any], hosts: Hosts, tmp_path: Path
) -> None:
    with launched(run) as testbed:
        second = run_on(
            {**settings, "hosts": ["gpu-1"]}, tmp_path / "second", nodes=1, slots_per_node=2
        )
        reason = refused(second)
        assert platform_for(second.cluster).missing() == [reason]
        assert all(
            not isinstance(set_up_node(testbed, node, 60), Exception) for node in testbed.nodes
        )
    assert reason.sentence.startswith(f"gpu-1: run {run.run_id} of root since 20")
    assert platform_for(second.cluster).missing() == []


def test_a_lock_of_another_user_is_named(
    run: Run, settings: dict[str, Any], hosts: Hosts, tmp_path: Path
) -> None:
    """Root's run has the host, then a lock file of a run that was killed with everything lies
    there.
    """
    second = run_on({**settings, "user": USER}, tmp_path / "second")
    with launched(run):
        assert f"run {run.run_id} of root since 20" in refused(second).sentence
    hosts.on("gpu-2", "sh", "-c", f"echo stale > {LOCK}; chmod 644 {LOCK}")
    reason = refused(second)
    hosts.on("gpu-2", "rm", LOCK)
    assert reason.sentence == f"gpu-2: {LOCK} belongs to user root, whose run is over: remove it"


# --- doctor ---


def test_doctor_names_what_each_host_lacks(
    settings: dict[str, Any], hosts: Hosts, tmp_path: Path
) -> None:
    hosts.kill_host("gpu-0")
    hosts.on("gpu-1", "mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", "/mnt")
    known = {hosts.address(name): hosts.keys[name] for name in NAMES[:3]}
    hosts.know(known)
    lacking = {**settings, "folder": "/mnt", "login_timeout_s": 5}
    cluster = run_on(lacking, tmp_path, mpi={"mpirun": "/opt/none/mpirun"}).cluster
    problems = [
        problem for problem in platform_for(cluster).missing() if "gpu-2" not in problem.sentence
    ]
    assert [problem.code for problem in problems] == [
        "baremetal-unreachable",
        "baremetal-host-lacks",
        "baremetal-folder-unusable",
        "baremetal-host-key-unknown",
    ]
    assert problems[1].sentence == "gpu-1: /opt/none/mpirun missing or cannot be run"
    assert problems[2].sentence == "gpu-1: /mnt does not let programs run (it is mounted noexec)"
