"""Slurm's commands, on the machine that they run on. Their time and what they print are bounded."""

import getpass
import os
import shlex
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from seatrial.model.errors import LaunchError, MissingError, RemoteError
from seatrial.model.reason import Reason
from seatrial.model.testbed import Node, dial_tcp
from seatrial.platforms.commands import Finished, environment, run_bounded
from seatrial.remote.local_process import LocalProcess
from seatrial.text.printable import printable

_NOT_FOUND = 127


class CommandError(LaunchError):
    """A command ended with an error; `words` is what it printed last."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(reason)
        self.words = words


class Login:
    """This machine as the one that jobs are submitted from."""

    @property
    def place(self) -> str:
        """For messages."""
        return "this machine"

    @property
    def user(self) -> str:
        """Who submits jobs, and so whom the nodes let in."""
        return getpass.getuser()

    @property
    def lost_status(self) -> int | None:
        """The exit status of a command whose machine was lost; None where that cannot be."""
        return None

    def keep_files_in(self, folder: Path) -> None:
        """From now on, if the folder is there: what a login needs goes with it, however this process ends."""

    def dial(self, node: Node, timeout_s: float) -> socket.socket:
        """A stream to the sshd of a node of the job. Raises OSError."""
        return dial_tcp(node, timeout_s)

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> str:
        """What the command prints, from the user's home.

        Raises MissingError where the command is not there, CommandError where it fails, LaunchError where it does not
        end in time or prints more than 32 MiB.
        """
        status, output, errors = self._finished(argv, stdin, timeout_s)
        if status == _NOT_FOUND:
            raise MissingError(Reason.of("slurm-command-missing", command=argv[0], place=self.place))
        if status:
            raise self._failed(argv, _words(argv[0], errors) or _words(argv[0], output) or f"status {status}")
        return output

    def _finished(self, argv: Sequence[str], stdin: bytes, timeout_s: float) -> Finished:
        command, env = self._command(argv), self._environment()
        try:
            return run_bounded(command, env, timeout_s, stdin=stdin, folder=os.path.expanduser("~"))
        except FileNotFoundError:
            raise MissingError(self._not_found(argv)) from None
        except OSError as error:
            raise self._failed(argv, error.strerror or str(error)) from error
        except subprocess.TimeoutExpired:
            reason = Reason.of("slurm-command-timeout", command=argv[0], place=self.place, timeout_s=f"{timeout_s:g}")
            raise LaunchError(reason) from None

    def _not_found(self, argv: Sequence[str]) -> Reason:
        """That the program of this machine which runs the command is missing."""
        return Reason.of("slurm-command-missing", command=argv[0], place=self.place)

    def _failed(self, argv: Sequence[str], words: str) -> CommandError:
        shown = printable(words)[:1000]
        reason = Reason.of("slurm-command-failed", command=argv[0], place=self.place, problem=shown)
        return CommandError(reason, shown)

    def _command(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def _environment(self) -> dict[str, str]:
        """Without secrets: sbatch hands its environment to the job."""
        return environment(dropped=("SLURM_JOB", "SBATCH_"))

    def start(self, script: str) -> LocalProcess:
        """A script for the shell, from the user's home; its input stays open. Raises RemoteError."""
        try:
            return LocalProcess(self._command(["sh", "-c", script]), self._environment(), Path.home(), self.lost_status)
        except OSError as error:
            raise RemoteError(self._failed(["sh"], error.strerror or str(error)).reason) from error

    def shell(self, script: str, *, stdin: bytes = b"", timeout_s: float = 60) -> str:
        """As `run`, of a line for the shell."""
        return self.run(["sh", "-c", script], stdin=stdin, timeout_s=timeout_s)

    def write(self, path: str, text: str) -> None:
        """A file that only the user can read, in a folder that is there."""
        self.shell(f"umask 077 && cat > {shlex.quote(path)}", stdin=text.encode())


def _words(program: str, errors: str) -> str:
    """What Slurm's commands print of an error: often a line of what, and one of what came of it."""
    lines = (line.strip().removeprefix(f"{program}: ").removeprefix("error: ") for line in errors.splitlines()[-5:])
    return "; ".join(dict.fromkeys(line for line in lines if any(map(str.isalnum, line))))  # and no rows of stars
