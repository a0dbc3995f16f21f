"""Bring local nodes up: their files, the keeper that holds them, their sshd."""

import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from seatrial.config.cluster import Cluster, NodeFault
from seatrial.model.errors import LaunchError
from seatrial.model.reason import Reason
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms import state as states
from seatrial.platforms.local.plan import LocalNode, LocalPlan
from seatrial.remote.keys import KeyPair, new_key_pair
from seatrial.remote.ssh import answers, fan_out, known_hosts, on_each
from seatrial.system.private import closed_folder, private_opener
from seatrial.system.process import process
from seatrial.text.lines import last_line

log = logging.getLogger("seatrial.launch")

ANSWER_TIMEOUT_S = 5.0  # for sshd to answer once its node is up; connectivity names the ones that do not
_STARTS_PER_CORE_S = 4.0  # nodes that one core starts in a second, with others at work beside it


def write(
    plan: LocalPlan, cluster: Cluster, files: dict[str, str], host_keys: dict[str, KeyPair], nodes: tuple[Node, ...]
) -> None:
    """Write everything that the nodes start from: `files`, the run's keys, and what the keeper is to start."""
    run_key = new_key_pair()
    wrong = {fault.node for fault in cluster.faults if isinstance(fault, NodeFault) and fault.host_key}
    files = files | {
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
        closed_folder(path.parent)
        states.write_private(path, text)
    for node in plan.nodes:
        closed_folder(node.folder / "tmp")
    closed_folder(plan.state / "work")


def _spec(node: LocalNode) -> dict[str, str]:
    return {
        "namespace": node.namespace,
        "script": str(node.folder / "node.sh"),
        "log": str(node.folder / "node.log"),
        "up": str(node.folder / "up"),
    }


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
            start_new_session=True,  # Ctrl-C is for the run, which then takes its nodes down in order
        )
    states.write_owner(plan.state, "keeper", process(keeper.pid))
    assert keeper.stdout is not None
    if keeper.stdout.readline() != b"ready\n":
        keeper.kill()
        keeper.communicate()
        raise LaunchError(Reason.of("local-network-failed", problem=_last_line(plan.state / "keeper.log")))
    return keeper


def wait_for_sshd(testbed: Testbed, folder: Path) -> None:
    """Until every sshd answers, or time is up. Some that do not are a finding; none at all is a failed launch."""
    cores = testbed.shared_cores or 1
    deadline = time.monotonic() + ANSWER_TIMEOUT_S + len(testbed.nodes) / (_STARTS_PER_CORE_S * cores)
    waiting = list(testbed.nodes)
    patience_s = 0.1  # short at first: TCP itself tries again only after a second
    while waiting and time.monotonic() < deadline:
        up = on_each(waiting, partial(_answers, testbed, patience_s), fan_out(testbed))
        waiting = [node for node in waiting if not up[node.name]]
        time.sleep(0.05 if waiting else 0)
        patience_s = min(2 * patience_s, 2.0)
    if len(waiting) == len(testbed.nodes):
        problem = _last_line(folder / "nodes" / testbed.head.name / "node.log")
        raise LaunchError(
            Reason.of("local-sshd-silent", port=testbed.head.port, node=testbed.head.name, problem=problem)
        )
    for node in waiting:
        log.warning("%s: sshd does not answer on port %d", node.name, node.port)


def _answers(testbed: Testbed, timeout_s: float, node: Node) -> bool:
    return answers(testbed, node, timeout_s)


def dial(keeper: Path, node: Node, timeout_s: float) -> socket.socket:
    """Ask the keeper for a connection into the run's network. Raises OSError with the cause, as a direct one would."""
    with socket.socket(socket.AF_UNIX) as client, _opened(keeper.parent) as folder:
        client.settimeout(timeout_s + 5)
        client.connect(f"/proc/self/fd/{folder}/{keeper.name}")  # a socket's path may have 107 bytes only
        client.sendall(f"{node.address} {node.port} {timeout_s}".encode())
        answer, descriptors, _, _ = socket.recv_fds(client, 64, 1)
    if descriptors:
        return socket.socket(fileno=descriptors[0])
    if answer == b"timeout":
        raise TimeoutError("connection timed out")
    code = int(answer or b"5")
    raise OSError(code, os.strerror(code))


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _last_line(path: Path) -> str:
    with suppress(OSError):
        return last_line(path.read_text(errors="replace")) or "nothing"
    return "nothing"
