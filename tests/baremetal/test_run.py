"""`seatrial run` on hosts that are up: whole runs, as root and as a plain user, and what goes wrong."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from seatrial.config.run import Run
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import code_of
from seatrial.platforms import platform_for
from seatrial.platforms import state as states
from seatrial.remote.node_setup import set_up_node
from seatrial.remote.ssh import on_each
from seatrial.runs.login import ssh_argv
from tests.baremetal.conftest import NAMES, run_on, up
from tests.baremetal.hosts import USER, Hosts
from tests.e2e.conftest import Console, until

TRAINING = {"steps": 5, "batch_per_rank": 2, "min_loss_drop": 0.01, "timeout_s": 120}
CHAIN = {"connectivity": {"timeout_s": 60}, "training": TRAINING}
LOCK = "/tmp/seatrial.lock"


def launched_and_ended(run: Run) -> str:
    """Why the launch failed; everything is taken down."""
    platform = platform_for(run.cluster)
    try:
        with pytest.raises(SeatrialError) as caught:
            platform.launch(run)
    finally:
        platform.teardown(run.run_id)
    return caught.value.reason


def test_healthy_hosts_go_through_the_whole_chain(console: Console, hosts: Hosts, settings: dict[str, Any]) -> None:
    finished = console.check(console.cluster(4, platform=settings), console.suite(**CHAIN))
    assert finished.status == 0, finished.said
    assert {check["name"]: check["verdict"] for check in finished.document["checks"]} == {
        "connectivity": "pass",
        "collectives": "pass",
        "training": "pass",
    }
    assert [node["name"] for node in finished.document["nodes"]] == list(NAMES)
    assert {node["port"] for node in finished.document["nodes"]} == {222}


@pytest.mark.gate
def test_a_plain_user_behind_a_jump_host(console: Console, hosts: Hosts, settings: dict[str, Any]) -> None:
    """gpu-3 is reached through gpu-0 alone, and there as root; the run's sshd has ports that a plain user may take."""
    hosts.hide("gpu-3")
    own = {"gpu-3": {"user": "root", "jump": "gpu-0"}}
    platform = {**settings, "user": USER, "host_settings": own}
    finished = console.check(console.cluster(4, platform=platform), console.suite(connectivity={"timeout_s": 60}))
    assert finished.status == 0, finished.said
    ports = {node["name"]: node["port"] for node in finished.document["nodes"]}
    assert ports["gpu-3"] == 222
    assert min(ports[name] for name in NAMES[:3]) > 1024


@pytest.mark.parametrize("shown", ["processes", "environments", "files"])
def test_keys_are_for_the_user_alone(run: Run, hosts: Hosts, shown: str) -> None:
    looks = {
        "processes": "cat /proc/[0-9]*/cmdline",
        "environments": "cat /proc/[0-9]*/environ",
        "files": "find /tmp /home /var/tmp -readable -type f -exec cat {} + 2>/dev/null; true",
    }
    platform = platform_for(run.cluster)
    as_user = ["setpriv", f"--reuid={USER}", "--regid=12345", "--clear-groups"] if shown == "files" else []
    try:
        platform.launch(run)
        text = hosts.on("gpu-1", *as_user, "sh", "-c", looks[shown])
        folders = hosts.on("gpu-1", "stat", "-c", "%a", f"/tmp/seatrial-{run.run_id}").split()
    finally:
        platform.teardown(run.run_id)
    assert text
    assert "PRIVATE KEY" not in text
    assert folders == ["700"]


def test_a_person_logs_in_behind_a_jump_host(settings: dict[str, Any], hosts: Hosts, tmp_path: Path) -> None:
    hosts.hide("gpu-3")
    run = run_on({**settings, "host_settings": {"gpu-3": {"jump": "gpu-1"}}}, tmp_path)
    platform = platform_for(run.cluster)
    try:
        testbed = platform.launch(run)
        argv = ssh_argv(testbed, testbed.nodes[3], ("hostname",), terminal=False)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    finally:
        platform.teardown(run.run_id)
    assert (done.returncode, done.stdout.strip()) == (0, "gpu-3"), done.stderr


