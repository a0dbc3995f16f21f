"""The Docker platform: launch, teardown and leftovers of testbeds that are containers of one Docker
host.
"""

import ipaddress
import logging
import math
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from pydantic import Field, ValidationError

from seatrial.config.run import Run
from seatrial.model.errors import InputError, LaunchError, MissingError
from seatrial.model.reason import Reason, join
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms import Leftover, Rendered
from seatrial.platforms import state as states
from seatrial.platforms.commands import call_each
from seatrial.platforms.container import entry_files, key_files
from seatrial.platforms.docker import DockerPlatform
from seatrial.platforms.docker.daemon import Daemon, GoneError, error_text, explained, problems
from seatrial.platforms.docker.plan import (
    EXPIRES,
    KIND,
    MADE,
    NODE,
    OWNER,
    RUN_ID,
    DockerPlan,
    container_body,
    keys_archive,
    network_body,
)
from seatrial.platforms.state import NodeAddress, PlatformState, RunsWithState
from seatrial.platforms.testbed import nodes_of, testbed_of, wait_for_sshd
from seatrial.remote.ssh import KeyPair
from seatrial.system.rawlog import write_log
from seatrial.text.lines import last_line
from seatrial.text.printable import printable
from seatrial.text.redact import Secrets
from seatrial.text.words import some_of

if TYPE_CHECKING:
    from docker.models.containers import Container

    from seatrial.config.cluster import Cluster

log = logging.getLogger("seatrial.launch")

AT_ONCE = 8  # parallel requests to one daemon
Labels = Mapping[str, str]
_LOG_BYTES = 64 * 1024**2


class ContainerAddress(NodeAddress):
    """Addresses of a node: for its peers, and as `host` and `host_port` for this machine, which may
    be outside of the run's network.
    """

    host: str = Field(max_length=255)
    host_port: int = Field(ge=1, le=65535)


def ensure_image(daemon: Daemon, image: str) -> None:
    """Pull the image unless the host has it.

    Raises LaunchError with the registry's message, which arrives within the stream of the pull.
    """
    from docker.errors import DockerException

    if daemon.has_image(image):
        return
    log.info("pulling %s", image)
    try:
        for message in daemon.client.api.pull(image, stream=True, decode=True):
            if isinstance(message, dict) and message.get("error"):
                raise DockerException(str(message["error"]))
    except DockerException as error:
        raise LaunchError.of(
            "docker-image-missing", image=image, problem=error_text(error)
        ) from error


def create(daemon: Daemon, plan: DockerPlan, run_key: KeyPair, host_key: KeyPair) -> None:
    """Create and start everything, `AT_ONCE` nodes at a time.

    The keys are in a container before it starts, in no argument or environment. Raises LaunchError
    where the daemon refuses.
    """
    files = {**key_files(run_key, host_key), **entry_files()}
    archive = keys_archive(files)
    names = plan.run.cluster.node_names()
    if plan.settings.network == "own":
        daemon.create_network(network_body(plan))

    def create_node(index: int) -> None:
        name = f"{plan.network}-{names[index]}"
        container_id = daemon.create(name, container_body(plan, index))
        with explained(f"start {name}"):
            daemon.client.api.put_archive(container_id, "/etc", archive)
            daemon.client.api.start(container_id)

    call_each(range(plan.run.cluster.nodes), create_node, AT_ONCE)


def node_addresses(daemon: Daemon, plan: DockerPlan) -> tuple[ContainerAddress, ...]:
    """Return the addresses of the nodes that run, and log why others do not. Raises LaunchError if
    none does.
    """
    containers = daemon.containers(plan.run.run_id)
    up = _running(containers)
    for container in containers:
        if container not in up:
            log.warning("%s", why_ended(container))
    return tuple(_address(daemon, plan, container) for container in up)


def _running(containers: "Sequence[Container]") -> "list[Container]":
    """Return the running containers. Raises LaunchError if none runs, with the reason of up to
    three.
    """
    up = [container for container in containers if container.status == "running"]
    if not up:
        raise LaunchError(join(map(why_ended, containers[:3])))
    return up


def _address(daemon: Daemon, plan: DockerPlan, container: "Container") -> ContainerAddress:
    """Return the addresses of a container that runs.

    With the host's network both are the host's. Otherwise peers use the address in the run's
    network, and this machine a port of the Docker host. Raises LaunchError where Docker shows none.
    """
    name = container.labels[NODE]
    port = plan.run.cluster.ssh_port
    host = daemon.remote_host or "127.0.0.1"
    if plan.settings.network == "host":
        return ContainerAddress(name=name, address=host, port=port, host=host, host_port=port)
    network = container.attrs.get("NetworkSettings") or {}
    networks = network.get("Networks") or {}
    joined = networks.get(plan.network) or {}
    ports = network.get("Ports") or {}
    published: dict[str, object] = next(iter(ports.get(f"{port}/tcp") or []), {})
    fields = {
        "name": name,
        "address": joined.get("IPAddress"),
        "port": port,
        "host": host,
        "host_port": published.get("HostPort"),
    }
    try:
        return ContainerAddress.model_validate(fields)
    except ValidationError as error:
        raise LaunchError.of("docker-no-address", node=printable(name)) from error


