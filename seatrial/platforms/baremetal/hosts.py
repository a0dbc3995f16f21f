"""Talk to the hosts by the system's own ssh: its configuration, agents, jump hosts and known_hosts count as ever."""

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from seatrial.model.errors import LaunchError, MissingError, SeatrialError
from seatrial.model.reason import Reason, join
from seatrial.platforms.baremetal.answers import MARK, Answer
from seatrial.platforms.baremetal.config import BaremetalPlatform
from seatrial.platforms.baremetal.program import program
from seatrial.platforms.commands import Finished, run_bounded, try_each
from seatrial.platforms.openssh.client import SSH_FAILED, environment, tunnel
from seatrial.platforms.openssh.failures import is_silent, reason_of
from seatrial.text.printable import printable

AT_ONCE = 32
_THROUGH_A_JUMP = 8  # logins at once: sshd drops some of more than ten (MaxStartups)
_PROGRAM_MISSING = (126, 127)
_SHOWN = 8  # reasons in one line

Item = TypeVar("Item")


class HostError(LaunchError):
    """A host did not do what was asked."""


class Hosts:
    """The hosts of a cluster file. `config` is the file that `ssh_config` made, for as long as it is there.

    `listen` is the address that their sshd for the run listens on; every one when None.
    """

    listen: str | None = None

    def __init__(self, settings: BaremetalPlatform, config: Path) -> None:
        self._settings, self._config = settings, config
        self._through_jumps = threading.Semaphore(_THROUGH_A_JUMP)

    def ask(self, host: str, request: Mapping[str, object], timeout_s: float, *, proxied: bool = False) -> Answer:
        """The host's answer to one request. Raises HostError, or MissingError where this machine has no ssh."""
        argv = [*self._login(host), self._settings.python, "-I", "-S", "-"]
        stdin = program({"parent": self._settings.folder, **request}).encode()
        with self._turn(proxied):
            status, output, errors = _run(argv, stdin, self._settings.login_timeout_s + timeout_s, host)
        answer = _answer(host, output)
        if answer is None:
            raise HostError(self._failure(host, status, errors))
        if answer.problem is not None:
            raise HostError(Reason.of("baremetal-host-failed", host=host, problem=printable(answer.problem)[:500]))
        return answer

    def _login(self, host: str) -> list[str]:
        """What stands before a command for the host."""
        return [*self._ssh(), host]

    def _ssh(self) -> list[str]:
        return ["ssh", "-F", str(self._config)]

    @contextmanager
    def _turn(self, proxied: bool) -> Iterator[None]:
        if not proxied:
            yield
            return
        with self._through_jumps:
            yield

    def _failure(self, host: str, status: int, errors: str) -> str:
        if status == SSH_FAILED:
            return reason_of(host, errors, lambda: self.options(host))
        if status in _PROGRAM_MISSING:
            return Reason.of("baremetal-python-missing", host=host, python=self._settings.python)
        words = printable(" ".join(errors.split()))[-500:] or f"status {status}"
        return Reason.of("baremetal-host-failed", host=host, problem=words)

    def options(self, host: str) -> dict[str, str]:
        """The configuration of ssh for a host, by option in small letters; the first of each."""
        _, output, _ = _run([*self._ssh(), "-G", host], b"", 20, host)
        options: dict[str, str] = {}
        for line in output.splitlines():
            name, _, value = line.partition(" ")
            options.setdefault(name, value)
        return options

    def is_proxied(self, host: str) -> bool:
        """Whether ssh reaches it through another host or command, so that its ports cannot be dialled directly."""
        options = self.options(host)
        return any(options.get(name, "none") != "none" for name in ("proxyjump", "proxycommand"))

    def first_jump(self, host: str) -> str | None:
        """[USER@]HOST[:PORT] of the jump host that this machine itself connects to; None without ProxyJump."""
        jump = self.options(host).get("proxyjump", "none").split(",")[0]
        return None if jump == "none" else jump

    def why_silent(self, jump: str) -> str | None:
        """ssh's words where that jump host does not answer; None where it does, whatever it lets people do."""
        status, _, errors = _run([*self._ssh(), f"ssh://{jump}", "true"], b"", self._settings.login_timeout_s + 5, jump)
        reason = reason_of(jump, errors, dict) if status == SSH_FAILED else None
        return str(reason.values["problem"]) if reason and is_silent(reason) else None

    def on_each(
        self, function: Callable[[str], Item], hosts: Sequence[str] | None = None
    ) -> dict[str, Item | SeatrialError]:
        """The function's answer, or the SeatrialError it raised, by host; of all hosts when None."""
        return on_hosts(self._settings.hosts if hosts is None else hosts, function)

    def dial(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """A stream to a port of a host that is behind others, by ssh. Raises OSError."""
        with self._turn(proxied=True):
            return tunnel(self._ssh(), host, f"127.0.0.1:{port}", timeout_s)


def on_hosts(hosts: Sequence[str], function: Callable[[str], Item]) -> dict[str, Item | SeatrialError]:
    """The function's answer, or the SeatrialError it raised, by host."""
    return try_each(hosts, function, AT_ONCE)


def some_reasons(reasons: Sequence[str]) -> str:
    """In one line."""
    more = [f"and {len(reasons) - _SHOWN} more"] if len(reasons) > _SHOWN else []
    return join([*reasons[:_SHOWN], *more])


def _run(argv: Sequence[str], stdin: bytes, timeout_s: float, host: str) -> Finished:
    """Raises MissingError without ssh, HostError where the command does not end."""
    try:
        return run_bounded(argv, environment(), timeout_s, stdin=stdin)
    except (FileNotFoundError, PermissionError):
        if argv[0] == "ssh":
            raise MissingError(Reason.of("ssh-missing")) from None
        raise HostError(Reason.of("baremetal-python-missing", host=host, python=argv[0])) from None
    except subprocess.TimeoutExpired:
        problem = f"it did not answer within {timeout_s:g} s"
        raise HostError(Reason.of("baremetal-connection-lost", host=host, problem=problem)) from None


def _answer(host: str, output: str) -> Answer | None:
    """The host's last line that is one; what a login prints besides does not count."""
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    if not lines:
        return None
    try:
        return Answer.model_validate(json.loads(lines[-1].removeprefix(MARK)))
    except (ValueError, RecursionError, ValidationError) as error:
        problem = "its answer is not what the program prints"
        raise HostError(Reason.of("baremetal-host-failed", host=host, problem=problem)) from error