class HostsOfOldOpenSSH(Hosts):
    """Whose sshd does not know the option SetEnv, as before release 7.8."""

    def environment(self, name: str) -> dict[str, str]:
        sshd = self.folder / "old" / "sshd"
        sshd.parent.mkdir(exist_ok=True)
        refusal = "echo 'command-line: line 0: Bad configuration option: SetEnv' >&2; exit 255"
        sshd.write_text(f'#!/bin/sh\ncase "$*" in *SetEnv*) {refusal} ;; esac\nexec /usr/sbin/sshd "$@"\n')
        sshd.chmod(0o755)
        return {"PATH": f"{sshd.parent}:/usr/local/bin:/usr/bin:/bin"}


def test_an_sshd_that_knows_no_setenv_serves(settings: dict[str, Any], tmp_path: Path) -> None:
    hosts = HostsOfOldOpenSSH(NAMES[:2])
    with up(hosts):
        platform = {**settings, "hosts": ["gpu-[0-1]"], "ssh_config": str(hosts.folder / "ssh_config")}
        run = run_on(platform, tmp_path, nodes=2)
        try:
            testbed = platform_for(run.cluster).launch(run)
            assert [node.port for node in testbed.nodes] == [222, 222]
            for node in testbed.nodes:
                set_up_node(testbed, node, 60).transport.close()
        finally:
            platform_for(run.cluster).teardown(run.run_id)


# --- host keys ---


def test_a_host_whose_key_is_unknown_is_refused(run: Run, hosts: Hosts) -> None:
    hosts.know({hosts.address(name): hosts.keys[name] for name in NAMES[:3]})
    reason = launched_and_ended(run)
    assert code_of(reason) == "baremetal-host-key-unknown"
    assert reason.startswith(f"gpu-3: the host key of {hosts.address('gpu-3')} is not in {hosts.folder}/known_hosts; ")
    assert f"`ssh-keyscan {hosts.address('gpu-3')} | ssh-keygen -lf -`" in reason


def test_a_host_with_another_key_is_refused(run: Run, hosts: Hosts) -> None:
    keys = dict(hosts.keys, **{"gpu-2": hosts.keys["gpu-1"]})
    hosts.know({hosts.address(name): key for name, key in keys.items()})
    reason = launched_and_ended(run)
    address, file = hosts.address("gpu-2"), f"{hosts.folder}/known_hosts"
    assert reason == (
        f"gpu-2: {address} answers with another host key than {file} has; "
        f"compare with `ssh-keygen -lF {address} -f {file}`"
    )


def test_a_revoked_host_key_is_refused(run: Run, hosts: Hosts) -> None:
    with (hosts.folder / "known_hosts").open("a") as file:
        file.write(f"@revoked * {hosts.keys['gpu-1']}\n")
    assert code_of(launched_and_ended(run)) == "baremetal-host-key-revoked"


def test_hashed_names_and_certificates_count(run: Run, hosts: Hosts) -> None:
    """known_hosts as `ssh-keygen -H` leaves it; gpu-3 proves itself by a certificate."""
    known = hosts.folder / "known_hosts"
    hosts.know({hosts.address(name): hosts.keys[name] for name in NAMES[:3]})
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert hosts.address("gpu-0") not in known.read_text()
    with known.open("a") as file:
        file.write(f"@cert-authority {hosts.address('gpu-3')} {hosts.certify('gpu-3')}\n")
    platform = platform_for(run.cluster)
    try:
        assert [node.name for node in platform.launch(run).nodes] == list(NAMES)
    finally:
        platform.teardown(run.run_id)


def test_a_jump_host_is_no_less_strict(settings: dict[str, Any], hosts: Hosts, tmp_path: Path) -> None:
    """Whatever the user's configuration says."""
    hosts.know({hosts.address(name): hosts.keys[name] for name in NAMES if name != "gpu-1"})
    config = hosts.folder / "ssh_config"
    config.write_text("StrictHostKeyChecking no\nUpdateHostKeys yes\n" + config.read_text())
    run = run_on({**settings, "hosts": ["gpu-[2-3]"], "jump": "gpu-1"}, tmp_path, nodes=2)
    reason = launched_and_ended(run)
    assert code_of(reason) == "baremetal-host-key-unknown"
    assert f"the host key of {hosts.address('gpu-1')}" in reason
    assert hosts.address("gpu-1") not in (hosts.folder / "known_hosts").read_text()


# --- one run at a time ---


