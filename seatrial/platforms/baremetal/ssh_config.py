"""The configuration of ssh for a run: what the cluster file says, then the user's own, and no key accepted unseen."""

from collections.abc import Iterator
from pathlib import Path

from seatrial.platforms.baremetal.config import BaremetalPlatform, HostSettings
from seatrial.text.hostranges import expand

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


def ssh_config(settings: BaremetalPlatform) -> str:
    """Pure, but for the home folder in it."""
    lines = ["Host *", *(f"    {name} {value}" for name, value in _STRICT.items())]
    lines.append(f"    ConnectTimeout {max(1, round(settings.login_timeout_s))}")
    for options, hosts in _by_options(settings).items():
        for names in _lines_of(hosts):
            lines += [f"Host {' '.join(names)}", *(f"    {option}" for option in options)]
    lines.append("Match all")
    for path in (settings.ssh_config,) if settings.ssh_config else _USUAL:
        lines.append(f'    Include "{Path(path).expanduser().absolute()}"')
    lines.append(f"    KexAlgorithms {_KEX}")
    return "\n".join(lines) + "\n"


def _lines_of(hosts: list[str]) -> Iterator[tuple[str, ...]]:
    for start in range(0, len(hosts), _NAMES_PER_LINE):
        yield tuple(hosts[start : start + _NAMES_PER_LINE])


def _by_options(settings: BaremetalPlatform) -> dict[tuple[str, ...], list[str]]:
    """The hosts with the same options together; without those that have none."""
    own = {host: part for pattern, part in settings.host_settings.items() for host in expand((pattern,))}
    groups: dict[tuple[str, ...], list[str]] = {}
    for host in settings.hosts:
        if options := tuple(_options(settings, own.get(host, HostSettings()))):
            groups.setdefault(options, []).append(host)
    return groups


def _options(settings: BaremetalPlatform, own: HostSettings) -> Iterator[str]:
    if user := own.user or settings.user:
        yield f"User {user}"
    if port := own.port or settings.port:
        yield f"Port {port}"
    if jump := own.jump or settings.jump:
        yield f"ProxyJump {jump}"
    if key_file := own.key_file or settings.key_file:
        yield f'IdentityFile "{Path(key_file).expanduser().absolute()}"'
