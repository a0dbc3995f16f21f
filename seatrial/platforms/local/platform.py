"""The local platform: launch, teardown and leftovers of testbeds made of network namespaces."""

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from seatrial.config.cluster import Cluster
from seatrial.config.faults import LinkFault, NodeFault
from seatrial.config.run import Run
from seatrial.model.errors import InputError, LaunchError, MissingError
from seatrial.model.reason import Reason, join
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms import Leftover, Rendered
from seatrial.platforms import state as states
from seatrial.platforms.local import plan as planning
from seatrial.platforms.local.plan import Account, LocalPlan
from seatrial.platforms.local.stage import read
from seatrial.platforms.testbed import node_of, testbed_of, wait_for_sshd
from seatrial.remote.ssh import KeyPair, known_hosts, new_key_pair, pinned_keys
from seatrial.system.private import closed_folder, private_opener, write_private
from seatrial.system.process import kill_own, process
from seatrial.system.rawlog import write_log
from seatrial.text.lines import last_line, tail_of
from seatrial.text.redact import Secrets

_BEGIN_S = 30.0  # time for a fault to begin after a check, which takes a few processes
_KIND = "local"
_TOOLS = {
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
}
# Keepers that this process has started, by run id
_KEEPERS: "dict[str, subprocess.Popen[bytes]]" = {}


def write_files(
    plan: LocalPlan, cluster: Cluster, host_keys: dict[str, KeyPair], nodes: tuple[Node, ...]
) -> None:
    """Write everything that the nodes start from: their configuration, the run's keys, and the
    keeper's specification.
    """
    run_key = new_key_pair()
    wrong = set()  # nodes whose host key differs from the known one
    for fault in cluster.faults:
        if isinstance(fault, NodeFault) and fault.host_key:
            wrong.add(fault.node)
    files = _files(plan, cluster) | {
        "authorized_keys": f"{run_key.public}\n",
        "known_hosts": known_hosts(nodes),
        "id_ed25519": run_key.private,
    }
    for node in plan.nodes:
        answered_with = new_key_pair() if node.name in wrong else host_keys[node.name]
        files[f"nodes/{node.name}/ssh_host_ed25519_key"] = answered_with.private
    spec = [
        {
            "namespace": node.namespace,
            "script": str(node.folder / "node.sh"),
            "log": str(node.folder / "node.log"),
            "up": str(node.folder / "up"),
        }
        for node in plan.nodes
    ]
    files["spec.json"] = json.dumps({"private_run": os.geteuid() != 0, "nodes": spec})
    for name, text in files.items():
        path = plan.state / name
        closed_folder(path.parent)
        write_private(path, text)
    for fifo in plan.waiting(cluster):
        os.mkfifo(fifo, 0o600)
    for node in plan.nodes:
        closed_folder(node.folder / "tmp")
    closed_folder(plan.state / "work")


def start_keeper(plan: LocalPlan) -> "subprocess.Popen[bytes]":
    """Start the keeper in namespaces of its own and wait until the nodes are started."""
    as_root = ["--user", "--map-root-user", "--mount", "--mount-proc"] if os.geteuid() else []
    unshare = ["unshare", *as_root, "--net", "--pid", "--fork", "--kill-child"]
    program = [sys.executable, "-I", str(Path(__file__).with_name("keeper.py")), str(plan.state)]
    with open(plan.state / "keeper.log", "wb", opener=private_opener) as keeper_log:
        keeper = subprocess.Popen(
            [*unshare, *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=keeper_log,
            # Ctrl-C must reach only the run, which then takes its nodes down in order
            start_new_session=True,
        )
    states.write_owner(plan.state, "keeper", process(keeper.pid))
    assert keeper.stdout is not None
    if keeper.stdout.readline() != b"ready\n":
        keeper.kill()
        keeper.communicate()
        raise LaunchError.of("local-network-failed", problem=_last_line(plan.state / "keeper.log"))
    return keeper


def _dial(state: Path, node: Node, timeout_s: float) -> socket.socket:
    """Ask the keeper for a connection into the run's network.

    Raises OSError with the cause, like a direct connection.
    """
    folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout_s + 5)
            # A socket path is limited to 107 bytes
            client.connect(f"/proc/self/fd/{folder}/keeper.sock")
            client.sendall(f"{node.address} {node.port} {timeout_s}".encode())
            answer, descriptors, _, _ = socket.recv_fds(client, 64, 1)
    finally:
        os.close(folder)
    if descriptors:
        return socket.socket(fileno=descriptors[0])
    if answer == b"timeout":
        raise TimeoutError("connection timed out")
    code = int(answer or b"5")
    raise OSError(code, os.strerror(code))


