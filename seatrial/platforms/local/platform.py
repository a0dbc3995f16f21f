"""The local platform: launch, teardown and leftovers of testbeds made of network namespaces."""

import json
import logging
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from seatrial.cluster import Cluster, NodeFault
from seatrial.errors import LaunchError, MissingError
from seatrial.keys import KeyPair, new_key_pair
from seatrial.platforms import Leftover, Rendered
from seatrial.platforms import state as states
from seatrial.platforms.local import plan as planning
from seatrial.platforms.local.needs import missing
from seatrial.platforms.local.plan import PREFIX, Account, Layout, LocalNode
from seatrial.run import Run
from seatrial.ssh import answers, known_hosts, on_each
from seatrial.testbed import Node, Testbed

log = logging.getLogger("seatrial.launch")

NETNS_FOLDER = Path("/run/netns")
ANSWER_TIMEOUT_S = 5.0  # for sshd to answer once its node is up; connectivity names the ones that do not


class Local:
    """Nodes as network namespaces on this machine."""

    def __init__(self) -> None:
        self._keepers: dict[str, subprocess.Popen[bytes]] = {}

    def render(self, run: Run) -> Rendered:
        plan, account = planning.layout(run.run_id, run.cluster, states.root_folder() / run.run_id), _account()
        return Rendered(_files(plan, run.cluster, account))

    def launch(self, run: Run) -> Testbed:
        if lacking := missing():
            raise MissingError("; ".join(lacking))
        folder = states.make_folder(run.run_id)
        plan, account = planning.layout(run.run_id, run.cluster, folder), _account()
        host_keys = {node.name: new_key_pair() for node in plan.nodes}
        nodes = tuple(_node(plan, node, run.cluster, host_keys[node.name].public) for node in plan.nodes)
        _write(plan, run.cluster, account, host_keys, nodes)
        self._keepers[run.run_id] = _start_keeper(plan)
        testbed = _testbed(plan, run.cluster, account, nodes)
        _wait_for_sshd(testbed, folder)
        return testbed

    def teardown(self, run_id: str) -> None:
        folder = states.root_folder() / run_id
        keeper = states.read_owner(folder, "keeper")
        if keeper and keeper.alive:
            with suppress(ProcessLookupError):
                os.kill(
                    keeper.pid, signal.SIGKILL
                )  # process 1 of the run's PID namespace goes with it, and so does all below
        if started_here := self._keepers.pop(run_id, None):
            started_here.kill()
            started_here.communicate()
        for namespace in _namespaces(f"{PREFIX}{run_id}-"):
            _delete_namespace(namespace)
        states.remove_folder(folder)

    def leftovers(self) -> list[Leftover]:
        # Namespaces first: a run that starts in between then has a folder. A plain user's namespaces have no names.
        named = {_run_id_of(namespace) for namespace in _namespaces(PREFIX)} if os.geteuid() == 0 else set()
        root = states.root_folder()
        folders = {folder.name: folder for folder in root.iterdir() if folder.is_dir()} if root.is_dir() else {}
        left = [
            Leftover(run_id, states.age_s(folder), "nodes and state of a run whose process is gone")
            for run_id, folder in folders.items()
            if states.is_abandoned(folder)
        ]
        stray = sorted(named - set(folders))
        return left + [Leftover(run_id, 0.0, "network namespaces without a run") for run_id in stray]

    def missing(self) -> list[str]:
        return missing()


def _account() -> Account:
    """Whoever runs this; a uid that /etc/passwd does not list gets a name of ours."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = "seatrial"
    return Account(name, os.getuid(), os.getgid())


def _node(plan: Layout, node: LocalNode, cluster: Cluster, host_key: str) -> Node:
    return Node(node.name, node.address, plan.port, cluster.slots, host_key, cluster.gpus)


def _testbed(plan: Layout, cluster: Cluster, account: Account, nodes: tuple[Node, ...]) -> Testbed:
    def dial(node: Node, timeout_s: float) -> socket.socket:
        return _dial(plan.socket, node, timeout_s)

    return Testbed(
        run_id=plan.run_id,
        nodes=nodes,
        user=account.name,
        key_file=plan.key_file,
        dial=dial,
        workdir=str(plan.state / "work"),
        python=sys.executable,
        mpirun=cluster.mpi.mpirun,
        mpirun_args=cluster.mpi.args,
        network=cluster.mpi.interface or str(planning.NETWORK),
        env=tuple(cluster.env.items()),
    )


def _files(plan: Layout, cluster: Cluster, account: Account) -> dict[str, str]:
    """Every configuration file of the run, by its path under the run's folder; keys are made at launch."""
    passwd = Path("/etc/passwd").read_text()
    files = {
        "network.batch": planning.network_batch(plan),
        "hosts": planning.hosts_file(plan.nodes),
    }
    for node in plan.nodes:
        folder = f"nodes/{node.name}"
        files[f"{folder}/node.sh"] = planning.node_script(plan, node, cluster, account)
        files[f"{folder}/passwd"] = planning.passwd_file(passwd, account, node.folder / "home")
        files[f"{folder}/sshd_config"] = planning.sshd_config(plan, node, planning.node_environment(node))
        files[f"{folder}/home/.ssh/config"] = planning.ssh_config(plan, account)
    return files


