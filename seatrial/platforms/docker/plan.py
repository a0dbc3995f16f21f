"""Objects of a run on a Docker host, as the Engine API takes them. Pure.

Bodies of POST /networks/create and /containers/create:
https://docs.docker.com/reference/api/engine/
"""

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seatrial.config.run import Run
from seatrial.platforms.container import ENTRY_POINT, KEYS, capabilities, has_amd_gpus, limits
from seatrial.platforms.docker import DockerPlatform

KIND = "docker"  # name of the state folder of runs
RUN_ID = "seatrial.run-id"  # label of all objects of a run
NODE = "seatrial.node"
CLUSTER = "seatrial.cluster"
# Label: the owner, who alone can tell whether the run's process still lives
OWNER = "seatrial.owner"
MADE = "seatrial.made"  # label: time of creation, in seconds of the epoch
# Label, in seconds of the epoch: after this, any owner may treat the run as abandoned
EXPIRES = "seatrial.expires"

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DockerPlan:
    """One run on one Docker host."""

    run: Run
    settings: DockerPlatform
    owner: str = "<this host>"
    made_s: float | None = None  # seconds of the epoch
    # Address on which the Docker host publishes sshd's port; all addresses on a remote host.
    published_on: str = "127.0.0.1"

    @property
    def network(self) -> str:
        return f"seatrial-{self.run.run_id}"

    @property
    def lives_s(self) -> int:
        """Seconds after which a container ends itself."""
        return int(self.settings.deadline_s + self.run.cluster.kept_s)

    @property
    def labels(self) -> dict[str, str]:
        made = "<launch>"
        expires = "<launch and deadline_s>"
        if self.made_s is not None:
            made = str(int(self.made_s))
            expires = str(int(self.made_s + self.lives_s))
        whose = {RUN_ID: self.run.run_id, CLUSTER: self.run.cluster.name, OWNER: self.owner}
        return {**whose, MADE: made, EXPIRES: expires}


def network_body(plan: DockerPlan) -> Body:
    """Return the bridge network of the run."""
    return {"Name": plan.network, "Driver": "bridge", "CheckDuplicate": True, "Labels": plan.labels}


def container_body(plan: DockerPlan, index: int) -> Body:
    """Return the container that is node number `index`."""
    cluster = plan.run.cluster
    node = cluster.node_names()[index]
    env = {
        "SEATRIAL_SSH_PORT": str(cluster.ssh_port),
        "SEATRIAL_MAX_SECONDS": str(plan.lives_s),
        # Images of NVIDIA's ask for all of them
        **({} if cluster.gpus else {"NVIDIA_VISIBLE_DEVICES": "void"}),
        **cluster.env,
    }
    body: Body = {
        "Image": plan.run.nodes_image,
        "Hostname": node,
        "User": "0",
        "Entrypoint": ENTRY_POINT,
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in env.items()],
        "Labels": {**plan.labels, NODE: node},
        "HostConfig": _host_config(plan, index),
    }
    if plan.settings.network == "own":
        body["ExposedPorts"] = {f"{cluster.ssh_port}/tcp": {}}
        body["NetworkingConfig"] = {"EndpointsConfig": {plan.network: {"Aliases": [node]}}}
    return body


def _host_config(plan: DockerPlan, index: int) -> Body:
    cluster = plan.run.cluster
    settings = plan.settings
    ulimits = sorted(limits(cluster, settings.ulimits).items())
    config: Body = {
        "NetworkMode": plan.network if settings.network == "own" else "host",
        "CapDrop": ["ALL"],
        "CapAdd": capabilities(cluster, settings.devices, settings.capabilities),
        "SecurityOpt": ["no-new-privileges"],
        "IpcMode": settings.ipc,
        "Ulimits": [{"Name": name, "Soft": limit, "Hard": limit} for name, limit in ulimits],
        "Mounts": [
            {
                "Type": "bind",
                "Source": mount.source,
                "Target": mount.target,
                "ReadOnly": mount.read_only,
            }
            for mount in settings.mounts
        ],
        "Devices": [
            {"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"}
            for path in settings.devices
        ],
        "DeviceRequests": device_requests(plan, gpus_of(plan, index)),
        "RestartPolicy": {"Name": "no"},
    }
    if settings.ipc == "private":
        config["ShmSize"] = int(
            (settings.shared_memory_gib or (16 if cluster.gpus else 1)) * 1024**3
        )
    if settings.network == "own":
        config["PortBindings"] = {
            f"{cluster.ssh_port}/tcp": [{"HostIp": plan.published_on, "HostPort": ""}]
        }
    return {key: value for key, value in config.items() if value != []}


def gpus_of(plan: DockerPlan, index: int) -> tuple[str, ...]:
    """Return the GPUs of node number `index`; nodes share no GPU."""
    count = plan.run.cluster.gpus
    if plan.settings.gpus:
        return plan.settings.gpus[index]
    return tuple(str(gpu) for gpu in range(index * count, (index + 1) * count))


def uses_cdi(plan: DockerPlan) -> bool:
    return plan.settings.cdi or _vendor(plan) == "amd.com"


def _vendor(plan: DockerPlan) -> str:
    return "amd.com" if has_amd_gpus(plan.run.cluster) else "nvidia.com"


def device_requests(plan: DockerPlan, gpus: tuple[str, ...]) -> list[Body]:
    """Return the GPUs as DeviceRequests of the Engine API."""
    if not gpus:
        return []
    if uses_cdi(plan):
        return [{"Driver": "cdi", "DeviceIDs": [f"{_vendor(plan)}/gpu={gpu}" for gpu in gpus]}]
    return [{"Driver": "nvidia", "DeviceIDs": list(gpus), "Capabilities": [["gpu"]]}]


def keys_archive(files: Mapping[str, str]) -> bytes:
    """Return a tar archive for `/etc` of the run's keys and the entry point, readable for root
    alone.
    """
    buffer = io.BytesIO()
    folder = KEYS.removeprefix("/etc/")
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(folder)
        entry.type = tarfile.DIRTYPE
        entry.mode = 0o700
        archive.addfile(entry)
        for name, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(content)
            entry.mode = 0o600
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
