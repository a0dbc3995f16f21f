"""Bring the containers of a run up: the image, the network, the run's keys, and the wait for sshd."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seatrial.model.errors import LaunchError
from seatrial.model.reason import Reason, join
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms.docker.daemon import Daemon, GoneError, asked, words
from seatrial.platforms.docker.plan import NODE, DockerPlan, container_body, keys_archive, network_body
from seatrial.remote.keys import KeyPair
from seatrial.remote.ssh import answers, fan_out, on_each
from seatrial.text.lines import last_line
from seatrial.text.printable import printable
from seatrial.text.words import some_of

if TYPE_CHECKING:
    from docker.models.containers import Container

log = logging.getLogger("seatrial.launch")

_AT_ONCE = 8  # requests to one daemon
_LOG_TAIL = 20  # lines of a container that ended
_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


class ContainerAddress(BaseModel):
    """Where a node is: for its peers (`address`, `port`), and for this machine (`host`, `host_port`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(max_length=255)
    address: str = Field(min_length=1, max_length=255)
    port: int = Field(ge=1, le=65535)
    host: str = Field(max_length=255)
    host_port: int = Field(ge=1, le=65535)


def at_once(items: Iterable[_Item], function: Callable[[_Item], _Answer]) -> list[_Answer]:
    """The function's answers, some at a time; raises the first error when all have ended."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [future.result() for future in [pool.submit(function, item) for item in items]]


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
    archive = keys_archive(
        {
            "authorized_keys": f"{run_key.public}\n",
            "id_ed25519": run_key.private,
            "ssh_host_ed25519_key": host_key.private,
            "known_hosts": f"* {host_key.public}\n",
        }
    )
    if plan.settings.network == "own":
        daemon.create_network(network_body(plan))
    at_once(range(plan.run.cluster.nodes), partial(_create_node, daemon, plan, archive))


def _create_node(daemon: Daemon, plan: DockerPlan, archive: bytes, index: int) -> None:
    name = plan.container_name(plan.run.cluster.node_names()[index])
    container_id = daemon.create(name, container_body(plan, index))
    with asked(f"start {name}"):
        daemon.client.api.put_archive(container_id, "/etc", archive)
        daemon.client.api.start(container_id)


def places(daemon: Daemon, plan: DockerPlan) -> tuple[ContainerAddress, ...]:
    """Of the nodes that run. Raises LaunchError where none does."""
    containers = daemon.containers(plan.run.run_id)
    up = [container for container in containers if container.status == "running"]
    if not up:
        raise LaunchError(join(why_ended(container) for container in containers[:3]))
    for container in containers:
        if container.status != "running":
            log.warning("%s", why_ended(container))
    return tuple(_place(daemon, plan, container) for container in up)


def _place(daemon: Daemon, plan: DockerPlan, container: "Container") -> ContainerAddress:
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
        how=f"ended with status {state.get('ExitCode', '?')}: {printable(problem)[:500] or 'it printed nothing'}",
    )


def _last_words(container: "Container") -> str:
    try:
        with asked("logs"):
            return last_line(container.logs(tail=_LOG_TAIL)[-10_000:].decode(errors="replace"))
    except (GoneError, LaunchError):
        return ""


def wait_for_sshd(daemon: Daemon, testbed: Testbed, timeout_s: float) -> None:
    """Until every sshd answers, or time is up. Some that do not are a finding; none at all is a failed launch."""
    deadline = time.monotonic() + timeout_s
    waiting = list(testbed.nodes)
    while waiting and time.monotonic() < deadline:
        up = on_each(waiting, partial(_answers, testbed), fan_out(testbed))
        waiting = [node for node in waiting if not up[node.name]]
        if waiting:
            if len(waiting) == len(testbed.nodes):
                _check_some_run(daemon, testbed.run_id)
            time.sleep(0.2)
    if len(waiting) == len(testbed.nodes):
        host = daemon.remote_host or "this machine"
        nodes = some_of([node.name for node in waiting])
        raise LaunchError(Reason.of("docker-nodes-silent", nodes=nodes, limit_s=f"{timeout_s:g}", address=host))
    for node in waiting:
        log.warning("%s: sshd does not answer on port %d", node.name, node.port)


def _answers(testbed: Testbed, node: Node) -> bool:
    return answers(testbed, node, 2)


def _check_some_run(daemon: Daemon, run_id: str) -> None:
    """Raises LaunchError where no container does: waiting longer changes nothing."""
    containers = daemon.containers(run_id)
    if not any(container.status == "running" for container in containers):
        raise LaunchError(join(why_ended(container) for container in containers[:3]))
