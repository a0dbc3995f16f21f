"""images/cpu, built and run for real."""

import io
import json
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.model.testbed import Node, Testbed, dial_tcp
from seatrial.platforms.container import CAPABILITIES
from seatrial.remote.mpi import mpirun
from seatrial.remote.node_setup import set_up_node
from tests.images import lane, layers
from tests.images.conftest import Keys, ssh
from tests.images.lane import Container
from tests.site import PATIENCE_S

ODD = "a 'b' \"c\" $d `e` \\\nsecond line "


@pytest.fixture
def pair(image: str, keys: Keys, network: str) -> Iterator[list[Container]]:
    """Two nodes on one network."""
    options = (
        "--network",
        network,
        "--env",
        f"ODD={ODD}",
        "--env",
        "HF_TOKEN=sesame",
        "--env",
        "WANTED_TOKEN=open",
    )
    extra = (
        "--env",
        "SLURM_JOB_ID=7",
        "--env",
        "NCCL_DEBUG=WARN",
        "--env",
        "SEATRIAL_PASS_ENV=WANTED_TOKEN",
    )
    nodes = [lane.start(image, f"node-{i}", keys.folder, (*options, *extra)) for i in range(2)]
    for node in nodes:
        node.wait_ready()
    yield nodes


def of_containers(keys: Keys, nodes: list[Container]) -> Testbed:
    return Testbed(
        run_id="test",
        nodes=tuple(Node(node.name, node.address, 222, 1, keys.host_key) for node in nodes),
        user="root",
        key_file=keys.private,
        dial=dial_tcp,
        workdir="/tmp/probes",
        network=f"{nodes[0].address}/24",
    )


def test_no_layer_holds_a_secret(archive: Path) -> None:
    assert layers.findings(archive) == []
    assert "TOKEN" not in layers.settings(archive)
    assert "PASSW" not in layers.settings(archive)


def test_the_image_is_small(archive: Path) -> None:
    total = 0
    for command, size in layers.sizes(archive):
        print(f"{size / 1e6:8.1f} MB  {command[:100]}")
        total += size
    assert total < 1.5e9


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("root/.ssh/id_ed25519", "x"),
        (
            "opt/anything.txt",
            "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "b3BlbnNzaC1rZXktdjEAAAAA" + "\n",
        ),
        ("etc/shadow", "root:$6$salt$hash:1:0:9:7:::\n"),
        ("etc/shadow", "root::1:0:9:7:::\n"),
        ("app/settings.py", "token = 'hf_" + "a" * 34 + "'"),
        ("var/lib/apt/lists/mirror.example.com_dists_bookworm_InRelease", "x"),
        ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
    ],
)
def test_the_search_for_secrets_finds_a_planted_one(name: str, content: str) -> None:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content.encode()))
    layer.seek(0)
    assert [path for path, _ in layers.look(layer)] == [name]


def test_sshd_is_the_child_of_process_1(pair: list[Container]) -> None:
    script = 'for p in /proc/[0-9]*; do cut -d" " -f2,4 $p/stat; done'
    processes = pair[0].exec("sh", "-c", script).splitlines()
    assert "(tini) 0" in processes
    assert "(sshd) 1" in processes


@pytest.mark.gate
def test_keys_are_the_only_way_in(pair: list[Container], keys: Keys) -> None:
    assert ssh(keys, pair[0].address, "hostname").stdout == "node-0\n"
    refused = ssh(keys, pair[0].address, "true", options=("-o", "PubkeyAuthentication=no"))
    assert "Permission denied (publickey)" in refused.stderr
    other = keys.private.with_name("other")
    other.write_text((keys.folder / "ssh_host_ed25519_key").read_text())
    other.chmod(0o600)
    refused = ssh(
        Keys(keys.folder, ""),
        pair[0].address,
        "true",
        options=("-o", f"IdentityFile={other}", "-l", "seatrial"),
    )
    assert refused.returncode == 255


def test_sessions_have_the_containers_environment(pair: list[Container], keys: Keys) -> None:
    names = "ODD HF_TOKEN WANTED_TOKEN SLURM_JOB_ID NCCL_DEBUG OMPI_ALLOW_RUN_AS_ROOT HOME"
    command = (
        f"python3 -c 'import os; print([os.environ.get(name) for name in \"{names}\".split()])'"
    )
    output = ssh(keys, pair[0].address, command).stdout
    assert output == f"{[ODD, None, 'open', None, 'WARN', '1', '/root']}\n"


def test_sessions_are_confined_as_the_container_is(pair: list[Container], keys: Keys) -> None:
    """sshd and what it starts: no new privileges, seccomp's filter, and the few capabilities that a
    node has.
    """
    lines = ssh(keys, pair[0].address, "cat /proc/self/status").stdout.splitlines()
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert int(status["CapBnd"], 16).bit_count() == len(CAPABILITIES)


