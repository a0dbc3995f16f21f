"""Measure what TCP carries between this node and a peer, one direction after the other; one JSON line.

Standard input: {"peer": {"address", "port"}, "serve": command that starts this program's other part on the peer,
                 "max_bytes", "max_seconds": per direction, "timeout_s": for the connection to come up}
Output line:    {"out": {"bytes", "seconds"}, "in": {"bytes", "seconds"}}, or {"error": text}

    stream.py serve MAX_BYTES MAX_SECONDS      the peer's part, started over SSH; serves both directions and ends

The receiver takes the time, from the first byte on: setting up does not count, nor does what is only in a buffer.
Each direction has a connection of its own, because what a slow one still holds back would delay the other.
"""

import hmac
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from typing import Any

CHUNK = 256 * 1024
HELLO = "seatrial-stream "  # a line of its own: a login may greet first
TOKEN_BYTES = 16
PACKET_BYTES = 1500
MAX_ANSWER = 64 * 1024  # bytes of what the peer says, its greeting included
MAX_ERROR = 4096  # bytes at the end of what ssh printed, in which its last line is looked for
LIMITED = ["sh", "-c", 'ulimit -f 32768 2>/dev/null || :; exec "$@"', "sh"]  # 16 MiB of errors, then ssh is ended
FIRST_BYTE_S = 3.0  # a lost packet or two
SERVE_S = 60  # a peer whose other side has vanished ends by itself


def main():
    if sys.argv[1:2] == ["serve"]:
        signal.alarm(SERVE_S)
        serve(int(sys.argv[2]), float(sys.argv[3]))
    else:
        ask()


def ask():
    with tempfile.TemporaryFile() as errors:
        try:
            answer = measure(json.load(sys.stdin), errors)
        except (OSError, ValueError) as failure:
            answer = {"error": last_line(errors) or str(failure) or type(failure).__name__}
    print(json.dumps(answer), flush=True)


def serve(max_bytes, max_seconds):
    """Listen where SSH came in; receive on the first connection and say what came, send on the second."""
    own = os.environ["SSH_CONNECTION"].split()[2]
    token = os.urandom(TOKEN_BYTES)
    with socket.socket(socket.AF_INET6 if ":" in own else socket.AF_INET) as listener:
        listener.bind((own, 0))
        listener.listen()
        print(HELLO + json.dumps([own, listener.getsockname()[1], token.hex()]), flush=True)
        with accept(listener, token) as peer:
            peer.sendall(json.dumps(receive(peer, max_bytes, max_seconds)).encode() + b"\n")
            wait_readable(peer, FIRST_BYTE_S)  # until the peer has read it
        with accept(listener, token) as peer:
            send(peer, max_bytes, FIRST_BYTE_S + max_seconds)


def accept(listener, token):
    """The next connection that knows the token."""
    while True:
        peer, _ = listener.accept()
        peer.settimeout(FIRST_BYTE_S)
        try:
            if hmac.compare_digest(peer.recv(TOKEN_BYTES, socket.MSG_WAITALL), token):
                return peer
        except OSError:
            pass
        peer.close()


def measure(request, errors):
    peer, max_bytes, max_seconds = request["peer"], request["max_bytes"], request["max_seconds"]
    ssh = subprocess.Popen(
        [*LIMITED, "ssh", "-o", "BatchMode=yes", "-p", str(peer["port"]), peer["address"], request["serve"]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        bufsize=0,
    )
    try:
        address, port, token = await_hello(ssh.stdout, request["timeout_s"])
        with connect(address, port, token) as there:
            send(there, max_bytes, FIRST_BYTE_S + max_seconds)
            there.settimeout(FIRST_BYTE_S + max_seconds)
            out = read_json(there.makefile("rb").readline(MAX_ANSWER))
        with connect(address, port, token) as there:
            return {"out": out, "in": receive(there, max_bytes, max_seconds)}
    finally:
        ssh.kill()
        ssh.communicate()


def await_hello(output: Any, timeout_s: float) -> "list[Any]":
    """Return address, port and token of the peer, from a line in `output`, a pipe of bytes."""
    deadline, printed = time.monotonic() + timeout_s, b""
    while wait_readable(output, deadline - time.monotonic()):
        data = os.read(output.fileno(), CHUNK)
        if not data:
            raise OSError("the peer's part of the measurement does not start")
        printed += data
        for line in printed.decode(errors="replace").splitlines(keepends=True):
            if line.startswith(HELLO) and line.endswith("\n"):
                return read_listener(read_json(line[len(HELLO) :]))
        if len(printed) > MAX_ANSWER:
            raise OSError("the peer prints more than {} bytes before it listens".format(MAX_ANSWER))
    raise OSError("no answer within {:g} s".format(timeout_s))


def read_listener(value: Any) -> "list[Any]":
    """Address, port and token as `serve` prints them. Raises ValueError for anything else."""
    if not isinstance(value, list) or [type(part) for part in value] != [str, int, str] or not 0 < value[1] < 65536:
        raise ValueError("the peer does not say where it listens")
    if not re.fullmatch("[0-9a-f]{%d}" % (2 * TOKEN_BYTES), value[2]):
        raise ValueError("the peer gives no token")
    return value


def read_json(text):
    """Raises ValueError, also for what is nested too deep or is no text."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the peer's answer is nested too deep") from None


def connect(address, port, token):
    there = socket.create_connection((address, port), FIRST_BYTE_S)
    there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing drops what is not sent
    there.sendall(bytes.fromhex(token))
    return there


def send(there, max_bytes, max_seconds):
    """Write until everything is out, time is up or the other side has had enough: it answers or closes."""
    block, left, deadline = os.urandom(CHUNK), max_bytes, time.monotonic() + max_seconds
    there.setblocking(False)
    while left > 0 and time.monotonic() < deadline:
        answered, writable, _ = select.select([there], [there], [], 0.05)
        if answered:
            return
        if writable:
            left -= there.send(block[: min(left, CHUNK)])


def receive(there, max_bytes, max_seconds):
    """Count what arrives within `max_seconds` of its first byte; one packet if nothing does, as no rate is 0."""
    waited, buffer = time.monotonic(), bytearray(CHUNK)
    if not wait_readable(there, FIRST_BYTE_S):
        return {"bytes": PACKET_BYTES, "seconds": FIRST_BYTE_S}
    started, count = time.monotonic(), 0
    while count < max_bytes and wait_readable(there, started + max_seconds - time.monotonic()):
        got = there.recv_into(buffer, min(CHUNK, max_bytes - count))
        if not got:
            raise OSError("the connection ended after {} bytes, {:.1f} s".format(count, time.monotonic() - waited))
        count += got
    return {"bytes": count, "seconds": max(time.monotonic() - started, 1e-6)}


def wait_readable(source, timeout_s):
    return bool(select.select([source], [], [], max(timeout_s, 0))[0])


def last_line(errors):
    errors.seek(-min(MAX_ERROR, errors.seek(0, 2)), 2)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


if __name__ == "__main__":
    main()