def _last_line(path: Path) -> str:
    """Return the last line of a log; "nothing" where it is empty or not there."""
    with suppress(OSError):
        return last_line(path.read_text(errors="replace")) or "nothing"
    return "nothing"


class Local:
    """Nodes as network namespaces on this machine."""

    def __init__(self, node_count: int = 0) -> None:
        self._node_count = node_count  # number of nodes for `missing`; 0 if unknown

    def render(self, run: Run) -> Rendered:
        cluster = run.cluster
        plan = planning.layout(run.run_id, cluster, states.run_folder(run.run_id, _KIND))
        nodes = tuple(node_of(cluster, node.name, node.address, "") for node in plan.nodes)
        return Rendered(_files(plan, cluster), _testbed(plan, cluster, nodes))

    def launch(self, run: Run) -> Testbed:
        cluster = run.cluster
        loses = any(isinstance(fault, LinkFault) and fault.loss for fault in cluster.faults)
        if lacking := missing(needs_iptables=loses) or problems(cluster.nodes):
            raise MissingError(join(lacking))
        folder = states.make_folder(run.run_id, _KIND)
        states.remember(folder, cluster)
        if run.taken:  # from now on, a job that starts ends this run
            stage = read(cluster.name)
            for node in cluster.node_names():
                if job := stage.job_on(node):  # a job that started after the nodes were chosen
                    raise LaunchError.of("gave-way", job=job)
        plan = planning.layout(run.run_id, cluster, folder)
        host_keys = {node.name: new_key_pair() for node in plan.nodes}
        nodes = tuple(
            node_of(cluster, node.name, node.address, host_keys[node.name].public)
            for node in plan.nodes
        )
        write_files(plan, cluster, host_keys, nodes)
        _KEEPERS[run.run_id] = start_keeper(plan)
        testbed = _testbed(plan, cluster, nodes)
        # One core starts four nodes per second, even on a busy machine. Connectivity names late
        # nodes.
        timeout_s = 5.0 + len(nodes) / (4.0 * (testbed.shared_cores or 1))
        if not wait_for_sshd(testbed, timeout_s):
            head = testbed.head
            raise LaunchError.of(
                "local-sshd-silent",
                port=head.port,
                node=head.name,
                problem=_last_line(folder / "nodes" / head.name / "node.log"),
            )
        return testbed

    def attach(self, run_id: str) -> Testbed:
        """Return the testbed of a run whose keeper lives. Raises InputError where it does not."""
        folder = states.run_folder(run_id, _KIND)
        cluster = states.recall(folder)
        keeper = states.read_owner(folder, "keeper")
        if not keeper or not keeper.alive:
            raise InputError(f"run {run_id}: is over")
        plan = planning.layout(run_id, cluster, folder)
        pinned = pinned_keys(states.read_file(folder, "known_hosts"))
        nodes = tuple(
            node_of(cluster, node.name, node.address, pinned[node.address]) for node in plan.nodes
        )
        return _testbed(plan, cluster, nodes)

    def collect(self, run_id: str, folder: Path, timeout_s: float, secrets: Secrets) -> None:
        for log in sorted(states.run_folder(run_id, _KIND).glob("nodes/*/node.log")):
            if tail := tail_of(log):
                write_log(folder / "nodes" / f"{log.parent.name}.log", tail, secrets)

    def keep(self, run_id: str, seconds: float) -> bool:
        """Have the keeper stay up for `seconds`; return false if this process did not start it."""
        keeper = _KEEPERS.get(run_id)
        if keeper is None or keeper.poll() is not None:
            return False
        states.keep(states.run_folder(run_id, _KIND), seconds)
        assert keeper.stdin is not None
        keeper.stdin.write(str(seconds).encode())
        keeper.stdin.close()
        keeper.stdin = None  # otherwise Popen.wait would close it again
        return True

    def teardown(self, run_id: str) -> None:
        """End the keeper and everything below it, then remaining processes in the namespaces of the
        nodes.
        """
        folder = states.run_folder(run_id, _KIND)
        if keeper := states.read_owner(folder, "keeper"):
            # process 1 of the run's PID namespace ends with it, and so does everything below
            kill_own(keeper, str(folder))
        if started_here := _KEEPERS.pop(run_id, None):
            started_here.kill()
            started_here.communicate()
        for namespace in _namespaces_of(folder):
            listing = ["ip", "netns", "pids", namespace]  # including processes started by hand
            for pid in subprocess.run(
                listing, capture_output=True, text=True, check=False
            ).stdout.split():
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)
        states.remove_folder(folder)

    def leftovers(self) -> list[Leftover]:
        return states.leftovers(_KIND, "nodes and state of a run whose process is gone")

    def missing(self) -> list[Reason]:
        return missing() + problems(self._node_count)