def test_a_person_gets_a_terminal(pair: list[Container], keys: Keys) -> None:
    assert ssh(keys, pair[0].address, "tty", options=("-tt",)).stdout.startswith("/dev/pts/")


def test_files_can_be_copied(pair: list[Container], keys: Keys) -> None:
    # The subsystem starts, and ends with its input
    assert ssh(keys, pair[0].address, "sftp", options=("-s",)).returncode == 0


def test_mpirun_reaches_both_nodes_without_options(pair: list[Container]) -> None:
    hosts = ",".join(node.address for node in pair)
    assert sorted(pair[0].exec("mpirun", "-host", hosts, "-np", "2", "hostname").split()) == [
        "node-0",
        "node-1",
    ]


def test_the_probes_run_on_both_nodes(pair: list[Container], keys: Keys) -> None:
    bed = of_containers(keys, pair)
    for node in bed.nodes:
        contact = set_up_node(bed, node, 20)
        contact.transport.close()
        assert (contact.versions["torch"] or "").startswith("1.13")
        assert contact.facts["mpirun"] == "/usr/bin/mpirun"
    sweep = [
        "python3",
        "/tmp/probes/collective.py",
        "--operation",
        "all_reduce",
        "--min-bytes",
        "1024",
        "--max-bytes",
        "1048576",
    ]
    meeting = [
        "--master-addr",
        pair[0].address,
        "--master-port",
        "29500",
        "--network",
        f"{pair[0].address}/24",
    ]
    result = mpirun(bed, [*sweep, *meeting], timeout_s=PATIENCE_S)
    text = "\n".join(result.lines)
    assert result.ok, text
    assert "# Out of bounds values : 0 OK" in text
    assert "node-0" in text
    assert "node-1" in text


def test_many_simultaneous_connections_are_all_accepted(pair: list[Container]) -> None:
    script = f"""
        for i in $(seq 60); do (ssh {pair[1].address} true || echo dropped) & done
        wait
    """
    assert pair[0].exec("sh", "-c", script) == ""


def test_sigterm_ends_a_busy_node_cleanly(pair: list[Container]) -> None:
    lane.podman("exec", "--detach", pair[0].name, "ssh", pair[1].address, "sleep 300")
    pair[1].wait_logged("Accepted publickey")
    started = time.time()
    lane.podman("stop", "--time", "10", pair[1].name)
    assert pair[1].wait_exit() == 0
    ended = (
        float(lane.podman("inspect", "--format", "{{.State.FinishedAt.UnixMilli}}", pair[1].name))
        / 1000
    )
    # The node itself: podman has more to do until it comes back
    assert started < ended < started + 10


def test_a_restarted_node_keeps_its_configuration_and_keys(pair: list[Container]) -> None:
    listing = (
        "cat /root/.ssh/config /root/.ssh/seatrial.conf /run/seatrial/authorized_keys "
        "/run/seatrial/known_hosts"
    )
    before = pair[0].exec("sh", "-c", listing)
    assert "Port 222\n" in before
    lane.podman("restart", "--time", "5", pair[0].name)
    pair[0].wait_ready()
    assert pair[0].exec("sh", "-c", listing) == before


def test_seatrial_ssh_port_sets_the_port_of_sshd_and_ssh(
    image: str, keys: Keys, network: str
) -> None:
    options = ("--network", network, "--env", "SEATRIAL_SSH_PORT=2222")
    nodes = [lane.start(image, f"node-{i}", keys.folder, options) for i in range(2)]
    for node in nodes:
        node.wait_ready()
    assert nodes[0].exec("ssh", nodes[1].address, "echo $SEATRIAL_SSH_PORT; hostname").split() == [
        "2222",
        "node-1",
    ]
    assert ssh(keys, nodes[1].address, "true").returncode == 255


def test_a_plain_user_can_be_a_node(image: str, keys: Keys, network: str) -> None:
    options = (
        "--network",
        network,
        "--user",
        "seatrial",
        "--sysctl",
        "net.ipv4.ip_unprivileged_port_start=0",
    )
    nodes = [lane.start(image, f"node-{i}", keys.folder, options) for i in range(2)]
    for node in nodes:
        node.wait_ready()
    assert nodes[0].exec("ssh", nodes[1].address, "id -un; hostname").split() == [
        "seatrial",
        "node-1",
    ]
    hosts = ",".join(node.address for node in nodes)
    assert sorted(nodes[0].exec("mpirun", "-host", hosts, "-np", "2", "hostname").split()) == [
        "node-0",
        "node-1",
    ]


def test_seatrial_finish_ends_a_node_from_within(pair: list[Container]) -> None:
    pair[0].exec("sh", "-c", f"ssh {pair[1].address} seatrial-finish || true")
    assert pair[1].wait_exit() == 0


