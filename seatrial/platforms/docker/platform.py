"""The Docker platform: launch, teardown and leftovers of testbeds that are containers of one Docker host."""

import ipaddress
import socket
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seatrial.config.run import Run
from seatrial.model.errors import InputError, MissingError
from seatrial.model.reason import Reason
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms import Leftover, Rendered
from seatrial.platforms import state as states
from seatrial.platforms.docker import bringup
from seatrial.platforms.docker.bringup import ContainerAddress
from seatrial.platforms.docker.config import DockerPlatform
from seatrial.platforms.docker.daemon import Daemon, GoneError, asked
from seatrial.platforms.docker.leftovers import KIND, leftovers
from seatrial.platforms.docker.plan import NODE, DockerPlan, container_body, network_body
from seatrial.platforms.owner import this_one
from seatrial.platforms.testbed import node_of, testbed_of
from seatrial.remote.keys import new_key_pair
from seatrial.remote.ssh import known_hosts
from seatrial.system.rawlog import write_log
from seatrial.text.redact import Secrets

if TYPE_CHECKING:
    from docker.models.containers import Container

    from seatrial.config.cluster import Cluster

_LOG_LINES = 100_000
_LOG_BYTES = 64 * 1024**2


class _Up(BaseModel):
    """What another process needs to find the nodes of a run, in the order of the hostfile."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: tuple[ContainerAddress, ...] = Field(min_length=1, max_length=10_000)
    network: str | None = Field(max_length=100)  # CIDR
    cores: int | None = Field(ge=1)  # of the Docker host


class Docker:
    """Nodes as containers of one Docker host."""

    def __init__(self, cluster: "Cluster", settings: DockerPlatform) -> None:
        self._cluster = cluster
        self._settings = settings
        self._daemon = Daemon(settings)

    def render(self, run: Run) -> Rendered:
        plan = DockerPlan(run, self._settings)
        network = {"network.yaml": _yaml(network_body(plan))} if self._settings.network == "own" else {}
        names = run.cluster.node_names()
        return Rendered(network | {f"{name}.yaml": _yaml(container_body(plan, i)) for i, name in enumerate(names)})

    def launch(self, run: Run) -> Testbed:
        daemon = self._daemon
        info = daemon.info()
        published_on = "0.0.0.0" if daemon.remote_host else "127.0.0.1"
        plan = DockerPlan(run, self._settings, this_one(KIND), time.time(), published_on)
        folder = states.make_folder(run.run_id, KIND)
        states.remember(folder, run.cluster)
        bringup.ensure_image(daemon, plan.image)
        run_key, host_key = new_key_pair(), new_key_pair()
        states.write_private(folder / "id_ed25519", run_key.private)
        states.write_private(folder / "host_key.pub", host_key.public)
        bringup.create(daemon, plan, run_key, host_key)
        cores = info.get("NCPU") if run.cluster.nodes > 1 else None
        up = _Up(nodes=bringup.places(daemon, plan), network=self._network(run.run_id), cores=cores)
        states.write_private(folder / "nodes.json", up.model_dump_json())
        testbed = self._testbed(run.run_id, up, host_key.public)
        states.write_private(folder / "known_hosts", known_hosts(testbed.nodes))  # for `seatrial ssh`
        bringup.wait_for_sshd(daemon, testbed, self._settings.start_timeout_s)
        return testbed

    def _network(self, run_id: str) -> str | None:
        """The first network of the run in CIDR notation; None where it has none of its own."""
        for network in self._daemon.networks(run_id):
            for entry in (network.attrs.get("IPAM") or {}).get("Config") or []:
                with suppress(ValueError):
                    subnet = ipaddress.ip_network(entry.get("Subnet") or "", strict=False)
                    if subnet.version == 4:
                        return str(subnet)
        return None

    def attach(self, run_id: str) -> Testbed:
        folder = states.run_folder(run_id, KIND)
        if not folder.exists() or not self._running(run_id):
            raise InputError(f"run {run_id}: is over")
        try:
            up = _Up.model_validate_json(states.read_file(folder, "nodes.json"))
        except ValidationError as error:
            raise InputError(f"run {run_id}: nodes.json: is not what was written") from error
        return self._testbed(run_id, up, states.read_file(folder, "host_key.pub"))

    def _running(self, run_id: str) -> "list[Container]":
        return [container for container in self._daemon.containers(run_id) if container.status == "running"]

    def _testbed(self, run_id: str, up: _Up, host_key: str) -> Testbed:
        reachable_at = {place.name: (place.host, place.host_port) for place in up.nodes}

        def dial(node: Node, timeout_s: float) -> socket.socket:
            return socket.create_connection(reachable_at[node.name], timeout_s)

        testbed = testbed_of(
            self._cluster,
            run_id,
            [node_of(self._cluster, place.name, place.address, host_key, place.port) for place in up.nodes],
            user="root",
            key_file=states.run_folder(run_id, KIND) / "id_ed25519",
            dial=dial,
            workdir="/tmp/seatrial",
            network=up.network,
            blameless_reason=lambda node: self._blameless_reason(run_id, node),
        )
        return replace(testbed, shared_cores=up.cores)

    def _blameless_reason(self, run_id: str, node: Node) -> str | None:
        """Why the container does not run; None where it does."""
        for container in self._daemon.containers(run_id):
            if container.labels.get(NODE) == node.name:
                return None if container.status == "running" else bringup.why_ended(container)
        return Reason.of("docker-node-ended", node=node.name, how="is gone")

    def collect(self, run_id: str, folder: Path, timeout_s: float, secrets: Secrets) -> None:
        if not states.run_folder(run_id, KIND).exists():
            return  # nothing was created
        legal = set(self._cluster.node_names())
        for container in self._daemon.containers(run_id):
            name = container.labels.get(NODE)
            if name in legal and (text := _log_of(container)).strip():
                write_log(folder / "nodes" / f"{name}.log", text, secrets)

    def keep(self, run_id: str, seconds: float) -> bool:
        if not states.run_folder(run_id, KIND).exists() or not self._running(run_id):
            return False
        states.keep(states.run_folder(run_id, KIND), seconds)
        return True

    def teardown(self, run_id: str) -> None:
        folder = states.run_folder(run_id, KIND)
        try:
            bringup.at_once(self._daemon.containers(run_id), _remove)
        except MissingError:
            if folder.exists():  # else nothing of it was ever created from here
                raise
            return
        for network in self._daemon.networks(run_id):
            with suppress(GoneError), asked(f"remove network {network.name}"):
                network.remove()
        states.remove_folder(folder)

    def leftovers(self) -> list[Leftover]:
        return leftovers(self._daemon, self._settings)

    def missing(self) -> list[str]:
        from seatrial.platforms.docker.doctor import problems

        return problems(self._daemon, self._cluster, self._settings)


def platform(cluster: "Cluster") -> Docker:
    """The platform that the cluster file describes."""
    assert isinstance(cluster.platform, DockerPlatform)
    return Docker(cluster, cluster.platform)


def _remove(container: "Container") -> None:
    with suppress(GoneError), asked(f"remove {container.name}"):
        container.remove(v=True, force=True)


def _log_of(container: "Container") -> str:
    """What the container printed last."""
    chunks, size = [], 0
    with suppress(GoneError), asked(f"logs of {container.name}"):
        for chunk in container.logs(stream=True, follow=False, tail=_LOG_LINES):
            chunks.append(chunk)
            size += len(chunk)
            if size > _LOG_BYTES:
                break
    return b"".join(chunks).decode(errors="replace")


def _yaml(body: dict[str, object]) -> str:
    return yaml.safe_dump(body, sort_keys=False)