def _write(
    plan: Layout, cluster: Cluster, account: Account, host_keys: dict[str, KeyPair], nodes: tuple[Node, ...]
) -> None:
    run_key = new_key_pair()
    wrong = {fault.node for fault in cluster.faults if isinstance(fault, NodeFault) and fault.host_key}
    files = _files(plan, cluster, account)
    files |= {
        "authorized_keys": f"{run_key.public}\n",
        "known_hosts": known_hosts(nodes),
        "id_ed25519": run_key.private,
    }
    for node in plan.nodes:
        answered_with = new_key_pair() if node.name in wrong else host_keys[node.name]
        files[f"nodes/{node.name}/ssh_host_ed25519_key"] = answered_with.private
    files["spec.json"] = json.dumps({"private_run": os.geteuid() != 0, "nodes": [_spec(node) for node in plan.nodes]})
    for name, text in files.items():
        path = plan.state / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(text)
    for node in plan.nodes:
        (node.folder / "tmp").mkdir()
    (plan.state / "work").mkdir()


def _spec(node: LocalNode) -> dict[str, str]:
    return {
        "namespace": node.namespace,
        "script": str(node.folder / "node.sh"),
        "log": str(node.folder / "node.log"),
        "up": str(node.folder / "up"),
    }


def _start_keeper(plan: Layout) -> "subprocess.Popen[bytes]":
    """Start the keeper in namespaces of its own and wait until the nodes are started."""
    as_root = ["--user", "--map-root-user", "--mount", "--mount-proc"] if os.geteuid() else []
    unshare = ["unshare", *as_root, "--net", "--pid", "--fork", "--kill-child"]
    program = [sys.executable, "-I", str(Path(__file__).with_name("keeper.py")), str(plan.state)]
    with (plan.state / "keeper.log").open("wb") as keeper_log:
        keeper = subprocess.Popen(
            [*unshare, *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=keeper_log,
            start_new_session=True,  # Ctrl-C is for the run, which then takes its nodes down in order
        )
    states.write_owner(plan.state, "keeper", states.process(keeper.pid))
    assert keeper.stdout is not None
    if keeper.stdout.readline() != b"ready\n":
        keeper.kill()
        keeper.communicate()
        raise LaunchError(f"the local network did not come up: {_last_line(plan.state / 'keeper.log')}")
    return keeper


def _wait_for_sshd(testbed: Testbed, folder: Path) -> None:
    """Until every sshd answers, or time is up. Some that do not are a finding; none at all is a failed launch."""
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    waiting = list(testbed.nodes)
    patience_s = 0.1  # short at first: TCP itself tries again only after a second
    while waiting and time.monotonic() < deadline:
        up = on_each(waiting, partial(_answers, testbed, patience_s))
        waiting = [node for node in waiting if not up[node.name]]
        time.sleep(0.05 if waiting else 0)
        patience_s = min(2 * patience_s, 2.0)
    if len(waiting) == len(testbed.nodes):
        problem = _last_line(folder / "nodes" / testbed.head.name / "node.log")
        raise LaunchError(f"no node's sshd answers on port {testbed.head.port}; {testbed.head.name} says: {problem}")
    for node in waiting:
        log.warning("%s: sshd does not answer on port %d", node.name, node.port)


def _answers(testbed: Testbed, timeout_s: float, node: Node) -> bool:
    return answers(testbed, node, timeout_s)


def _dial(keeper: Path, node: Node, timeout_s: float) -> socket.socket:
    """Ask the keeper for a connection into the run's network. Raises OSError with the cause, as a direct one would."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout_s + 5)
        client.connect(str(keeper))
        client.sendall(f"{node.address} {node.port} {timeout_s}".encode())
        answer, descriptors, _, _ = socket.recv_fds(client, 64, 1)
    if descriptors:
        return socket.socket(fileno=descriptors[0])
    if answer == b"timeout":
        raise TimeoutError("connection timed out")
    code = int(answer or b"5")
    raise OSError(code, os.strerror(code))


def _namespaces(prefix: str) -> list[str]:
    with suppress(OSError):
        return sorted(entry for entry in os.listdir(NETNS_FOLDER) if entry.startswith(prefix))
    return []


def _run_id_of(namespace: str) -> str:
    return namespace.removeprefix(PREFIX).partition("-node-")[0]


def _delete_namespace(name: str) -> None:
    """A namespace lives on while a process is in it: end those first, also ones that somebody started by hand."""
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout.split()
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _last_line(path: Path) -> str:
    with suppress(OSError):
        lines = path.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
    return "nothing"
