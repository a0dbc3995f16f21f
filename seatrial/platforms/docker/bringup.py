"""Bring the containers of a run up: the image, the network, the run's keys, and the wait for sshd."""

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from seatrial.model.errors import LaunchError
from seatrial.model.reason import Reason, join
from seatrial.model.testbed import Testbed
from seatrial.platforms.commands import call_each
from seatrial.platforms.container import key_files
from seatrial.platforms.docker.daemon import Daemon, GoneError, asked, words
from seatrial.platforms.docker.plan import NODE, DockerPlan, container_body, keys_archive, network_body
from seatrial.platforms.state import NodeAddress
from seatrial.platforms.testbed import wait_for_sshd
from seatrial.remote.keys import KeyPair
from seatrial.text.lines import last_line
from seatrial.text.printable import printable
from seatrial.text.words import some_of

if TYPE_CHECKING:
    from docker.models.containers import Container

log = logging.getLogger("seatrial.launch")

AT_ONCE = 8  # requests to one daemon
_LOG_TAIL = 20  # lines of a container that ended


class ContainerAddress(NodeAddress):
    """Where a node is for its peers, and for this machine (`host`, `host_port`)."""

    host: str = Field(max_length=255)
    host_port: int = Field(ge=1, le=65535)


def ensure_image(daemon: Daemon, image: str) -> None:
    """Pull the image unless the host has it. Raises LaunchError where it cannot be had."""
    from docker.errors import DockerException, ImageNotFound

    try:
        try:
            daemon.client.images.get(image)
            return
        except ImageNotFound:
            log.info("pulling %s", image)
        problem = _pull(daemon, image)
    except DockerException as error:
        problem = words(error)
    if problem:
        raise LaunchError(Reason.of("docker-image-missing", image=image, problem=problem))


def _pull(daemon: Daemon, image: str) -> str | None:
    """What went wrong; None where nothing did."""
    for message in daemon.client.api.pull(image, stream=True, decode=True):
        if isinstance(message, dict) and message.get("error"):
            return words(RuntimeError(str(message["error"])))
    return None


def create(daemon: Daemon, plan: DockerPlan, run_key: KeyPair, host_key: KeyPair) -> None:
    """Create and start everything. The keys are in a container before it starts, in no argument or environment."""
    archive = keys_archive(key_files(run_key, host_key))
    if plan.settings.network == "own":
        daemon.create_network(network_body(plan))
    call_each(range(plan.run.cluster.nodes), partial(_create_node, daemon, plan, archive), AT_ONCE)


def _create_node(daemon: Daemon, plan: DockerPlan, archive: bytes, index: int) -> None:
    name = plan.container_name(plan.run.cluster.node_names()[index])
    container_id = daemon.create(name, container_body(plan, index))
    with asked(f"start {name}"):
        daemon.client.api.put_archive(container_id, "/etc", archive)
        daemon.client.api.start(container_id)


def node_addresses(daemon: Daemon, plan: DockerPlan) -> tuple[ContainerAddress, ...]:
    """Of the nodes that run. Raises LaunchError where none does."""
    containers = daemon.containers(plan.run.run_id)
    up = [container for container in containers if container.status == "running"]
    if not up:
        raise LaunchError(join(why_ended(container) for container in containers[:3]))
    for container in containers:
        if container.status != "running":
            log.warning("%s", why_ended(container))
    return tuple(_address(daemon, plan, container) for container in up)


def _address(daemon: Daemon, plan: DockerPlan, container: "Container") -> ContainerAddress:
    name, port = container.labels[NODE], plan.run.cluster.ssh_port
    host = daemon.remote_host or "127.0.0.1"
    if plan.settings.network == "host":
        return ContainerAddress(name=name, address=host, port=port, host=host, host_port=port)
    network = container.attrs.get("NetworkSettings") or {}
    joined = (network.get("Networks") or {}).get(plan.network) or {}
    published: dict[str, object] = next(iter((network.get("Ports") or {}).get(f"{port}/tcp") or []), {})
    address, host_port = joined.get("IPAddress"), published.get("HostPort")
    try:
        return ContainerAddress.model_validate(
            {"name": name, "address": address, "port": port, "host": host, "host_port": host_port}
        )
    except ValidationError as error:
        raise LaunchError(Reason.of("docker-no-address", node=printable(name))) from error


def why_ended(container: "Container") -> str:
    """Why a container does not run."""
    state: Mapping[str, object] = container.attrs.get("State") or {}
    problem = (
        "it ran out of memory" if state.get("OOMKilled") else str(state.get("Error") or "") or _last_words(container)
    )
    return Reason.of(
        "docker-node-ended",
        node=printable(container.labels.get(NODE, container.name or "?")),
        status=str(state.get("ExitCode", "?")),
        problem=printable(problem)[:500] or "it printed nothing",
    )


def _last_words(container: "Container") -> str:
    try:
        with asked("logs"):
            return last_line(container.logs(tail=_LOG_TAIL)[-10_000:].decode(errors="replace"))
    except (GoneError, LaunchError):
        return ""


def check_sshd(daemon: Daemon, testbed: Testbed, timeout_s: float) -> None:
    """Raises LaunchError where no sshd answers in time, or no container runs any more."""
    if not wait_for_sshd(testbed, timeout_s, partial(_check_some_run, daemon, testbed.run_id), 0.2):
        host = daemon.remote_host or "this machine"
        nodes = some_of([node.name for node in testbed.nodes])
        raise LaunchError(Reason.of("docker-nodes-silent", nodes=nodes, limit_s=f"{timeout_s:g}", address=host))


def _check_some_run(daemon: Daemon, run_id: str) -> None:
    """Raises LaunchError where no container does: waiting longer changes nothing."""
    containers = daemon.containers(run_id)
    if not any(container.status == "running" for container in containers):
        raise LaunchError(join(why_ended(container) for container in containers[:3]))
