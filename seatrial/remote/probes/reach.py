"""Open TCP to the sshd of every peer, many at once, and read its banner: who is not reached, and
why. One JSON line.

Standard input: {"peers": [[address, port], ...], "timeout_s": seconds for one peer, "parallel":
count} Output line:    {"tried": count, "failed": {"refused": [position in peers, ...], "timeout":
[...], ...}}

"failed" has a peer once and leaves out the reasons that no peer has: "refused", "timeout" (no
connection, or no banner, in time), "no-route", "closed" (before its banner), "other-banner" (it is
no SSH server), "max-startups" (its sshd has too many connections), "local" (this node may not open
the connection: its files, its ports, its memory). There is no login and nothing of what a peer says
is kept, so a peer costs one open file and MAX_BANNER bytes, for `timeout_s` at most.
"""

import errno
import json
import selectors
import socket
import sys
import time
from contextlib import suppress
from typing import Any

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


class Connection:
    """A connection attempt: the peer's position in the request, the socket, the data received, and
    the deadline.
    """

    def __init__(self, position, sock, deadline):
        self.position = position
        self.sock = sock
        self.deadline = deadline
        self.received = b""


def main():
    """Answer the request."""
    request = json.load(sys.stdin)
    failed: "dict[str, list[int]]" = {}
    for position, reason in reach(request["peers"], request["timeout_s"], request["parallel"]):
        if reason:
            failed.setdefault(reason, []).append(position)
    print(json.dumps({"tried": len(request["peers"]), "failed": failed}), flush=True)


def reach(peers, timeout_s, parallel):
    """Yield (position, reason) of every peer when it is known; the reason is "" if the peer was
    reached.
    """
    waiting = list(enumerate(peers))[::-1]
    with selectors.DefaultSelector() as selector:
        while waiting or selector.get_map():
            while waiting and len(selector.get_map()) < parallel:
                position, (address, port) = waiting.pop()
                reason = start(selector, position, address, port, timeout_s)
                if reason is not None:
                    yield position, reason
            yield from advance(selector)


def start(selector, position, address, port, timeout_s):
    """Start to connect; return the reason if that fails at once, else None."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM
        )[0]
        sock = socket.socket(family, kind, protocol)
    except socket.gaierror:
        return "no-route"
    except OSError:
        return "local"
    sock.setblocking(False)
    code = sock.connect_ex(where)
    if code not in (0, errno.EINPROGRESS):
        sock.close()
        return REASONS.get(code, "local")
    selector.register(
        sock, selectors.EVENT_READ, Connection(position, sock, time.monotonic() + timeout_s)
    )
    return None


def advance(selector):
    """Read data that has arrived, and give up connections after their deadline."""
    open_now: "list[Any]" = [key.data for key in selector.get_map().values()]
    patience = min((one.deadline for one in open_now), default=0) - time.monotonic()
    for key, _ in selector.select(max(0, patience)):
        reason = read(key.data)
        if reason is not None:
            yield end(selector, key.data), reason
    now = time.monotonic()
    for one in open_now:
        if one.sock.fileno() >= 0 and one.deadline <= now:
            yield end(selector, one), "timeout"


def end(selector, one):
    """Close a connection; return the position of its peer."""
    selector.unregister(one.sock)
    one.sock.close()
    return one.position


def read(one):
    """Return why the peer is not reached, "" if its banner has arrived, None if undecided."""
    try:
        data = one.sock.recv(MAX_BANNER - len(one.received))
    except BlockingIOError:
        return None
    except OSError as failure:
        return REASONS.get(failure.errno or 0, "local")
    one.received += data
    if one.received.startswith(MAX_STARTUPS):
        return "max-startups"
    if any(line.startswith(VERSIONS) for line in one.received.split(b"\n")):
        with suppress(OSError):
            one.sock.shutdown(socket.SHUT_RDWR)
        return ""
    if not data:
        return "other-banner" if one.received else "closed"
    return "other-banner" if len(one.received) >= MAX_BANNER else None


if __name__ == "__main__":
    main()
