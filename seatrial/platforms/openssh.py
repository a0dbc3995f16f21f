"""The system's own ssh, for platforms that log in to machines: its settings, its configuration, its
errors, tunnels.
"""

import re
import select
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from seatrial.config.cluster import Port, Seconds
from seatrial.config.yamlfile import Strict, matching
from seatrial.model.reason import Reason
from seatrial.platforms import commands
from seatrial.platforms.commands import start_stream, tail
from seatrial.text.lines import one_line
from seatrial.text.printable import printable

_JUMP = r"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9._-]*(:\d{1,5})?"
Jump = Annotated[
    str,
    AfterValidator(
        matching(f"{_JUMP}(,{_JUMP})*", "[USER@]HOST[:PORT], several with commas, first hop first")
    ),
]
PathText = Annotated[
    str,
    AfterValidator(
        matching(
            r"[~/A-Za-z0-9_.][A-Za-z0-9_./+@ -]*",
            "a path of letters, digits, spaces and _ . / + @ -",
        )
    ),
]
Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$", max_length=255)]
User = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*\$?$", max_length=64)]
# ssh uses the first value that it finds, so the user's configuration, which follows, cannot change
# these. They apply to jump hosts too, which ssh reaches with the same file.
_STRICT = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "UpdateHostKeys": "no",
    "ControlMaster": "no",
    "ControlPath": "none",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RequestTTY": "no",
    "LogLevel": "ERROR",
    "ServerAliveInterval": "15",
}
_NAMES_PER_LINE = 32
_USUAL = ("~/.ssh/config", "/etc/ssh/ssh_config")
# Messages of OpenSSH 7 to 10, which are the same in every language.
_UNKNOWN = re.compile(
    r"No (\S+) host key is known for (\S+) and you have requested strict checking"
)
_CHANGED = re.compile(r"Host key for (\S+) has changed and you have requested strict checking")
_REVOKED = re.compile(r"host key for (\S+) is marked as revoked", re.IGNORECASE)
_OFFENDING = re.compile(r"Offending \S+ key in (.+?):(\d+)")
_REFUSED = re.compile(r"Permission denied \(([a-z0-9,@.-]+)\)")
_SILENT = re.compile(
    "Connection timed out|Connection refused|No route to host|Network is unreachable|Could not "
    "resolve hostname"
    r"|Operation timed out|Name or service not known|timed out during banner exchange"
)
_BEFORE_THE_LOGIN = (
    "baremetal-unreachable",
    "baremetal-login-refused",
    "baremetal-host-key-unknown",
    "baremetal-host-key-changed",
    "baremetal-host-key-revoked",
)
_LOST = re.compile(
    r"Connection (?:closed|reset)|Broken pipe|closed by remote host|Timeout, server \S+ "
    r"not responding|^\s*$"
)
_SHOWN = 300
Options = Callable[[], dict[str, str]]
SSH_FAILED = 255  # the exit status of ssh itself


def _full_path(value: str) -> str:
    """Return a full path, so that another process of the run finds the same file."""
    return str(Path(value).expanduser().absolute())


OwnFile = Annotated[PathText, AfterValidator(_full_path)]


class LoginSettings(Strict):
    """Login to a host; ssh's configuration provides what is unset."""

    user: User | None = Field(
        None, description="who logs in; unset: ssh's configuration, as for port and key_file"
    )
    port: Port | None = Field(None, description="of its own sshd")
    jump: Jump | None = Field(None, description="[USER@]HOST[:PORT],... to go through")
    key_file: OwnFile | None = Field(None, description="private key")


class SshSettings(LoginSettings):
    """Login by the system's own ssh."""

    ssh_config: OwnFile | None = Field(
        None, description="in place of ~/.ssh/config and /etc/ssh/ssh_config"
    )
    login_timeout_s: Seconds = Field(15, description="seconds until a host answers a login")


