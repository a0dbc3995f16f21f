"""Start the run's sshd on every host, in a container where the cluster file asks for one."""

import logging
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import LaunchError, MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms.baremetal import BaremetalPlatform
from seatrial.platforms.baremetal.hosts import (
    Answer,
    HostAddress,
    Hosts,
    on_hosts,
    some_reasons,
)
from seatrial.platforms.container import (
    apptainer_exec,
    apptainer_image,
    bind,
    capabilities,
    has_amd_gpus,
    limits,
)
from seatrial.platforms.openssh import is_silent
from seatrial.platforms.testbed import node_script
from seatrial.remote.ssh import KeyPair
from seatrial.text.printable import printable
from seatrial.text.words import count, some_of

log = logging.getLogger("seatrial.launch")
Started = dict[str, HostAddress | SeatrialError]


@dataclass(frozen=True, slots=True)
class Container:
    """The container that a host starts.

    `command` is followed by the arguments of sh. `name` is the container's name for docker and
    podman, and `user` who logs in there; both are empty where the container is only processes of
    the user.
    """

    program: str
    image: str
    command: tuple[str, ...]
    name: str = ""
    user: str = ""


def container_name(settings: BaremetalPlatform, run_id: str) -> str:
    """Return the name for docker and podman; empty for the other runtimes."""
    return f"seatrial-{run_id}" if settings.has_daemon else ""


def container_of(run: Run, settings: BaremetalPlatform) -> Container | None:
    """Return the container of a run, with the run's folder mounted at its path on the host; None
    without a runtime.
    """
    cluster = run.cluster
    program = settings.runtime
    image = run.nodes_image
    if program == "none":
        return None
    folder = run_folder(settings, run.run_id)
    if settings.has_daemon:
        name = container_name(settings, run.run_id)
        command = (program, "run", f"--name={name}", *_options(cluster, settings, folder), image)
        return Container(program, image, command, name, user="root")
    binds = [f"{folder}:{folder}", *map(bind, settings.mounts)]
    return Container(
        program, image, (*apptainer_exec(cluster, program, binds), apptainer_image(image), "sh")
    )


def _options(cluster: Cluster, settings: BaremetalPlatform, folder: str) -> Iterator[str]:
    """Yield options of docker and podman.

    The shell replaces the entry point, as our images' starts another sshd.
    """
    yield from (
        "--rm",
        "--interactive",
        "--pull=never",
        "--network=host",
        "--ipc=host",
        "--uts=host",
        "--user=0",
        "--entrypoint=sh",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
    )
    yield from (f"--cap-add={name}" for name in capabilities(cluster, settings.devices))
    yield from (
        f"--ulimit={name}={limit}:{limit}"
        for name, limit in limits(cluster, settings.ulimits).items()
    )
    yield f"--volume={folder}:{folder}"
    for mount in settings.mounts:  # unlike --volume it makes no folder if the source is missing
        read_only = ",readonly" if mount.read_only else ""
        yield f"--mount=type=bind,source={mount.source},target={mount.target}{read_only}"
    yield from (f"--device={path}" for path in settings.devices)
    # All GPUs of the host: docker has an option for NVIDIA's, podman uses CDI, AMD's are ordinary
    # devices.
    if not cluster.gpus:
        yield "--env=NVIDIA_VISIBLE_DEVICES=void"  # NVIDIA's images request all GPUs by default
    elif has_amd_gpus(cluster):
        yield from ("--device=/dev/kfd", "--device=/dev/dri")
    else:
        yield "--gpus=all" if settings.runtime == "docker" else "--device=nvidia.com/gpu=all"


def by_hand(container: Container) -> str:
    """Return a script that starts the container as the host does; for people to read."""
    arguments = " \\\n    ".join(map(shlex.quote, container.command[1:]))
    return f"#!/bin/sh\nexec {container.program} {arguments} -s <node.sh\n"


def ensure_images(hosts: Hosts, settings: BaremetalPlatform, container: Container) -> None:
    """Pull the image on hosts that lack it.

    Raises LaunchError where a host cannot get the image, or lacks the runtime. Hosts that do not
    answer are left to the launch, which finds them too.
    """

    def find(host: str) -> Answer:
        answer = hosts.ask(host, {"verb": "check", "container": asdict(container)}, 60)
        if answer.missing:
            program = printable(container.program)
            raise LaunchError.of("baremetal-host-lacks", host=host, programs=program)
        if answer.image_missing and not container.name:
            raise LaunchError(image_missing(container, host, "there is no such file"))
        return answer

    def pull(host: str) -> Answer:
        limit_s = settings.pull_timeout_s
        request = {"verb": "pull", "container": asdict(container), "timeout_s": limit_s}
        answer = hosts.ask(host, request, limit_s + 15)
        if answer.image_problem is not None:
            raise LaunchError(image_missing(container, host, answer.image_problem))
        return answer

    answers = on_hosts(settings.hosts, find)
    _raise_refusals(answers)
    lacking = [
        host
        for host, answer in answers.items()
        if isinstance(answer, Answer) and answer.image_missing
    ]
    if lacking:
        names = some_of(lacking)
        log.info(
            "%d hosts lack %s, and pull it now: %s", len(lacking), printable(container.image), names
        )
        _raise_refusals(on_hosts(lacking, pull))


