"""How long one node takes to read the SSH banner of its 1,023 peers, by seatrial/remote/probes/reach.py.

    .venv/bin/python benchmarks/reach.py [PEERS]

One process plays all peers, on loopback addresses of their own, so it takes part of the time that is measured; in a
cluster every peer is a machine, all nodes try at the same time, and each sshd answers as many connections as it opens.
On two cores, OpenSSH 9.2 left out (12 ms of processor time per connection, 13 s for 1,023 on one core):

    1023 peers: 0.24 s, 0.15 s of processor time, 14 MiB, 30 bytes of answer, failed: none
"""

import json
import resource
import selectors
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Any

from seatrial.remote.probes import probe

PORT = 2222
FIRST = IPv4Address("127.1.0.1")


def answer(listeners: list[socket.socket]) -> None:
    """Send a banner to every client until the last listener is closed."""
    with selectors.DefaultSelector() as selector:
        for listener in listeners:
            selector.register(listener, selectors.EVENT_READ)
        while all(listener.fileno() >= 0 for listener in listeners):
            for key, _ in selector.select(0.2):
                with suppress(OSError):
                    connection, _ = key.fileobj.accept()  # type: ignore[union-attr]
                    with connection:
                        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


def main(count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    addresses = [str(FIRST + index) for index in range(count)]
    listeners = [socket.create_server((address, PORT)) for address in addresses]
    thread = threading.Thread(target=answer, args=(listeners,))
    thread.start()
    try:
        measure([[address, PORT] for address in addresses])
        measure([[address, PORT + 1] for address in addresses])  # where nothing listens
    finally:
        for listener in listeners:
            listener.close()
        thread.join()


def measure(peers: list[list[Any]]) -> None:
    request = json.dumps({"peers": peers, "timeout_s": 5, "parallel": 128})
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, str(probe("reach"))], input=request, capture_output=True, text=True, check=True
    )
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    failed = {reason: len(places) for reason, places in json.loads(done.stdout)["failed"].items()}
    print(
        f"{len(peers)} peers: {seconds:.2f} s, {cpu_s:.2f} s of processor time, {after.ru_maxrss / 1024:.0f} MiB,"
        f" {len(done.stdout)} bytes of answer, failed: {failed or 'none'}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1023)
