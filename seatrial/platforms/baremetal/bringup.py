"""Start the run's sshd on every host."""

import logging
from collections.abc import Mapping
from functools import partial

from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import LaunchError, MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms.baremetal.answers import HostAddress
from seatrial.platforms.baremetal.config import BaremetalPlatform
from seatrial.platforms.baremetal.hosts import HostError, Hosts, on_hosts, some_reasons
from seatrial.platforms.baremetal.runtime import container_of
from seatrial.platforms.openssh.failures import is_silent
from seatrial.platforms.sshd.program import node_script
from seatrial.remote.keys import KeyPair

Started = dict[str, HostAddress | SeatrialError]

log = logging.getLogger("seatrial.launch")


def run_folder(settings: BaremetalPlatform, run_id: str) -> str:
    """On the hosts: private to the user, and gone with the run."""
    return f"{settings.folder.rstrip('/')}/seatrial-{run_id}"


def node_folder(settings: BaremetalPlatform, run_id: str) -> str:
    """Of the run's sshd, within the run's folder."""
    return f"{run_folder(settings, run_id)}/node"


def lifetime_s(settings: BaremetalPlatform, cluster: Cluster) -> float:
    """Seconds after which a host ends the run by itself; nodes that may be kept have that time on top."""
    return settings.deadline_s + (0 if cluster.keep == "never" else cluster.keep_s)


def start_nodes(hosts: Hosts, run: Run, settings: BaremetalPlatform, run_key: KeyPair, host_key: KeyPair) -> Started:
    """Where each host's sshd answers, or why it does not. Raises MissingError where this machine has no ssh."""
    folder = node_folder(settings, run.run_id)
    container = container_of(run, settings, run_folder(settings, run.run_id))
    request = {
        "verb": "start",
        "run_id": run.run_id,
        "folder": run_folder(settings, run.run_id),
        "program": node_script(run.run_id, run.cluster.ssh_port, run_key, host_key, folder, hosts.listen),
        "deadline_s": lifetime_s(settings, run.cluster),
        "timeout_s": settings.start_timeout_s,
        "container": container.request() if container else None,
    }
    log.info("logging in to %d hosts", len(settings.hosts))
    started = on_hosts(settings.hosts, partial(_start, hosts, settings, request))
    for answer in started.values():
        if isinstance(answer, MissingError):
            raise answer
    return started


def addresses_of(started: Started, hosts: Hosts, port: int) -> tuple[HostAddress, ...]:
    """Those of all hosts, in the order of the cluster file.

    A host that does not answer is a finding: connectivity names it. Raises LaunchError where a host refuses, is taken
    by another run or lacks something, and where none answers.
    """
    problems = {host: answer.reason for host, answer in started.items() if isinstance(answer, SeatrialError)}
    refusals = [reason for reason in problems.values() if not is_silent(reason)]
    if refusals or len(problems) == len(started):
        raise LaunchError(some_reasons(refusals or list(problems.values())))
    for reason in problems.values():
        log.warning("%s", reason)
    return tuple(
        _silent_address(hosts, host, port) if isinstance(answer, SeatrialError) else answer
        for host, answer in started.items()
    )


def _start(hosts: Hosts, settings: BaremetalPlatform, request: Mapping[str, object], host: str) -> HostAddress:
    proxied = hosts.is_proxied(host)
    answer = hosts.ask(host, request, settings.start_timeout_s + 15, proxied=proxied)
    if answer.held is not None:
        raise HostError(Reason.of("baremetal-host-busy", host=host, holder=answer.held))
    if answer.port is None or answer.user is None:
        raise HostError(Reason.of("baremetal-host-failed", host=host, problem="its answer has no port"))
    address = answer.address or hosts.options(host).get("hostname", host)
    return HostAddress(
        name=host,
        address=address,
        port=answer.port,
        user=answer.user,
        proxied=proxied,
        kernel=answer.kernel,
        cores=answer.cores,
    )


def _silent_address(hosts: Hosts, host: str, port: int) -> HostAddress:
    options = hosts.options(host)
    address, user = options.get("hostname", host), options.get("user", "root")
    return HostAddress(name=host, address=address, port=port, user=user, proxied=hosts.is_proxied(host))
