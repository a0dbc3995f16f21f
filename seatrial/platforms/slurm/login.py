"""Run Slurm's commands, on this machine or on a login node, with bounds on their time and
output.
"""

import getpass
import os
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from seatrial.model.errors import LaunchError, MissingError, RemoteError
from seatrial.model.reason import Reason
from seatrial.model.testbed import Node, dial_tcp
from seatrial.platforms import commands, openssh
from seatrial.platforms.commands import Finished, run_bounded
from seatrial.platforms.openssh import (
    SSH_FAILED,
    client_config,
    login_options,
    read_options,
    reason_of,
    tunnel,
)
from seatrial.platforms.slurm import SlurmPlatform
from seatrial.platforms.state import ssh_config_file
from seatrial.remote.command import LocalProcess
from seatrial.text.printable import printable

# sshd's sessions are no login shells, but some sites set the path of Slurm's commands only there.
_WITH_PROFILE = """\
command -v sbatch >/dev/null || . /etc/profile </dev/null >/dev/null 2>&1 || :
exec "$@"
"""


class CommandError(LaunchError):
    """A command failed; `message` is the end of its output."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(reason)
        self.message = message


class Login:
    """This machine as the login node."""

    place = "this machine"  # name of this machine in messages
    # The exit status of a command whose connection was lost; None without connection
    lost_status: int | None = None

    @property
    def user(self) -> str:
        """The user who submits jobs, and whom the nodes accept."""
        return getpass.getuser()

    def dial(self, node: Node, timeout_s: float) -> socket.socket:
        """Return a stream to the sshd of a node of the job. Raises OSError."""
        return dial_tcp(node, timeout_s)

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> str:
        """Run a command from the user's home and return its output.

        Raises MissingError if the command is missing, CommandError if it fails, LaunchError if it
        does not end in time.
        """
        status, output, errors = self._finished(argv, stdin, timeout_s)
        if status == 127:  # a shell's exit status for a missing command
            raise MissingError.of("slurm-command-missing", command=argv[0], place=self.place)
        if status:
            raise self._failed(
                argv, _message(argv[0], errors) or _message(argv[0], output) or f"status {status}"
            )
        return output

    def _finished(self, argv: Sequence[str], stdin: bytes, timeout_s: float) -> Finished:
        command = self._command(argv)
        env = self._environment()
        try:
            return run_bounded(command, env, timeout_s, stdin=stdin, folder=os.path.expanduser("~"))
        except FileNotFoundError:
            raise MissingError(self._not_found(argv)) from None
        except OSError as error:
            raise self._failed(argv, error.strerror or str(error)) from error
        except subprocess.TimeoutExpired:
            late = f"it did not end within {timeout_s:g} s"
            raise LaunchError.of(
                "slurm-command-failed", command=argv[0], place=self.place, problem=late
            ) from None

    def _not_found(self, argv: Sequence[str]) -> Reason:
        """Return the reason if the program is missing on this machine; else None."""
        return Reason.of("slurm-command-missing", command=argv[0], place=self.place)

    def _failed(self, argv: Sequence[str], message: str) -> CommandError:
        shown = printable(message)[:1000]
        return CommandError(
            Reason.of("slurm-command-failed", command=argv[0], place=self.place, problem=shown),
            shown,
        )

    def _command(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def _environment(self) -> dict[str, str]:
        """Return the environment without secrets, since sbatch passes it to the job."""
        return commands.environment(dropped=("SLURM_JOB", "SBATCH_"))

    def start(self, script: str) -> LocalProcess:
        """Start a script in the shell, from the user's home; its input stays open.

        Raises RemoteError.
        """
        try:
            return LocalProcess(
                self._command(["sh", "-c", script]),
                self._environment(),
                Path.home(),
                self.lost_status,
            )
        except OSError as error:
            raise RemoteError(self._failed(["sh"], error.strerror or str(error)).reason) from error

    def shell(self, script: str, *, stdin: bytes = b"", timeout_s: float = 60) -> str:
        """Run a line of shell, like `run`."""
        return self.run(["sh", "-c", script], stdin=stdin, timeout_s=timeout_s)

    def write(self, path: str, text: str) -> None:
        """Write a file that only the user can read, in an existing folder."""
        self.shell(f"umask 077 && cat > {shlex.quote(path)}", stdin=text.encode())


def rows(printed: str, columns: int) -> Iterator[list[str]]:
    """Yield the cells of each line printed by a --format such as %N|%T|%E, padded with "" to
    `columns`.
    """
    for line in printed.splitlines():
        cells = line.strip().split("|", columns - 1)
        yield cells + [""] * (columns - len(cells))


def _message(program: str, errors: str) -> str:
    """Return the last lines of a failed Slurm command: often one for the error and one for the
    consequence.
    """
    lines = (
        line.strip().removeprefix(f"{program}: ").removeprefix("error: ")
        for line in errors.splitlines()[-5:]
    )
    # Skip lines without letters, such as rows of stars
    return "; ".join(dict.fromkeys(line for line in lines if any(map(str.isalnum, line))))


class RemoteLogin(Login):
    """A login node that the cluster file names."""

    lost_status = SSH_FAILED

    def __init__(self, settings: SlurmPlatform, host: str) -> None:
        self._settings = settings
        self._host = host
        self.place = host
        self._turn = threading.Semaphore(8)  # sshd drops some of more than ten logins (MaxStartups)

    @cached_property
    def user(self) -> str:
        return self.run(["id", "-un"]).strip()

    def config(self) -> str:
        """Return the configuration of ssh for the login."""
        settings = self._settings
        options = list(login_options(settings))
        return client_config(
            {(self._host,): options} if options else {},
            settings.login_timeout_s,
            settings.ssh_config,
        )

    def dial(self, node: Node, timeout_s: float) -> socket.socket:
        with self._turn:
            return tunnel(self._ssh, self._host, f"[{node.address}]:{node.port}", timeout_s)

    @cached_property
    def _ssh(self) -> list[str]:
        return ["ssh", "-F", str(ssh_config_file(self.config()))]

    def _command(self, argv: Sequence[str]) -> list[str]:
        return [*self._ssh, self._host, shlex.join(["sh", "-c", _WITH_PROFILE, "sh", *argv])]

    def _environment(self) -> dict[str, str]:
        return openssh.environment()

    def _finished(self, argv: Sequence[str], stdin: bytes, timeout_s: float) -> Finished:
        with self._turn:
            finished = super()._finished(argv, stdin, timeout_s + self._settings.login_timeout_s)
        if finished.status == SSH_FAILED:
            raise LaunchError(reason_of(self._host, finished.errors, self._options))
        return finished

    def _not_found(self, argv: Sequence[str]) -> Reason:
        return Reason.of("ssh-missing")

    def _options(self) -> dict[str, str]:
        """Return the configuration of ssh for the login node."""
        return read_options(
            run_bounded([*self._ssh, "-G", self._host], openssh.environment(), 20).output
        )


def login_of(settings: SlurmPlatform) -> Login:
    """Return the login that the settings name."""
    return RemoteLogin(settings, settings.host) if settings.host else Login()
