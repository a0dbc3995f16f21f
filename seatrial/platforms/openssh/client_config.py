"""The configuration of ssh for a run: what the cluster file says, then the user's own, and no key accepted unseen."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from seatrial.platforms.openssh.settings import LoginSettings

# ssh takes the first value that it finds: nothing below these, in the user's configuration, changes them. They hold for
# the jump hosts too, which ssh reaches with the same file.
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
# Behind the user's own, so only where they say nothing: OpenSSH's default takes a tenth of a second of processor time
# on either side, to keep what is sent secret for decades. The keys of a run are worthless when it is over.
_KEX = "^curve25519-sha256"
_NAMES_PER_LINE = 32
_USUAL = ("~/.ssh/config", "/etc/ssh/ssh_config")


def client_config(
    options_of: Mapping[tuple[str, ...], Sequence[str]], connect_timeout_s: float, own_config: str | None
) -> str:
    """`options_of` are those of hosts; `own_config` is read in place of the user's and the system's.

    Pure, but for the home folder in it.
    """
    lines = ["Host *", *(f"    {name} {value}" for name, value in _STRICT.items())]
    lines.append(f"    ConnectTimeout {max(1, round(connect_timeout_s))}")
    for hosts, options in options_of.items():
        for names in _lines_of(hosts):
            lines += [f"Host {' '.join(names)}", *(f"    {option}" for option in options)]
    lines.append("Match all")
    for path in (own_config,) if own_config else _USUAL:
        lines.append(f'    Include "{Path(path).expanduser().absolute()}"')
    lines.append(f"    KexAlgorithms {_KEX}")
    return "\n".join(lines) + "\n"


def _lines_of(hosts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(hosts), _NAMES_PER_LINE):
        yield hosts[start : start + _NAMES_PER_LINE]


def login_options(login: LoginSettings) -> Iterator[str]:
    """Lines of a block `Host`."""
    if login.user:
        yield f"User {login.user}"
    if login.port:
        yield f"Port {login.port}"
    if login.jump:
        yield f"ProxyJump {login.jump}"
    if login.key_file:
        yield f'IdentityFile "{Path(login.key_file).expanduser().absolute()}"'
