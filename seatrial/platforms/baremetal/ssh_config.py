"""The configuration of ssh for the hosts of a cluster file."""

from seatrial.platforms.baremetal.config import BaremetalPlatform, HostSettings
from seatrial.platforms.openssh.client_config import client_config, login_options
from seatrial.platforms.openssh.settings import LoginSettings
from seatrial.text.hostlist import expand


def ssh_config(settings: BaremetalPlatform) -> str:
    """Pure, but for the home folder in it."""
    hosts_by_options = {tuple(hosts): options for options, hosts in _by_options(settings).items()}
    return client_config(hosts_by_options, settings.login_timeout_s, settings.ssh_config)


def _by_options(settings: BaremetalPlatform) -> dict[tuple[str, ...], list[str]]:
    """The hosts with the same options together; without those that have none."""
    own = {host: part for pattern, part in settings.host_settings.items() for host in expand((pattern,))}
    groups: dict[tuple[str, ...], list[str]] = {}
    for host in settings.hosts:
        if options := tuple(login_options(_login(settings, own.get(host, HostSettings())))):
            groups.setdefault(options, []).append(host)
    return groups


def _login(settings: BaremetalPlatform, own: HostSettings) -> LoginSettings:
    return LoginSettings(
        user=own.user or settings.user,
        port=own.port or settings.port,
        jump=own.jump or settings.jump,
        key_file=own.key_file or settings.key_file,
    )