def client_config(
    options_of: Mapping[tuple[str, ...], Sequence[str]],
    connect_timeout_s: float,
    own_config: str | None,
) -> str:
    """Return the configuration of ssh.

    `options_of` are option lines by hosts; `own_config` replaces the user's and the system's files.
    Pure, but for the home folder in it.
    """
    lines = ["Host *", *(f"    {name} {value}" for name, value in _STRICT.items())]
    lines.append(f"    ConnectTimeout {max(1, round(connect_timeout_s))}")
    for hosts, options in options_of.items():
        for start in range(0, len(hosts), _NAMES_PER_LINE):
            names = " ".join(hosts[start : start + _NAMES_PER_LINE])
            lines += [f"Host {names}", *(f"    {option}" for option in options)]
    lines.append("Match all")
    for path in (own_config,) if own_config else map(_full_path, _USUAL):
        lines.append(f'    Include "{path}"')
    # After the user's files, so only a default: OpenSSH's own choice takes a tenth of a second of
    # processor time on either side to keep data secret for decades, but a run's keys are worthless
    # after it.
    lines.append("    KexAlgorithms ^curve25519-sha256")
    return "\n".join(lines) + "\n"


def login_options(login: LoginSettings) -> Iterator[str]:
    """Yield the lines of a block `Host`."""
    if login.user:
        yield f"User {login.user}"
    if login.port:
        yield f"Port {login.port}"
    if login.jump:
        yield f"ProxyJump {login.jump}"
    if login.key_file:
        yield f'IdentityFile "{login.key_file}"'


def read_options(printed: str) -> dict[str, str]:
    """Return the configuration that `ssh -G` printed: the first value of each option, by lower-case
    name.
    """
    pairs = (line.partition(" ") for line in reversed(printed.splitlines()))
    return {name: value for name, _, value in pairs}


def reason_of(host: str, errors: str, options: Options) -> Reason:
    """Explain a failed login.

    `options()` returns ssh's configuration for the host, as `ssh -G` prints it.
    """
    if match := _REVOKED.search(errors):
        return Reason.of("baremetal-host-key-revoked", host=host, place=_host_text(match[1]))
    if match := _CHANGED.search(errors):
        place = _host_text(match[1])
        entry = _OFFENDING.search(errors)
        file = printable(entry[1]) if entry else _files(options())
        return Reason.of("baremetal-host-key-changed", host=host, place=place, file=file)
    if match := _UNKNOWN.search(errors):
        return Reason.of(
            "baremetal-host-key-unknown",
            host=host,
            place=_host_text(match[2]),
            file=_files(options()),
        )
    if match := _REFUSED.search(errors):
        return Reason.of(
            "baremetal-login-refused",
            host=host,
            user=printable(options().get("user", "?")),
            methods=printable(match[1]),
        )
    lines = [line.strip() for line in errors.splitlines() if any(map(str.isalnum, line))]
    problem = printable("; ".join(dict.fromkeys(lines[-2:])) or "no message")[:_SHOWN]
    if _SILENT.search(errors):
        return Reason.of("baremetal-unreachable", host=host, problem=problem)
    code = "baremetal-connection-lost" if _LOST.search(errors) else "baremetal-ssh-failed"
    return Reason.of(code, host=host, problem=problem)


def is_silent(reason: Reason) -> bool:
    """Return whether the reason means that the host did not answer, or that its answer
    broke off.
    """
    return reason.code in ("baremetal-unreachable", "baremetal-connection-lost")


def is_before_login(reason: Reason) -> bool:
    """Return whether the reason means that there was no login, so that nothing was started on the
    host.
    """
    return reason.code in _BEFORE_THE_LOGIN


def _host_text(text: str) -> str:
    return printable(text)[:_SHOWN]


def _files(options: dict[str, str]) -> str:
    """Return the known_hosts files that ssh reads."""
    own = options.get("userknownhostsfile", "~/.ssh/known_hosts").split()
    return printable(", ".join(str(Path(file).expanduser()) for file in own))


def tunnel(ssh: Sequence[str], host: str, target: str, timeout_s: float) -> socket.socket:
    """Return a stream to `target` (ADDRESS:PORT, as `host` sees it), where an sshd listens.

    Raises OSError.
    """
    with tempfile.TemporaryFile() as errors:
        ours, process = start_stream([*ssh, "-W", target, host], environment(), errors)
        try:
            if not select.select([ours], [], [], timeout_s)[0]:  # sshd speaks first
                raise TimeoutError
            if not ours.recv(1, socket.MSG_PEEK):
                raise ConnectionError(
                    printable(one_line(tail(errors)))[-300:] or "the tunnel ended"
                )
        except OSError:
            ours.close()
            process.kill()
            raise
    ours.settimeout(timeout_s)
    return ours


def environment() -> dict[str, str]:
    """Return the environment of ssh: without secrets, but with the user's agent."""
    return commands.environment(kept=("SSH_",)) | {"LC_ALL": "C"}
