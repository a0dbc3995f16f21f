"""Checks before a run on a Docker host, each with the next step."""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.builders import UnreachableError
from seatrial.builders.registry import look_up
from seatrial.checks.suites import load_suite
from seatrial.config.image import Prebuilt
from seatrial.config.run import Run
from seatrial.model.errors import MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms.docker.config import DockerPlatform
from seatrial.platforms.docker.daemon import Daemon, asked
from seatrial.platforms.docker.plan import KIND, Body, DockerPlan, container_body, device_requests, gpus_of, uses_cdi
from seatrial.platforms.state import this_owner
from seatrial.text.lines import last_line
from seatrial.text.printable import printable

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

_TRIAL_S = 60
# One device file per GPU; a MIG device is a part of one.
_COUNT_GPUS = "ls -d /dev/nvidia[0-9]* /dev/dri/renderD* 2>/dev/null | wc -l"


def problems(daemon: Daemon, cluster: "Cluster", settings: DockerPlatform) -> list[str]:
    """Everything that would keep a run from starting."""
    run = Run(f"doctor-{secrets.token_hex(4)}", cluster, load_suite("quick"), Path("doctor"))
    plan = DockerPlan(run, settings, this_owner(KIND), time.time())
    try:
        info = daemon.info()
        lacking = [*_gpu_runtime(daemon, plan, info)]
        if lacking or not isinstance(cluster.image, Prebuilt):
            return lacking  # an image that is yet to be built cannot be tried
        return [*_image(daemon, plan)] if not _has_image(daemon, plan.image) else [*_trial(daemon, plan)]
    except SeatrialError as error:
        return [error.reason]


def _gpu_runtime(daemon: Daemon, plan: DockerPlan, info: Body) -> Iterator[str]:
    if not plan.run.cluster.gpus:
        return
    if uses_cdi(plan):
        runtime, there = "CDI devices", bool(info.get("CDISpecDirs") or info.get("DiscoveredDevices"))
    else:
        runtime, there = "nvidia runtime", "nvidia" in (info.get("Runtimes") or {})
    if not there:
        yield Reason.of("docker-gpus-missing", address=printable(daemon.address), runtime=runtime)


def _has_image(daemon: Daemon, image: str) -> bool:
    from docker.errors import ImageNotFound

    with asked(f"look for image {image}"):
        try:
            daemon.client.images.get(image)
        except ImageNotFound:
            return False
    return True


def _image(daemon: Daemon, plan: DockerPlan) -> Iterator[str]:
    """Why the registry, as this machine sees it, does not have the image."""
    try:
        if look_up(plan.image) is None:
            yield Reason.of("docker-image-missing", image=plan.image, problem="its registry does not have it")
    except (UnreachableError, MissingError) as error:
        yield Reason.of("docker-image-missing", image=plan.image, problem=error.reason)


def _trial(daemon: Daemon, plan: DockerPlan) -> Iterator[str]:
    """Start one container with the settings of the nodes, and remove it, so that the daemon checks every setting."""
    body = container_body(plan, 0)
    gpus = tuple(gpu for i in range(plan.run.cluster.nodes) for gpu in gpus_of(plan, i))
    body["HostConfig"] |= {"DeviceRequests": device_requests(plan, gpus), "NetworkMode": "none"}
    body["HostConfig"].pop("PortBindings", None)
    body |= {"Entrypoint": ["/bin/sh", "-c", _COUNT_GPUS]}
    body.pop("NetworkingConfig", None)
    container = daemon.client.containers.get(daemon.create(plan.network, body))
    try:
        with asked("start a container for a trial"):
            container.start()
            container.wait(timeout=_TRIAL_S)
            counted = last_line(container.logs(tail=1).decode(errors="replace"))
    finally:
        with asked("remove the container of the trial"):
            container.remove(v=True, force=True)
    count = int(counted) if counted.isdecimal() else 0
    if gpus and count < (1 if any(gpu.startswith("MIG") for gpu in gpus) else len(gpus)):
        yield Reason.of("docker-gpus-too-few", needed=len(gpus), count=count)