def why_ended(container: "Container") -> Reason:
    """Explain the end of a container by Docker's own words, else by the last line that it
    printed.
    """
    state: Mapping[str, object] = container.attrs.get("State") or {}
    problem = str(state.get("Error") or "")
    if state.get("OOMKilled"):
        problem = "it ran out of memory"
    if not problem:  # the container's process ended on its own
        with suppress(GoneError, LaunchError), explained("logs"):
            problem = last_line(container.logs(tail=20)[-10_000:].decode(errors="replace"))
    shown = printable(problem)[:500] or "it printed nothing"
    return Reason.of(
        "docker-node-ended",
        node=printable(container.labels.get(NODE, container.name or "?")),
        how=f"ended with status {state.get('ExitCode', '?')}: {shown}",
    )


def is_abandoned(run_id: str, labels: Labels) -> bool:
    """Return whether the run's process is gone, as far as its labels and this machine show."""
    now = time.time()
    age_s = now - _seconds(labels, MADE, now)
    expires = _seconds(labels, EXPIRES, math.inf)
    return states.is_object_abandoned(KIND, run_id, labels.get(OWNER), age_s, expires)


def _seconds(labels: Labels, name: str, otherwise: float) -> float:
    """Return the time in a label, in seconds of the epoch; `otherwise` where it is no such time."""
    text = labels.get(name, "")
    if text.isascii() and text.isdecimal() and len(text) < 12:
        return float(text)
    return otherwise


class DockerState(PlatformState):
    """The containers, their common network, and the cores of the Docker host; None if a single node
    shares neither.
    """

    nodes: tuple[ContainerAddress, ...] = Field(min_length=1, max_length=10_000)
    network: str | None = Field(max_length=100)  # CIDR
    cores: int | None = Field(ge=1)


