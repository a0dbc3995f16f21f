"""Open TCP to the sshd of every peer, many at once, and read its banner: who is not reached, and
why. One JSON line.

Standard input: {"peers": [[address, port], ...], "timeout_s": seconds for one peer, "parallel":
count} Output line:    {"tried": count, "failed": {"refused": [position in peers, ...], "timeout":
[...], ...}}

"failed" has a peer once and leaves out the reasons that no peer has: "refused", "timeout" (no
connection, or no banner, in time), "no-route", "closed" (before its banner), "other-banner" (it is
no SSH server), "max-startups" (its sshd has too many connections), "local" (this node may not open
the connection: its files, its ports, its memory). There is no login and nothing of what a peer says
is kept, so a peer costs a thread, an open file and MAX_BANNER bytes, for `timeout_s` at most.
"""

import errno
import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

MAX_BANNER = 4096  # bytes; RFC 4253, 4.2: a server may send other lines of text before its version
VERSIONS = (b"SSH-2.0-", b"SSH-1.99-")
# Answer of sshd (8.3 or later) when it drops a connection
MAX_STARTUPS = b"Exceeded MaxStartups"
REASONS = {
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "timeout",
    errno.ENETUNREACH: "no-route",
    errno.EHOSTUNREACH: "no-route",
    errno.ENETDOWN: "no-route",
    errno.EACCES: "no-route",  # a route of the kind "prohibit", or a firewall of this node
    errno.EPERM: "no-route",
    errno.EINVAL: "no-route",  # a route of the kind "blackhole"
    errno.ECONNRESET: "closed",
    errno.EPIPE: "closed",
}


def main():
    """Answer the request."""
    request = json.load(sys.stdin)
    failed: "dict[str, list[int]]" = {}
    for position, reason in reach(request["peers"], request["timeout_s"], request["parallel"]):
        if reason:
            failed.setdefault(reason, []).append(position)
    print(json.dumps({"tried": len(request["peers"]), "failed": failed}), flush=True)


def reach(peers, timeout_s, parallel):
    """Yield (position, reason) of every peer; the reason is "" if the peer was reached."""
    with ThreadPoolExecutor(parallel) as pool:
        yield from enumerate(pool.map(lambda peer: problem(peer, timeout_s), peers))


def problem(peer, timeout_s):
    """Return why a peer, [address, port], is not reached; "" if its banner arrives in time."""
    deadline = time.monotonic() + timeout_s
    try:
        with socket.create_connection(peer, timeout_s) as sock:
            return problem_of_banner(sock, deadline)
    except socket.timeout:
        return "timeout"
    except socket.gaierror:
        return "no-route"
    except OSError as failure:
        return REASONS.get(failure.errno or 0, "local")


def problem_of_banner(sock, deadline):
    """Return why the peer's words are no banner of SSH; "" if they are."""
    received = b""
    while len(received) < MAX_BANNER:
        sock.settimeout(max(deadline - time.monotonic(), 0.001))
        data = sock.recv(MAX_BANNER - len(received))
        received += data
        if received.startswith(MAX_STARTUPS):
            return "max-startups"
        if any(line.startswith(VERSIONS) for line in received.split(b"\n")):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            return ""
        if not data:
            return "other-banner" if received else "closed"
    return "other-banner"


if __name__ == "__main__":
    main()
