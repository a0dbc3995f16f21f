"""Run programs in parallel on this node, as requests on standard input say.

    programs.py

Standard input, a line each:
    {"id", "programs": [[word, ...], ...], "ports": [port, ...], "seconds": limit}

Output for each:
    with ports, {"id", "listening": true} once all of them are listened on, false if that does not
    happen and the programs are ended; then {"id", "ended": [{"status", "output"}, ...]}, in order

A status is null for a program that was ended at the limit, and 127 for a missing one. The process
ends with its standard input, and so do the programs. Standard library only.
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

MOST_BYTES = 4096  # bytes kept of the end of a program's output
MOST_FILE = 64 << 20  # most bytes that a program may write into a file, including its output
# Lines that perftest prints for each queue pair, which are left out
LEFT_OUT = re.compile(r"^ *(?:(?:local|remote) address:|GID:|-{20,}|$)")
POLL_S = 0.02
LISTEN = "0A"  # state "listening" in /proc/net/tcp
MOST_S = 3600  # the process ends after this time without a request


def main():
    """Answer requests until standard input ends."""
    for line in requests():
        request = json.loads(line)
        started = [Started(words) for words in request["programs"]]
        try:
            deadline = time.monotonic() + request["seconds"]
            if request["ports"]:
                is_up = listening(request["ports"], started, deadline)
                say({"id": request["id"], "listening": is_up})
                deadline = deadline if is_up else 0.0
            for program in started:
                program.wait(deadline)
        finally:
            for program in started:
                program.end()
        say({"id": request["id"], "ended": [program.result() for program in started]})


def requests():
    """Yield the lines of standard input; without any for `MOST_S` the process ends."""
    while True:
        signal.alarm(MOST_S)
        line = sys.stdin.readline()
        signal.alarm(0)
        if not line:
            return
        yield line


def say(answer):
    """Print an answer."""
    print(json.dumps(answer), flush=True)


class Started:
    """A running program, whose output goes into an unnamed file."""

    def __init__(self, words):
        self.output = tempfile.TemporaryFile()  # noqa: SIM115
        self.status = None
        self.process = None
        try:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=self.output,
                start_new_session=True,
            )
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (MOST_FILE, MOST_FILE))
        except OSError as error:
            self.status = 127
            self.output.write(str(error).encode())

    def running(self):
        """Return whether the program runs."""
        return self.process is not None and self.process.poll() is None

    def wait(self, deadline):
        """Wait for its end, at most until the deadline."""
        if self.process is None:
            return
        try:
            self.status = self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass

    def end(self):
        """Kill the program and what it has started."""
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except OSError:
            pass
        self.process.wait()

    def result(self):
        """Return the status and the end of the output."""
        size = self.output.seek(0, os.SEEK_END)
        self.output.seek(max(0, size - 16 * MOST_BYTES))
        lines = self.output.read(16 * MOST_BYTES).decode(errors="replace").splitlines()
        text = "\n".join(line for line in lines if not LEFT_OUT.match(line))
        self.output.close()
        return {"status": self.status, "output": text[-MOST_BYTES:]}


def listening(ports, started, deadline):
    """Wait until all ports are listened on; return false at the deadline, or if a program ends."""
    while time.monotonic() < deadline and all(program.running() for program in started):
        if set(ports) <= open_ports():
            return True
        time.sleep(POLL_S)
    return False


def open_ports():
    """Return the TCP ports that something listens on in this network namespace."""
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as lines:
                rows = [line.split() for line in lines][1:]
        except OSError:
            continue
        ports |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTEN}
    return ports


if __name__ == "__main__":
    main()