class Docker(RunsWithState[DockerState]):
    """Nodes as containers of one Docker host."""

    kind = KIND
    state_type = DockerState
    leaves = "its keys on this machine"

    def __init__(self, cluster: "Cluster") -> None:
        assert isinstance(cluster.platform, DockerPlatform)
        self._cluster = cluster
        self._settings = cluster.platform
        self._daemon = Daemon(cluster.platform)

    def render(self, run: Run) -> Rendered:
        """Render the bodies of Docker's API, as YAML by name; addresses are known at launch
        only.
        """
        plan = DockerPlan(run, self._settings)
        names = run.cluster.node_names()
        bodies = {}
        if self._settings.network == "own":
            bodies["network"] = network_body(plan)
        for index, name in enumerate(names):
            bodies[name] = container_body(plan, index)
        files = {}
        for name, body in bodies.items():
            files[f"{name}.yaml"] = yaml.safe_dump(body, sort_keys=False)
        nodes = tuple(
            ContainerAddress(
                name=name, address=name, port=run.cluster.ssh_port, host=name, host_port=1
            )
            for name in names
        )
        state = DockerState(
            host_key="", nodes=nodes, network="NETWORK" if len(nodes) > 1 else None, cores=None
        )
        return Rendered(files, self._testbed(run.run_id, state))

    def launch(self, run: Run) -> Testbed:
        """Pull the image where it is missing, start the containers, and wait until their sshd
        answer.

        Raises LaunchError where one of these fails, or no container runs any more.
        """
        daemon = self._daemon
        info = daemon.info()
        published_on = "0.0.0.0" if daemon.remote_host else "127.0.0.1"
        plan = DockerPlan(run, self._settings, states.this_owner(KIND), time.time(), published_on)
        folder, run_key, host_key = states.begin(run, KIND)
        ensure_image(daemon, run.nodes_image)
        create(daemon, plan, run_key, host_key)
        cores = info.get("NCPU") if run.cluster.nodes > 1 else None
        state = DockerState(
            host_key=host_key.public,
            nodes=node_addresses(daemon, plan),
            network=self._network(run.run_id),
            cores=cores,
        )
        testbed = self._testbed(run.run_id, state)
        state.save(folder, testbed)
        limit_s = self._settings.start_timeout_s
        if not wait_for_sshd(
            testbed, limit_s, lambda: _running(daemon.containers(run.run_id)), 0.2
        ):
            raise LaunchError.of(
                "docker-nodes-silent",
                nodes=some_of(testbed.names),
                limit_s=f"{limit_s:g}",
                address=daemon.remote_host or "this machine",
            )
        return testbed

    def _network(self, run_id: str) -> str | None:
        """Return the run's own network in CIDR notation; None without one."""
        for network in self._daemon.networks(run_id):
            for entry in (network.attrs.get("IPAM") or {}).get("Config") or []:
                with suppress(ValueError):
                    subnet = ipaddress.ip_network(entry.get("Subnet") or "", strict=False)
                    if subnet.version == 4:
                        return str(subnet)
        return None

    def _is_up(self, run_id: str) -> bool:
        return any(container.status == "running" for container in self._daemon.containers(run_id))

    def _testbed(self, run_id: str, state: DockerState) -> Testbed:
        """Return the testbed of the containers in `state`, reached at the Docker host."""
        reachable_at = {node.name: (node.host, node.host_port) for node in state.nodes}

        def dial(node: Node, timeout_s: float) -> socket.socket:
            return socket.create_connection(reachable_at[node.name], timeout_s)

        return testbed_of(
            self._cluster,
            run_id,
            nodes_of(self._cluster, state),
            user="root",
            key_file=self._folder(run_id) / states.KEY_FILE,
            dial=dial,
            workdir="/tmp/seatrial",
            network=state.network,
            blameless_reason=lambda node: self._blameless_reason(run_id, node),
            shared_cores=state.cores,
        )

    def _blameless_reason(self, run_id: str, node: Node) -> Reason | None:
        """Explain why the container does not run; None if it does."""
        for container in self._daemon.containers(run_id):
            if container.labels.get(NODE) == node.name:
                if container.status == "running":
                    return None
                return why_ended(container)
        return Reason.of("docker-node-ended", node=node.name, how="is gone")

    def collect(self, run_id: str, folder: Path, timeout_s: float, secrets: Secrets) -> None:
        """Write the logs of the remaining containers whose node names belong to the cluster."""
        if not self._folder(run_id).exists():
            return  # nothing was created
        legal = set(self._cluster.node_names())
        for container in self._daemon.containers(run_id):
            name = container.labels.get(NODE)
            if name not in legal:  # anybody on the host may set labels
                continue
            text = _log_of(container)
            if text.strip():
                write_log(folder / "nodes" / f"{name}.log", text, secrets)

    def teardown(self, run_id: str) -> None:
        """Remove containers, network and folder.

        Raises MissingError where the daemon is out of reach and this machine has begun the run.
        """
        folder = self._folder(run_id)

        def remove(container: "Container") -> None:
            with suppress(GoneError), explained(f"remove {container.name}"):
                container.remove(v=True, force=True)

        try:
            call_each(self._daemon.containers(run_id), remove, AT_ONCE)
        except MissingError:
            if folder.exists():  # otherwise this machine created nothing of the run
                raise
            return
        for network in self._daemon.networks(run_id):
            with suppress(GoneError), explained(f"remove network {network.name}"):
                network.remove()
        states.remove_folder(folder)

    def leftovers(self) -> list[Leftover]:
        """Return the leftovers of abandoned runs: containers and networks by their labels, and keys
        on this machine.
        """
        every: list[Labels] = [container.labels for container in self._daemon.containers()]
        every += [network.attrs.get("Labels") or {} for network in self._daemon.networks()]
        labels_by_run = {}
        for labels in every:
            run_id = labels.get(RUN_ID, "")
            if states.is_run_id(run_id):
                labels_by_run[run_id] = labels
        now = time.time()
        objects = []
        for run_id, labels in labels_by_run.items():
            if is_abandoned(run_id, labels):
                age_s = max(0.0, now - _seconds(labels, MADE, now))
                objects.append(Leftover(run_id, age_s, "containers and network"))

        def is_ours(folder: Path) -> bool:
            """Return whether the folder's run is on this Docker host, or on an unknown one."""
            if folder.name in labels_by_run:
                return False
            try:
                other = states.recall(folder).platform
            except InputError:
                return True
            return isinstance(other, DockerPlatform) and (other.host, other.context) == (
                self._settings.host,
                self._settings.context,
            )

        return objects + states.leftovers(KIND, self.leaves, is_ours)

    def missing(self) -> list[Reason]:
        return problems(self._daemon, self._cluster, self._settings)


platform = Docker


def _log_of(container: "Container") -> str:
    """Return the end of the container's log, up to 100,000 lines and `_LOG_BYTES`; empty if the
    container is gone.
    """
    chunks = []
    size = 0
    with suppress(GoneError), explained(f"logs of {container.name}"):
        for chunk in container.logs(stream=True, follow=False, tail=100_000):
            chunks.append(chunk)
            size += len(chunk)
            if size > _LOG_BYTES:
                break
    return b"".join(chunks).decode(errors="replace")