def image_missing(container: Container, host: str, problem: str) -> Reason:
    """Return the reason for a host without the image."""
    return Reason.of(
        "baremetal-image-missing",
        host=host,
        image=printable(container.image),
        problem=printable(problem)[:500],
    )


def _raise_refusals(answers: dict[str, Answer | SeatrialError]) -> None:
    problems = [
        answer.reason
        for answer in answers.values()
        if isinstance(answer, SeatrialError)
        and not isinstance(answer, MissingError)
        and not is_silent(answer.reason)
    ]
    if problems:
        raise LaunchError(some_reasons(problems))


def run_folder(settings: BaremetalPlatform, run_id: str) -> str:
    """Return the run's folder on the hosts: private to the user, and removed with the run."""
    return f"{settings.folder.rstrip('/')}/seatrial-{run_id}"


def node_folder(settings: BaremetalPlatform, run_id: str) -> str:
    """Return the folder of the run's sshd, within the run's folder."""
    return f"{run_folder(settings, run_id)}/node"


def lifetime_s(settings: BaremetalPlatform, cluster: Cluster) -> float:
    """Return the seconds after which hosts end the run on their own, including the time that nodes
    may be kept.
    """
    return settings.deadline_s + cluster.kept_s


def start_nodes(
    hosts: Hosts, run: Run, settings: BaremetalPlatform, run_key: KeyPair, host_key: KeyPair
) -> Started:
    """Start sshd on every host; return its address, or the error, by host.

    Raises MissingError without ssh.
    """
    folder = node_folder(settings, run.run_id)
    container = container_of(run, settings)
    request = {
        "verb": "start",
        "run_id": run.run_id,
        "folder": run_folder(settings, run.run_id),
        "program": node_script(
            run.run_id, run.cluster.ssh_port, run_key, host_key, folder, hosts.listen
        ),
        "deadline_s": lifetime_s(settings, run.cluster),
        "timeout_s": settings.start_timeout_s,
        "container": asdict(container) if container else None,
    }

    def start(host: str) -> HostAddress:
        answer = hosts.ask(host, request, settings.start_timeout_s + 15)
        if answer.held is not None:
            raise LaunchError.of("baremetal-host-busy", host=host, holder=answer.held)
        if answer.port is None or answer.user is None:
            problem = "its answer has no port"
            raise LaunchError.of("baremetal-host-failed", host=host, problem=problem)
        return HostAddress(
            name=host,
            address=answer.address or hosts.options(host).get("hostname", host),
            port=answer.port,
            user=answer.user,
            proxied=hosts.is_proxied(host),
            kernel=answer.kernel,
            cores=answer.cores,
        )

    log.info("logging in to %s", count(len(settings.hosts), "host"))
    started = on_hosts(settings.hosts, start)
    for answer in started.values():
        if isinstance(answer, MissingError):
            raise answer
    return started


def addresses_of(started: Started, hosts: Hosts, port: int) -> tuple[HostAddress, ...]:
    """Return the addresses of all hosts, in the order of the cluster file.

    A host that does not answer is left to the check `connectivity`. Raises LaunchError if a host
    refuses, is used by another run or lacks something, and if none answers.
    """
    problems = {
        host: answer.reason for host, answer in started.items() if isinstance(answer, SeatrialError)
    }
    refusals = [reason for reason in problems.values() if not is_silent(reason)]
    if refusals or len(problems) == len(started):
        raise LaunchError(some_reasons(refusals or list(problems.values())))
    addresses = []
    for host, answer in started.items():
        if isinstance(answer, SeatrialError):
            log.warning("%s", answer.reason)
            options = hosts.options(host)
            addresses.append(
                HostAddress(
                    name=host,
                    address=options.get("hostname", host),
                    port=port,
                    user=options.get("user", "root"),
                    proxied=hosts.is_proxied(host),
                )
            )
        else:
            addresses.append(answer)
    return tuple(addresses)