PLATFORM = Local()


def platform(cluster: Cluster) -> Local:
    """Return the platform of a cluster; only its size matters."""
    return Local(cluster.nodes)


def _account() -> Account:
    """Return the current user; a uid that /etc/passwd does not list gets the name seatrial."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = "seatrial"
    return Account(name, os.getuid(), os.getgid())


def _testbed(plan: LocalPlan, cluster: Cluster, nodes: tuple[Node, ...]) -> Testbed:
    waiting = plan.waiting(cluster)

    def after_check(name: str) -> None:
        """Start the commands that wait for the check `name`, and wait until they are done."""
        deadline = time.monotonic() + _BEGIN_S
        fifos = [fifo for fifo in waiting if fifo.name == f"after-{name}"]
        while left := [fifo for fifo in fifos if fifo.exists()]:
            if time.monotonic() > deadline:
                fault = f"{left[0].parent.name} {left[0].name}"
                raise LaunchError.of("local-fault-failed", fault=fault)
            for fifo in left:
                with suppress(OSError):  # no reader yet, or no longer
                    os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
            time.sleep(0.02)

    def gave_way(node: Node) -> Reason | None:
        job = read(cluster.name).given.get(plan.run_id)
        if job:
            return Reason.of("gave-way", job=job)
        return None

    return testbed_of(
        cluster,
        plan.run_id,
        nodes,
        user=_account().name,
        key_file=plan.state / states.KEY_FILE,
        dial=partial(_dial, plan.state),
        workdir=str(plan.state / "work"),
        python=sys.executable,
        network=str(planning.NETWORK),
        shared_cores=len(os.sched_getaffinity(0)),
        after_check=after_check,
        blameless_reason=gave_way,
    )


def _files(plan: LocalPlan, cluster: Cluster) -> dict[str, str]:
    """Return every configuration file of the run except keys, which launch makes, by path below the
    run's folder.
    """
    account = _account()
    passwd = Path("/etc/passwd").read_text()
    files = {
        "network.batch": planning.network_batch(plan, cluster),
        "switch.sh": planning.switch_script(plan, cluster),
        planning.NEIGHBOURS: planning.neighbour_batch(plan),
        "hosts": planning.hosts_file(plan.nodes),
    }
    for node in plan.nodes:
        folder = f"nodes/{node.name}"
        files[f"{folder}/{planning.INTERFACES}"] = planning.interface_batch(node)
        files[f"{folder}/node.sh"] = planning.node_script(plan, node, cluster, account)
        files[f"{folder}/passwd"] = planning.passwd_file(passwd, account, node.folder / "home")
        files[f"{folder}/sshd_config"] = planning.sshd_config(
            plan, node, planning.node_environment(node, cluster)
        )
        files[f"{folder}/home/.ssh/config"] = planning.ssh_config(plan, account)
    return files


def _namespaces_of(folder: Path) -> list[str]:
    """Return the existing namespaces of the run, according to its record, as their names do not
    show the run.
    """
    spec = states.read_record(folder, "spec.json")  # empty if the run ended before it made any
    names = [node["namespace"] for node in spec.get("nodes", ())]
    return [name for name in names if Path("/run/netns", name).exists()]


def problems(node_count: int, proc: Path = Path("/proc")) -> list[Reason]:
    """List limits of this machine that are too low for `node_count` nodes, each with the setting to
    change.
    """
    if node_count <= 16:
        return []  # default limits suffice
    running = sum(entry.name.isdigit() for entry in proc.iterdir())
    # Most processes of a node: shell and sshd, a session with shell and probe, an MPI daemon and a
    # rank.
    processes = node_count * 8
    memory_mib = node_count * 32
    pids = _number(proc / "sys/kernel/pid_max") - running
    threads = _number(proc / "sys/kernel/threads-max") - running
    namespaces = _number(proc / "sys/user/max_net_namespaces")
    more_pids = _rounded(running + processes)
    more_namespaces = _rounded(node_count + 1)
    needs = [
        ("processes", processes, pids, f"sysctl -w kernel.pid_max={more_pids}"),
        ("processes", processes, threads, f"sysctl -w kernel.threads-max={more_pids}"),
        (
            "network namespaces",
            node_count + 1,
            namespaces,
            f"sysctl -w user.max_net_namespaces={more_namespaces}",
        ),
        ("MiB of memory", memory_mib, _available_mib(proc), "use fewer nodes"),
    ]
    return [
        Reason.of(
            "local-machine-too-small",
            nodes=node_count,
            resource=resource,
            needed=needed,
            available=available,
            remedy=remedy,
        )
        for resource, needed, available, remedy in needs
        if available < needed
    ]


def _number(path: Path) -> int:
    """Return the number in a file of the kernel; a very large one if the kernel lacks the
    setting.
    """
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 1 << 62


def _available_mib(proc: Path) -> int:
    """Return the available memory in MiB; a very large number if the kernel does not report it."""
    for line in (proc / "meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 1 << 62


def _rounded(number: int) -> int:
    """Return the next power of two, at least 32,768."""
    return 1 << max(15, (number - 1).bit_length())


def missing(needs_iptables: bool = False) -> list[Reason]:
    """Return a reason for each missing program and right on this machine."""
    tools = _TOOLS | ({"iptables": "iptables"} if needs_iptables else {})
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    reasons = []
    for tool, package in tools.items():
        if not shutil.which(tool, path=path):
            reasons.append(Reason.of("local-program-missing", program=tool, package=package))
    return reasons or _namespace_problems()


def _namespace_problems() -> list[Reason]:
    rootless = ["--user", "--map-root-user"] if os.geteuid() else []
    trial = ["unshare", *rootless, "--net", "--mount", "--uts", "--pid", "--fork", "true"]
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    problem = last_line(done.stderr) or "no reason given"
    if rootless:
        step = (
            "run as root, or allow user namespaces: sysctl -w user.max_user_namespaces=15000, and "
            "where they exist"
            " kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0"
        )
    else:
        step = "run outside a container, or in one with CAP_SYS_ADMIN and CAP_NET_ADMIN"
    return [Reason.of("local-namespaces-forbidden", problem=problem, remedy=step)]