def test_a_second_run_names_the_first(run: Run, settings: dict[str, Any], hosts: Hosts, tmp_path: Path) -> None:
    platform = platform_for(run.cluster)
    try:
        testbed = platform.launch(run)
        second = run_on({**settings, "hosts": ["gpu-1"]}, tmp_path / "second", nodes=1, slots_per_node=2)
        reason = launched_and_ended(second)
        assert platform_for(second.cluster).missing() == [reason]
        assert all(not isinstance(set_up_node(testbed, node, 60), Exception) for node in testbed.nodes)
    finally:
        platform.teardown(run.run_id)
    assert reason.startswith(f"gpu-1: run {run.run_id} of root since 20")
    assert platform_for(second.cluster).missing() == []


def test_a_lock_of_another_user_names_them(run: Run, settings: dict[str, Any], hosts: Hosts, tmp_path: Path) -> None:
    """Root's run has the host, then a lock file of a run that was killed with everything lies there."""
    platform, second = platform_for(run.cluster), run_on({**settings, "user": USER}, tmp_path / "second")
    try:
        platform.launch(run)
        assert f"run {run.run_id} of root since 20" in launched_and_ended(second)
    finally:
        platform.teardown(run.run_id)
    hosts.on("gpu-2", "sh", "-c", f"echo stale > {LOCK}; chmod 644 {LOCK}")
    reason = launched_and_ended(second)
    hosts.on("gpu-2", "rm", LOCK)
    assert reason == f"gpu-2: {LOCK} belongs to user root, whose run is over: remove it"


# --- the end ---


def test_hosts_end_a_run_at_their_deadline(settings: dict[str, Any], hosts: Hosts, tmp_path: Path) -> None:
    """Nobody tells them to: as after the end of this machine. Also what has become a daemon."""
    run = run_on({**settings, "deadline_s": 10}, tmp_path)
    platform = platform_for(run.cluster)
    testbed = platform.launch(run)
    argv = ssh_argv(
        testbed, testbed.head, ("setsid", "-f", "sleep", "1000", "</dev/null", ">/dev/null", "2>&1"), terminal=False
    )
    subprocess.run(argv, check=True, timeout=60)
    assert "gpu-0: sleep 1000" in hosts.left()
    until(lambda: not hosts.left())
    assert testbed.blameless_reason(testbed.head) == "the hosts ended the run at its deadline (deadline_s: 10)"
    platform.teardown(run.run_id)


@pytest.mark.parametrize("victim", ["supervisor", "node.sh", "both"])
def test_nothing_is_left_when_a_process_of_the_run_is_killed(run: Run, hosts: Hosts, victim: str) -> None:
    platform = platform_for(run.cluster)
    try:
        platform.launch(run)
        if victim in ("supervisor", "both"):
            record = json.loads(hosts.on("gpu-1", "cat", f"/tmp/seatrial-{run.run_id}/supervisor.json"))
        if victim in ("node.sh", "both"):
            node = hosts.on("gpu-1", "pgrep", "-f", f"^sh -s seatrial {run.run_id}").split()
        pids = {"supervisor": lambda: [str(record["pid"])], "node.sh": lambda: node}
        chosen = [pid for name in pids if victim in (name, "both") for pid in pids[name]()]
        hosts.on("gpu-1", "kill", "-STOP", *chosen)
        hosts.on("gpu-1", "kill", "-KILL", *chosen)
        if victim != "both":  # one ends what the other has left, but for the files of the supervisor
            until(lambda: not any("sshd" in left for left in hosts.left_on("gpu-1")))
    finally:
        platform.teardown(run.run_id)
    assert hosts.left() == set()


