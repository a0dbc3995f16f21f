"""The keeper of one local testbed: makes its network, starts its nodes, hands out connections into
it.

    keeper.py STATE_FOLDER

It runs as process 1 of its own PID namespace and in the network namespace that holds the run's
bridge. When it ends, however it ends, the kernel ends everything below it: node scripts, sshd,
sessions, mpirun. It ends when its standard input closes, so a run that is killed takes its nodes
along; a number of seconds that came before is how long it stays even so. Standard library only.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


def main(state: Path) -> None:
    """Make the network, start the nodes, print "ready", and stay until standard input closes.

    Ends with the status of the network's script if that fails.
    """
    spec = json.loads((state / "spec.json").read_text())
    if spec["private_run"]:  # a plain user may not write to /run, where `ip netns` stores names
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
        os.makedirs("/run/netns")
    network = subprocess.run(
        ["sh", str(state / "switch.sh")], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
    )
    if network.returncode:
        sys.exit(network.returncode)  # the log ends with the message of the failed command
    nodes = [_start_node(node) for node in spec["nodes"]]
    _wait_for_networks(spec, nodes)
    server = socket.socket(socket.AF_UNIX)
    os.chdir(state)  # a socket path is limited to 107 bytes, which a home directory may exceed
    server.bind("keeper.sock")
    server.listen(256)
    threading.Thread(target=_serve, args=(server,), daemon=True).start()
    print("ready", flush=True)
    stay_s = sys.stdin.buffer.read()  # returns when the run closes it, or dies
    time.sleep(float(stay_s or 0))
    for script in nodes:
        script.kill()
    for script in nodes:
        script.wait()
    left = [node["namespace"] for node in spec["nodes"]]
    for namespace in left:
        delete = ["ip", "netns", "del", namespace]
        subprocess.run(delete, check=False, stderr=subprocess.DEVNULL)
    if not any(os.path.exists(f"/run/netns/{namespace}") for namespace in left):
        # Otherwise kept, so that `reap` finds the namespaces
        shutil.rmtree(state, ignore_errors=True)


def _wait_for_networks(spec: dict[str, Any], nodes: "list[subprocess.Popen[bytes]]") -> None:
    """Wait until every node has its address or its script has ended, since connecting earlier costs
    a second of ARP.
    """
    deadline = time.monotonic() + 20 + 0.5 * len(nodes)  # generous, as the machine may be busy
    waiting = list(zip(spec["nodes"], nodes, strict=True))
    while waiting and time.monotonic() < deadline:
        waiting = [
            (node, script)
            for node, script in waiting
            if not os.path.exists(node["up"]) and script.poll() is None
        ]
        # Checking uses processor time that nodes need to start
        time.sleep(0.005 if len(waiting) < 16 else 0.05)


def _start_node(node: dict[str, Any]) -> "subprocess.Popen[bytes]":
    """Start the script of a node in its network namespace, with its own processes and mounts."""
    enter = ["nsenter", f"--net=/run/netns/{node['namespace']}"]
    isolate = ["unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child"]
    with open(node["log"], "ab") as log:
        return subprocess.Popen(
            [*enter, *isolate, "sh", node["script"]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _serve(server: socket.socket) -> None:
    """Serve requests for connections, each in a thread, until the process ends."""
    while True:
        client, _ = server.accept()
        threading.Thread(target=_dial, args=(client,), daemon=True).start()


def _dial(client: socket.socket) -> None:
    """Serve one request: "ADDRESS PORT TIMEOUT_S".

    The answer is the connected socket, or the errno as text.
    """
    with client, contextlib.suppress(OSError, ValueError):
        address, port, timeout_s = client.recv(256).decode().split()
        try:
            with socket.create_connection((address, int(port)), float(timeout_s)) as connection:
                connection.settimeout(None)
                socket.send_fds(client, [b"ok"], [connection.fileno()])
        except TimeoutError:
            client.sendall(b"timeout")
        except OSError as error:
            client.sendall(str(error.errno).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
