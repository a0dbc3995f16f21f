"""Measure what TCP carries between this node and its peers, one direction after the other; JSON
lines.

    stream.py ADDRESS    of this node, by which its peers come

First line out:  {"port", "token"}: where it takes their streams Standard input:  {"id", "peer":
{"address", "port", "token"}, "max_bytes", "max_seconds": per direction}, a line each Output for
each: {"id", "out": {"bytes", "seconds"}, "in": {"bytes", "seconds"}}, or {"id", "error": text}

It ends with its standard input. The receiver takes the time, from the first byte on: setting up
does not count, nor does what is only in a buffer. Each direction has a connection of its own,
because what a slow one still holds back would delay the other.
"""

import hmac
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress

CHUNK = 256 * 1024
TOKEN_BYTES = 16
# Sent after the token: the direction, and the most bytes and seconds
ORDER = struct.Struct("!?Qd")
PACKET_BYTES = 1500
MAX_ANSWER = 64 * 1024  # most bytes of a peer's answer
FIRST_BYTE_S = 3.0  # time to recover from a lost packet or two
SILENT_S = 3600  # the process ends after this time without a request


def main():
    """Answer requests until standard input ends."""
    signal.alarm(SILENT_S)
    with listen(sys.argv[1]) as listener:
        token = os.urandom(TOKEN_BYTES)
        threading.Thread(target=serve, args=(listener, token), daemon=True).start()
        say({"port": listener.getsockname()[1], "token": token.hex()})
        for line in sys.stdin:
            signal.alarm(SILENT_S)
            request = json.loads(line)
            try:
                answer = measure(request["peer"], request["max_bytes"], request["max_seconds"])
            except (OSError, ValueError) as failure:
                answer = {"error": str(failure) or type(failure).__name__}
            answer["id"] = request["id"]
            say(answer)


def say(answer):
    """Print an answer."""
    print(json.dumps(answer), flush=True)


def listen(address):
    """Listen on this node's IP address; on all addresses if it is a name, or not local."""
    addresses = [(socket.AF_INET6 if ":" in address else socket.AF_INET, address)]
    for family, own in [*addresses, (socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")]:
        with suppress(OSError, ValueError):  # ValueError: without IPv6
            socket.inet_pton(family, own)
            return socket.create_server((own, 0), family=family, dualstack_ipv6=own == "::")
    raise OSError("it can listen on no address")


def serve(listener, token):
    """Accept one connection after another; with the right token, receive and report the traffic, or
    send.
    """
    while True:
        peer, _ = listener.accept()
        peer.settimeout(FIRST_BYTE_S)
        try:
            hello = peer.recv(TOKEN_BYTES + ORDER.size, socket.MSG_WAITALL)
            if hmac.compare_digest(hello[:TOKEN_BYTES], token):
                sends, max_bytes, max_seconds = ORDER.unpack(hello[TOKEN_BYTES:])
                if sends:
                    send(peer, max_bytes, FIRST_BYTE_S + max_seconds)
                else:
                    peer.sendall(json.dumps(receive(peer, max_bytes, max_seconds)).encode() + b"\n")
                wait_readable(peer, FIRST_BYTE_S)  # until the peer has read it
        except (OSError, struct.error):
            pass
        peer.close()


def measure(peer, max_bytes, max_seconds):
    """Send to a peer, then receive from it; return the traffic of both."""
    with connect(peer, False, max_bytes, max_seconds) as there:
        send(there, max_bytes, FIRST_BYTE_S + max_seconds)
        there.settimeout(FIRST_BYTE_S + max_seconds)
        out = read_json(there.makefile("rb").readline(MAX_ANSWER))
    with connect(peer, True, max_bytes, max_seconds) as there:
        return {"out": out, "in": receive(there, max_bytes, max_seconds)}


def read_json(text):
    """Parse JSON. Raises ValueError, also if it is nested too deep or not text."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the peer's answer is nested too deep") from None


def connect(peer, sends, max_bytes, max_seconds):
    """Connect to a peer and request a transfer; `sends` is the direction."""
    there = socket.create_connection((peer["address"], peer["port"]), FIRST_BYTE_S)
    # Closing discards unsent data
    there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    there.sendall(bytes.fromhex(peer["token"]) + ORDER.pack(sends, max_bytes, max_seconds))
    return there


def send(there, max_bytes, max_seconds):
    """Send until everything is written, time is up, or the other side answers or closes."""
    block = os.urandom(CHUNK)
    left = max_bytes
    deadline = time.monotonic() + max_seconds
    there.setblocking(False)
    while left > 0 and time.monotonic() < deadline:
        answered, writable, _ = select.select([there], [there], [], 0.05)
        if answered:
            return
        if writable:
            left -= there.send(block[: min(left, CHUNK)])


def receive(there, max_bytes, max_seconds):
    """Return bytes and seconds received within `max_seconds` of the first byte; one packet if none
    arrives, so that no rate is 0.
    """
    waited = time.monotonic()
    buffer = bytearray(CHUNK)
    if not wait_readable(there, FIRST_BYTE_S):
        return {"bytes": PACKET_BYTES, "seconds": FIRST_BYTE_S}
    started = time.monotonic()
    count = 0
    while count < max_bytes and wait_readable(there, started + max_seconds - time.monotonic()):
        received = there.recv_into(buffer, min(CHUNK, max_bytes - count))
        if not received:
            raise OSError(
                "the connection ended after {} bytes, {:.1f} s".format(
                    count, time.monotonic() - waited
                )
            )
        count += received
    return {"bytes": count, "seconds": max(time.monotonic() - started, 1e-6)}


def wait_readable(source, timeout_s):
    """Return whether data arrives before the timeout."""
    return bool(select.select([source], [], [], max(timeout_s, 0))[0])


if __name__ == "__main__":
    main()
