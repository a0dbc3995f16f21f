"""The command `runai`, of this machine. Its time and what it prints are bounded."""

import socket
import subprocess
import threading
import time
from collections.abc import Sequence

from seatrial.model.errors import LaunchError, MissingError
from seatrial.model.reason import Reason
from seatrial.platforms.commands import environment, run_bounded
from seatrial.platforms.runai.config import RunaiPlatform
from seatrial.platforms.runai.workload import DescribedWorkload, command_argv, exec_argv, read_workload, workload_name
from seatrial.text.printable import printable

_GONE_S, _PAUSE_S = 180.0, 0.5
_ABSENT = ("not found", "notfound", "does not exist")

# Joins standard input and output with a port of the pod.
_TUNNEL = """\
import os, socket, sys, threading
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def up():
    while True:
        data = os.read(0, 65536)
        if not data:
            break
        s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while True:
    data = s.recv(65536)
    if not data:
        break
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
os._exit(0)
"""


class CommandError(LaunchError):
    """A command ended with an error; `words` is what it printed."""

    def __init__(self, words: str) -> None:
        super().__init__(Reason.of("runai-command-failed", problem=words))
        self.words = words


class Client:
    """What is asked of one project."""

    def __init__(self, settings: RunaiPlatform) -> None:
        self._settings = settings

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> str:
        """What the command prints.

        Raises MissingError where `runai` is not there, CommandError where it fails, LaunchError where it does not end.
        """
        try:
            status, output, errors = run_bounded(argv, _environment(), timeout_s, stdin=stdin)
        except FileNotFoundError:
            raise MissingError(Reason.of("runai-command-missing")) from None
        except OSError as error:
            raise CommandError(error.strerror or str(error)) from error
        except subprocess.TimeoutExpired:
            raise LaunchError(Reason.of("runai-command-timeout", timeout_s=f"{timeout_s:g}")) from None
        if status:
            raise CommandError(_words(errors) or _words(output[-1000:]))
        return output

    def describe(self, run_id: str) -> DescribedWorkload | None:
        """What RunAI knows of the run's workload; None where there is none."""
        argv = command_argv(self._settings, "describe", run_id, "--output=json")
        try:
            return read_workload(self.run(argv))
        except CommandError as error:
            if is_absent(error):
                return None
            raise

    def delete(self, run_id: str) -> None:
        """Delete the workload, if there is one, and wait until its pods are gone. Raises LaunchError if they stay."""
        try:
            self.run(command_argv(self._settings, "delete", run_id), timeout_s=120)
        except CommandError as error:
            if not is_absent(error):
                raise
        deadline = time.monotonic() + _GONE_S
        while self.describe(run_id) is not None:  # its phase is Deleting
            if time.monotonic() > deadline:
                raise LaunchError(
                    Reason.of("runai-workload-remains", workload=workload_name(run_id), limit_s=f"{_GONE_S:g}")
                )
            time.sleep(_PAUSE_S)

    def in_pod(self, run_id: str, pod: str, script: str, *, stdin: bytes = b"", timeout_s: float) -> str:
        """What a line for the shell prints in a pod."""
        wait = f"--pod-running-timeout={int(timeout_s)}s"  # a workload runs when its first pod does
        argv = exec_argv(self._settings, run_id, pod, ["sh", "-c", script], wait)
        return self.run(argv, stdin=stdin, timeout_s=timeout_s)

    def dial(self, run_id: str, pod: str, port: int, timeout_s: float) -> socket.socket:
        """A stream to a port of the pod, by `runai exec`: port-forward would open it to other users of this machine."""
        argv = exec_argv(self._settings, run_id, pod, [self._settings.python, "-c", _TUNNEL, str(port)])
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                tunnel = subprocess.Popen(
                    argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL, env=_environment()
                )
            except OSError as error:
                ours.close()
                raise MissingError(Reason.of("runai-command-missing")) from error
        threading.Thread(target=tunnel.wait, name=f"tunnel to {pod}", daemon=True).start()
        ours.settimeout(timeout_s)
        return ours


def _words(text: str) -> str:
    """On one line, for people."""
    return printable(" ".join(text.split()))[:1000]


def is_absent(error: CommandError) -> bool:
    return any(words in error.words.lower() for words in _ABSENT)


def _environment() -> dict[str, str]:
    """Of `runai`: without secrets, but for its own login."""
    return environment(kept=("RUNAI_",))
