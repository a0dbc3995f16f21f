"""Slurm's commands on a login node, by the ssh of this machine, and streams through it to the nodes."""

import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from seatrial.model.errors import LaunchError
from seatrial.model.reason import Reason
from seatrial.model.testbed import Node
from seatrial.platforms.commands import Finished
from seatrial.platforms.openssh.client import SSH_FAILED, environment, tunnel
from seatrial.platforms.openssh.client_config import client_config, login_options
from seatrial.platforms.openssh.failures import reason_of
from seatrial.platforms.openssh.settings import LoginSettings
from seatrial.platforms.slurm.config import SlurmPlatform
from seatrial.platforms.slurm.login import Login
from seatrial.platforms.state import write_private

_AT_ONCE = 8  # logins: sshd drops some of more than ten (MaxStartups)
# sshd's sessions are no login shells, which at some sites alone find Slurm's commands.
_WITH_PROFILE = """\
command -v sbatch >/dev/null || . /etc/profile </dev/null >/dev/null 2>&1 || :
exec "$@"
"""


class RemoteLogin(Login):
    """The login node that a cluster file names."""

    def __init__(self, settings: SlurmPlatform, host: str) -> None:
        self._settings, self._host = settings, host
        self._turn = threading.Semaphore(_AT_ONCE)
        self._kept: Path | None = None  # the file with ssh's configuration, in the folder of a run

    @property
    def place(self) -> str:
        return self._host

    @cached_property
    def user(self) -> str:
        return self.run(["id", "-un"]).strip()

    def config(self) -> str:
        """Of ssh, for the login."""
        settings = self._settings
        login = LoginSettings(user=settings.user, port=settings.port, jump=settings.jump, key_file=settings.key_file)
        options = list(login_options(login))
        return client_config({(self._host,): options} if options else {}, settings.login_timeout_s, settings.ssh_config)

    @property
    def lost_status(self) -> int:
        return SSH_FAILED

    def dial(self, node: Node, timeout_s: float) -> socket.socket:
        with self._turn:
            return tunnel(self._ssh, self._host, f"[{node.address}]:{node.port}", timeout_s)

    def keep_files_in(self, folder: Path) -> None:
        if not folder.is_dir():
            return
        self._kept = folder / "ssh_config"
        if not self._kept.exists():  # else another process of the run may be reading it
            write_private(self._kept, self.config())

    @property
    def _ssh(self) -> list[str]:
        """Its configuration is a file, which ssh reads for jump hosts too."""
        kept = self._kept if self._kept and self._kept.exists() else self._temporary
        return ["ssh", "-F", str(kept)]

    @cached_property
    def _temporary(self) -> Path:
        """Where there is no run, as for `doctor`: the file goes with this object."""
        folder = Path(tempfile.mkdtemp(prefix="seatrial-ssh-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        file = folder / "ssh_config"
        file.write_text(self.config())
        return file

    def _command(self, argv: Sequence[str]) -> list[str]:
        return [*self._ssh, self._host, shlex.join(["sh", "-c", _WITH_PROFILE, "sh", *argv])]

    def _environment(self) -> dict[str, str]:
        return environment()

    def _finished(self, argv: Sequence[str], stdin: bytes, timeout_s: float) -> Finished:
        with self._turn:
            finished = super()._finished(argv, stdin, timeout_s + self._settings.login_timeout_s)
        if finished.status == SSH_FAILED:
            raise LaunchError(reason_of(self._host, finished.errors, self._options))
        return finished

    def _not_found(self, argv: Sequence[str]) -> Reason:
        return Reason.of("ssh-missing")

    def _options(self) -> dict[str, str]:
        """Of ssh for the login node, by option in small letters; the first of each."""
        argv = [*self._ssh, "-G", self._host]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False, env=environment())
        pairs = (line.partition(" ") for line in reversed(done.stdout.splitlines()))
        return {name: value for name, _, value in pairs}


def login_of(settings: SlurmPlatform) -> Login:
    """Where Slurm's commands run."""
    return RemoteLogin(settings, settings.host) if settings.host else Login()