def test_a_killed_run_is_reaped(console: Console, hosts: Hosts, settings: dict[str, Any]) -> None:
    cluster = console.cluster(4, platform=settings)
    process = console.start("run", cluster, "--suite", console.suite(), "--out", "out")
    until(lambda: len({left[:5] for left in hosts.left()}) == 4 or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert hosts.left()
    reaped = console.run("reap", cluster)
    assert reaped.status == 0, reaped.said
    assert hosts.left() == set()


def test_a_host_that_is_cut_off_is_named(console: Console, hosts: Hosts, settings: dict[str, Any]) -> None:
    """In the middle of the run. The verdict of the others stands, and the host clears itself."""
    cluster = console.cluster(4, platform={**settings, "deadline_s": 70})
    process = console.start("run", cluster, "--suite", console.suite(), "--out", "out")
    log = console.folder / "out" / "logs" / "run.log"
    until(lambda: process.poll() is not None or (log.exists() and "4 nodes, head gpu-0" in log.read_text()))
    hosts.set_link("gpu-2", "down")
    out, err = process.communicate(timeout=240)
    document = json.loads((console.folder / "out" / "run.json").read_text())
    assert process.returncode == 1, out + err
    assert {suspect["name"] for suspect in document["suspects"]} == {"gpu-2"}
    verdicts = {check["name"]: check["verdict"] for check in document["checks"]}
    assert (verdicts["connectivity"], verdicts["collectives"]) == ("fail", "pass")
    until(lambda: not hosts.left_on("gpu-2"))
    hosts.set_link("gpu-2", "up")
    assert console.run("reap", cluster).status == 0


def test_a_host_that_is_down_does_not_stop_the_others(run: Run, hosts: Hosts) -> None:
    hosts.kill_host("gpu-1")
    platform = platform_for(run.cluster)
    testbed = platform.launch(run)
    contacts = on_each(testbed.nodes, lambda node: set_up_node(testbed, node, 20))
    assert [name for name, contact in contacts.items() if isinstance(contact, Exception)] == ["gpu-1"]
    platform.teardown(run.run_id)


def test_a_host_that_cannot_be_cleared_is_named_and_tried_again(run: Run, hosts: Hosts) -> None:
    platform = platform_for(run.cluster)
    platform.launch(run)
    hosts.set_link("gpu-1", "down")
    with pytest.raises(
        SeatrialError, match=r"1 of 4 hosts not cleared: gpu-1: no login: .*timed out; they end the run"
    ):
        platform.teardown(run.run_id)
    folder = states.run_folder(run.run_id, "baremetal")
    assert not (folder / "id_ed25519").exists()
    assert {left[:5] for left in hosts.left()} == {"gpu-1"}
    hosts.set_link("gpu-1", "up")
    platform.teardown(run.run_id)
    assert not folder.exists()


def test_a_jump_host_that_is_gone_clears_the_nodes_behind_it(
    settings: dict[str, Any], hosts: Hosts, tmp_path: Path
) -> None:
    hosts.hide("gpu-3")
    run = run_on({**settings, "host_settings": {"gpu-3": {"jump": "gpu-0"}}}, tmp_path)
    platform = platform_for(run.cluster)
    try:
        testbed = platform.launch(run)
        assert testbed.blameless_reason(testbed.nodes[3]) is None
        hosts.set_link("gpu-0", "down")
        reason = testbed.blameless_reason(testbed.nodes[3])
        assert reason and code_of(reason) == "baremetal-jump-silent"
        assert testbed.blameless_reason(testbed.nodes[1]) is None
        hosts.set_link("gpu-0", "up")
    finally:
        platform.teardown(run.run_id)


# --- doctor ---


def test_doctor_names_what_each_host_lacks(settings: dict[str, Any], hosts: Hosts, tmp_path: Path) -> None:
    hosts.kill_host("gpu-0")
    hosts.on("gpu-1", "mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", "/mnt")
    known = {hosts.address(name): hosts.keys[name] for name in NAMES[:3]}
    hosts.know(known)
    lacking = {**settings, "folder": "/mnt", "login_timeout_s": 5}
    cluster = run_on(lacking, tmp_path, mpi={"mpirun": "/opt/none/mpirun"}).cluster
    problems = [problem for problem in platform_for(cluster).missing() if "gpu-2" not in problem]
    assert [code_of(problem) for problem in problems] == [
        "baremetal-unreachable",
        "baremetal-host-lacks",
        "baremetal-folder-unusable",
        "baremetal-host-key-unknown",
    ]
    assert problems[1] == "gpu-1: /opt/none/mpirun missing"
    assert problems[2] == "gpu-1: /mnt does not let programs run (it is mounted noexec)"


def test_a_user_that_no_host_lets_in_is_named(settings: dict[str, Any], tmp_path: Path) -> None:
    reason = launched_and_ended(run_on({**settings, "user": "nobody"}, tmp_path))
    assert reason.startswith("gpu-0: refuses the login of user nobody (publickey)")
