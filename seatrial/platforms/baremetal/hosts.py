"""Talk to the hosts by the system's own ssh, with its configuration, agents, jump hosts and
known_hosts.
"""

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seatrial.model.errors import LaunchError, MissingError, SeatrialError
from seatrial.model.reason import Reason, extended, join
from seatrial.platforms.baremetal import BaremetalPlatform
from seatrial.platforms.commands import Finished, call_each, run_bounded
from seatrial.platforms.openssh import (
    SSH_FAILED,
    LoginSettings,
    client_config,
    environment,
    is_silent,
    login_options,
    read_options,
    reason_of,
    tunnel,
)
from seatrial.platforms.state import NodeAddress, PlatformState, ssh_config_file
from seatrial.text.lines import one_line
from seatrial.text.printable import printable

MARK = "seatrial-host: "
_PACKAGE = "seatrial.platforms.baremetal.on_host"
_MODULES = ("host", "verbs")  # in order: each imports only modules before it
_LOADER = """\
import json, sys, types
for name, source in json.loads({modules!r}).items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
"""
AT_ONCE = 32
_SHOWN = 8  # most reasons in one line
Item = TypeVar("Item")


class Holder(BaseModel):
    """The run that holds a host, according to its lock file; untrusted, like everything that a host
    sends.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    run: str = Field("", max_length=200)
    user: str = Field("", max_length=200)
    since: int = Field(0, ge=0, le=10**11)

    def __str__(self) -> str:
        run = f"run {printable(self.run)} of {printable(self.user)}" if self.run else "another run"
        return (
            f"{run} since {datetime.fromtimestamp(self.since, UTC):%Y-%m-%d %H:%M:%S} UTC"
            if self.since
            else run
        )


class Answer(BaseModel):
    """Output of the program on a host; the request determines which fields are set."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    problem: str | None = Field(None, max_length=10_000)
    held: Holder | None = None
    port: int | None = Field(None, ge=1, le=65535)
    user: str | None = Field(None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\$?$")
    address: str = Field("", pattern=r"^[0-9a-fA-F.:]{0,45}(%[A-Za-z0-9]{1,16})?$")
    kernel: str = Field("", pattern=r"^[0-9a-f-]{0,40}$")
    cores: int = Field(1, ge=1, le=100_000)
    remaining: list[int] = Field([], max_length=10_000)
    folder_left: bool = False
    log: str = Field("", max_length=8 * 1024**2)
    missing: list[str] = Field([], max_length=100)
    free_bytes: int = Field(0, ge=0)
    writable: bool = True
    executable: bool = True
    image_missing: bool = False
    image_problem: str | None = Field(None, max_length=10_000)
    container_left: bool = False


class HostAddress(NodeAddress):
    """Address, port and user of the run's sshd on a host.

    `proxied`: this machine reaches it only through a tunnel. `kernel` is the boot id of the host's
    kernel: hosts with the same id share the `cores` of one machine.
    """

    user: str = Field(min_length=1, max_length=64)
    proxied: bool
    kernel: str = Field("", max_length=40)
    cores: int = Field(1, ge=1, le=100_000)


class BaremetalState(PlatformState):
    """The hosts, in the order of the hostfile."""

    nodes: tuple[HostAddress, ...] = Field(min_length=1, max_length=10_000)

    @property
    def shared_cores(self) -> int | None:
        """The cores of the one machine that plays all hosts, as containers or namespaces; None
        otherwise.
        """
        kernels = {node.kernel for node in self.nodes}
        return (
            self.nodes[0].cores
            if len(self.nodes) > 1 and len(kernels) == 1 and all(kernels)
            else None
        )


def program(request: Mapping[str, object]) -> str:
    """Return the program and its request, for the standard input of `python3 -`.

    The request may hold keys.
    """
    return f"{_modules()}module.main(json.loads({json.dumps(request)!r}))\n"


@cache
def _modules() -> str:
    folder = Path(__file__).with_name("on_host")
    sources = {f"{_PACKAGE}.{name}": (folder / f"{name}.py").read_text() for name in _MODULES}
    return _LOADER.format(modules=json.dumps(sources))


def ssh_config(settings: BaremetalPlatform) -> str:
    """Return the configuration of ssh for the hosts. Pure, but for the home folder in it."""
    own = settings.logins()
    groups: dict[tuple[str, ...], list[str]] = {}
    for host in settings.hosts:
        part = own.get(host, LoginSettings())
        fields = {
            name: getattr(part, name) or getattr(settings, name)
            for name in LoginSettings.model_fields
        }
        if options := tuple(login_options(LoginSettings(**fields))):
            groups.setdefault(options, []).append(host)
    options_of = {tuple(hosts): options for options, hosts in groups.items()}
    return client_config(options_of, settings.login_timeout_s, settings.ssh_config)


Answers = dict[str, Answer | SeatrialError]  # by host


class Hosts:
    """The hosts of a cluster file.

    `listen` is the address that the run's sshd listens on; all addresses when None.
    """

    listen: str | None = None

    def __init__(self, settings: BaremetalPlatform) -> None:
        self._settings = settings
        # sshd drops some of more than ten logins (MaxStartups)
        self._through_jumps = threading.Semaphore(8)

    def ask(self, host: str, request: Mapping[str, object], timeout_s: float) -> Answer:
        """Send one request to a host.

        Raises LaunchError, or MissingError where this machine has no ssh.
        """
        command = (self._settings.python, "-I", "-S", "-")
        stdin = program({"parent": self._settings.folder, **request}).encode()
        status, output, errors = self.run(host, command, timeout_s, stdin)
        answer = _answer(host, output)
        if answer is None and status == SSH_FAILED:
            raise self.no_login(host, errors)
        # A shell's exit status if it cannot run the program
        if answer is None and status in (126, 127):
            raise LaunchError.of("baremetal-host-lacks", host=host, programs=self._settings.python)
        if answer is None:
            problem = printable(one_line(errors))[-500:] or f"status {status}"
            raise LaunchError.of("baremetal-host-failed", host=host, problem=problem)
        if answer.problem is not None:
            raise LaunchError.of(
                "baremetal-host-failed", host=host, problem=printable(answer.problem)[:500]
            )
        return answer

    def run(
        self, host: str, command: Sequence[str], timeout_s: float, stdin: bytes = b""
    ) -> Finished:
        """Run a command on a host.

        Raises MissingError without ssh, LaunchError where the command does not end.
        """
        argv = [*self._login(host), *command]
        with self._through_jumps if self.is_proxied(host) else nullcontext():
            return _run(argv, stdin, self._settings.login_timeout_s + timeout_s, host)

    def no_login(self, host: str, errors: str) -> LaunchError:
        """Return the error for what ssh itself printed."""
        return LaunchError(reason_of(host, errors, lambda: self.options(host)))

    def ask_each(
        self, request: Mapping[str, object], timeout_s: float, hosts: Sequence[str]
    ) -> Answers:
        """Send a request to each host; the answer, or the SeatrialError it raised, by host."""
        return on_hosts(hosts, lambda host: self.ask(host, request, timeout_s))

    def _login(self, host: str) -> list[str]:
        """Return the ssh command line to which a command for the host is appended."""
        return [*self._ssh, host]

    @cached_property
    def _ssh(self) -> list[str]:
        return ["ssh", "-F", str(ssh_config_file(ssh_config(self._settings)))]

    def options(self, host: str) -> dict[str, str]:
        """Return ssh's configuration for a host: the first value of each option, by lower-case
        name.
        """
        _, output, _ = _run([*self._ssh, "-G", host], b"", 20, host)
        return read_options(output)

    def is_proxied(self, host: str) -> bool:
        """Return whether ssh reaches the host through another host or command, so that its ports
        cannot be dialled.
        """
        options = self.options(host)
        return any(options.get(name, "none") != "none" for name in ("proxyjump", "proxycommand"))

    def first_jump(self, host: str) -> str | None:
        """Return [USER@]HOST[:PORT] of the jump host that this machine itself connects to; None
        without ProxyJump.
        """
        jump = self.options(host).get("proxyjump", "none").split(",")[0]
        return None if jump == "none" else jump

    def why_silent(self, jump: str) -> str | None:
        """Return ssh's message if that jump host does not answer; None if it does."""
        status, _, errors = _run(
            [*self._ssh, f"ssh://{jump}", "true"], b"", self._settings.login_timeout_s + 5, jump
        )
        reason = reason_of(jump, errors, dict) if status == SSH_FAILED else None
        return str(reason.values["problem"]) if reason and is_silent(reason) else None

    def dial(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """Return a stream to a port of a host behind jump hosts, by ssh. Raises OSError."""
        with self._through_jumps:
            return tunnel(self._ssh, host, f"127.0.0.1:{port}", timeout_s)


def on_hosts(
    hosts: Sequence[str], function: Callable[[str], Item]
) -> dict[str, Item | SeatrialError]:
    """Call the function for each host in parallel; return the result, or the SeatrialError that it
    raised, by host.
    """

    def guarded(host: str) -> Item | SeatrialError:
        try:
            return function(host)
        except SeatrialError as error:
            return error

    return dict(zip(hosts, call_each(hosts, guarded, AT_ONCE), strict=True))


def some_reasons(reasons: Sequence[Reason]) -> Reason:
    """Return the first `_SHOWN` reasons in one line, and the number of further ones."""
    more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
    return extended(join(reasons[:_SHOWN]), more)


def _run(argv: Sequence[str], stdin: bytes, timeout_s: float, host: str) -> Finished:
    """Run a command. Raises MissingError without ssh, LaunchError if the command does not end."""
    try:
        return run_bounded(argv, environment(), timeout_s, stdin=stdin)
    except (FileNotFoundError, PermissionError):
        if argv[0] == "ssh":
            raise MissingError.of("ssh-missing") from None
        raise LaunchError.of("baremetal-host-lacks", host=host, programs=argv[0]) from None
    except subprocess.TimeoutExpired:
        raise LaunchError.of(
            "baremetal-connection-lost",
            host=host,
            problem=f"it did not answer within {timeout_s:g} s",
        ) from None


def _answer(host: str, output: str) -> Answer | None:
    """Return the last answer in a host's output, ignoring other lines that a login may print."""
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    if not lines:
        return None
    try:
        return Answer.model_validate(json.loads(lines[-1].removeprefix(MARK)))
    except (ValueError, RecursionError, ValidationError) as error:
        raise LaunchError.of(
            "baremetal-host-failed",
            host=host,
            problem="its answer is not what the program prints",
        ) from error