def test_node_exits_when_its_time_is_over(image: str, keys: Keys) -> None:
    node = lane.start(image, "node-0", keys.folder, ("--env", "SEATRIAL_MAX_SECONDS=2"))
    assert node.wait_exit() == 0
    assert "2 s are over" in node.logs()


def test_worker_exits_after_its_head_is_gone(image: str, keys: Keys, network: str) -> None:
    head = lane.start(image, "node-0", keys.folder, ("--network", network))
    head.wait_ready()
    worker = lane.start(
        image,
        "node-1",
        keys.folder,
        ("--network", network, "--env", f"SEATRIAL_HEAD={head.address}"),
    )
    worker.wait_ready()
    head.wait_logged(worker.address)  # the worker has seen it: it looks every 10 s
    lane.podman("stop", head.name)
    assert worker.wait_exit() == 0
    assert f"the head {head.address} is gone" in worker.logs()


def test_a_command_runs_next_to_sshd_and_ends_the_node(image: str, keys: Keys) -> None:
    node = lane.start(
        image,
        "node-0",
        keys.folder,
        command=("sh", "-c", "until [ -e /tmp/go ]; do sleep 0.1; done; exit 5"),
    )
    node.wait_ready()
    node.exec("touch", "/tmp/go")
    assert node.wait_exit() == 5


def test_a_missing_key_is_named(image: str, keys: Keys) -> None:
    missing = "ssh_host_ed25519_key"
    (keys.folder / missing).unlink()
    mount = ("--volume", f"{keys.folder}:/keys:ro", "--env", "SEATRIAL_KEYS=/keys")
    done = lane.run_once(image, options=mount)
    assert done.returncode == 2
    assert f"/keys/{missing}: missing or not readable" in done.stdout


@pytest.mark.parametrize("port", ["0", "22x", "65536"])
def test_invalid_ssh_port_is_refused(image: str, port: str) -> None:
    done = lane.run_once(image, options=("--env", f"SEATRIAL_SSH_PORT={port}"))
    assert done.returncode == 2
    assert "SEATRIAL_SSH_PORT must be a port" in done.stdout


def test_image_without_keys_and_arguments_checks_the_machine_it_runs_on(image: str) -> None:
    done = lane.run_once(image)
    assert done.returncode == 0, done.stdout
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    names = ["[ENV]", "[ENV]", "[COMPUTE]", "[COLLECTIVE]", "[TRAIN]", "[RESULT]"]
    assert [line.split()[0] for line in lines] == names
    assert lines[-1].startswith("[RESULT] pass: ")


def test_check_is_not_run_when_an_expected_gpu_is_missing(image: str) -> None:
    done = lane.run_once(
        image, "seatrial-check", "--results", "/tmp/r", options=("--env", "SEATRIAL_ALLOW_NO_GPU=")
    )
    assert done.returncode == 3
    assert done.stdout.splitlines()[-1].startswith("[RESULT] not_run: GPU: torch sees no GPU")


def test_a_plain_user_runs_the_probes_of_the_image_by_hand(image: str) -> None:
    """As Docker confines it: no root, a read-only file system, no network."""
    confined = ("--user", "seatrial", "--read-only", "--network", "none", *lane.RIGHTS)
    training = ("python3", "/usr/local/lib/seatrial/probes/training.py", "--steps", "4")
    done = lane.run_once(image, *training, options=confined)
    assert done.returncode == 0, done.stdout
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["event"], summary["world_size"]) == ("summary", 1)
    devices = lane.run_once(
        image, "python3", "/usr/local/lib/seatrial/probes/devices.py", options=confined
    )
    assert devices.returncode == 0, devices.stdout


def test_site_keys_and_nccl_conf_are_installed_and_invalid_ones_refused(
    image: str, keys: Keys
) -> None:
    configure = (
        "/usr/local/lib/seatrial/configure && cat /etc/seatrial-image/authorized_keys "
        "/etc/nccl.conf"
    )
    site = ("--env", f"SITE_KEYS={keys.host_key}", "--env", "NCCL_CONF=NCCL_NET=gIB NCCL_IB_TC=52")
    quiet = f"exec 2> /dev/null; {configure}"  # the two streams come in any order
    done = lane.run_once(image, "sh", "-c", quiet, options=site)
    assert done.returncode == 0, done.stdout
    assert done.stdout == f"{keys.host_key}\nNCCL_NET=gIB\nNCCL_IB_TC=52\n"
    for wrong in (
        f"SITE_KEYS={keys.private.read_text()}",
        "SITE_KEYS=hello",
        "NCCL_CONF=LD_PRELOAD=x",
    ):
        assert lane.run_once(image, "sh", "-c", configure, options=("--env", wrong)).returncode != 0
