"""Run a probe or another program on this machine, as one or several ranks, with limits on time and
output.

Every process gets its own process group, which is killed at the end. Standard library only; copied
to the nodes with the probes, and part of check.pyz.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

# The folder of the probes, or the archive that holds them
HERE = os.path.dirname(os.path.abspath(__file__))

_MAX_OUTPUT = 1 << 20  # bytes kept of the end of a stream
_MAX_PROBLEM = 300  # characters
_POLL_S = 0.05
_START = """\
import runpy, sys
sys.path.insert(0, {here!r})
runpy.run_module({name!r}, run_name="__main__", alter_sys=True)
"""
# Variables of this process's launcher, which do not apply to the ranks started here.
_OF_A_LAUNCHER = ("SLURM_", "PMI_", "PMIX_", "PET_", "TORCHELASTIC_", "OMPI_", "MPI_LOCAL")
_RANK_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)


@dataclass(frozen=True)
class Ended:
    """The result of a program: the end of rank 0's standard output, and what failed.

    `status` is that of the rank that failed first, negative for a signal; 0 if all ranks succeeded,
    None if time was up or the program could not be started. `problem` is one line, empty if nothing
    failed.
    """

    output: str
    status: int | None
    problem: str


class _Tail(threading.Thread):
    """A thread that reads a stream to its end and keeps the last bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._kept = b""
        self.start()

    def run(self) -> None:
        """Read until the end."""
        with self._stream:
            while block := os.read(self._stream.fileno(), 1 << 16):
                self._kept = (self._kept + block)[-_MAX_OUTPUT:]

    def text(self) -> str:
        """Return the kept text, after the program has ended."""
        self.join(1)  # all processes of the program were killed, so the stream ends
        return self._kept.decode(errors="replace")


class _Rank:
    """A process in its own process group, whose output is read while it runs."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.output, self.errors = (
            _Tail(stream) for stream in (self.process.stdout, self.process.stderr) if stream
        )

    def end(self) -> None:
        """Kill the process group."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except OSError:
            pass
        self.process.wait()

    def last_error(self) -> str:
        """Return the last line of standard error."""
        lines = [" ".join(line.split()) for line in self.errors.text().splitlines()]
        return next((line[:_MAX_PROBLEM] for line in reversed(lines) if line), "")


def run_probe(name: str, arguments: Sequence[str], timeout_s: float, ranks: int = 1) -> Ended:
    """Run a probe as `ranks` processes of this machine, which meet on its loopback interface."""
    return run(
        [sys.executable, "-c", _START.format(here=HERE, name=name), *arguments], timeout_s, ranks
    )


def run(command: Sequence[str], timeout_s: float, ranks: int = 1) -> Ended:
    """Run a program as `ranks` processes of this machine, until all have ended or one has
    failed.
    """
    deadline = time.monotonic() + timeout_s
    with socket.socket() as sock:  # a free port, at which the ranks meet
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    started = []
    try:
        with _deferred_sigterm():
            for rank in range(ranks):
                started.append(_Rank(command, _environment(rank, ranks, port)))
        status, problem = _outcome(started, deadline, f"did not end within {timeout_s:g} s")
    except OSError as error:
        status = None
        problem = f"cannot start: {error.strerror}"
    finally:
        for process in started:
            process.end()
    output = started[0].output.text() if started else ""
    return Ended(output, status, problem)


@contextmanager
def _deferred_sigterm() -> Iterator[None]:
    """Defer SIGTERM, whose handler may raise, while a process is being started, so that it can be
    ended.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    received = []
    signal.signal(signal.SIGTERM, lambda *signalled: received.append(signalled))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        if received:
            handler(*received[0])


def _outcome(ranks: Sequence[_Rank], deadline: float, late: str) -> tuple[int | None, str]:
    """Return (status, problem) of the rank that failed first; a stopped rank counts first, as the
    others wait for it.
    """
    failed = _first_failure(ranks, deadline)
    if failed is None and all(rank.process.poll() == 0 for rank in ranks):
        return 0, ""
    for number, rank in enumerate(ranks):
        if _is_stopped(rank.process.pid):
            return None, f"{_named(number, ranks)}is stopped"
    if failed is None:
        return None, late
    status: int = ranks[failed].process.returncode
    if status >= 0:
        problem = ranks[failed].last_error() or f"ended with status {status}"
    else:
        hint = " (out of memory, or killed by hand)" if -status == signal.SIGKILL else ""
        problem = f"ended by {signal.Signals(-status).name}{hint}"
    return status, _named(failed, ranks) + problem


def _first_failure(ranks: Sequence[_Rank], deadline: float) -> int | None:
    """Return the first rank that fails, preferably one that a signal ended.

    None if none has failed before the deadline.
    """
    while time.monotonic() < deadline:
        statuses = [rank.process.poll() for rank in ranks]
        failed = sorted((status > 0, number) for number, status in enumerate(statuses) if status)
        if failed:
            return failed[0][1]
        if None not in statuses:
            break
        time.sleep(_POLL_S)
    return None


def _named(number: int, ranks: Sequence[_Rank]) -> str:
    return f"rank {number}: " if len(ranks) > 1 else ""


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False


def _environment(rank: int, ranks: int, port: str) -> dict[str, str]:
    """Return this process's variables without those of a launcher; with several ranks, also the
    variables of the rank.
    """
    kept = {name: value for name, value in os.environ.items() if not _is_of_a_launcher(name)}
    if ranks == 1:
        return kept
    place = (rank, ranks, rank, ranks, 0, "127.0.0.1", port)
    return {
        **kept,
        **{name: str(value) for name, value in zip(_RANK_VARIABLES, place)},
    }


def _is_of_a_launcher(name: str) -> bool:
    return name in _RANK_VARIABLES or (
        name.startswith(_OF_A_LAUNCHER) and not name.startswith("OMPI_ALLOW")
    )
