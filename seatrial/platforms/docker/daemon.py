"""The connection to the daemon of a Docker host, and the checks before a run."""

import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from seatrial.builders.stored import UnreachableError
from seatrial.config.image import Prebuilt
from seatrial.model.errors import LaunchError, MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms import state as states
from seatrial.platforms.docker import DockerPlatform
from seatrial.platforms.docker.plan import (
    KIND,
    NODE,
    RUN_ID,
    Body,
    DockerPlan,
    container_body,
    device_requests,
    gpus_of,
    uses_cdi,
)
from seatrial.platforms.testbed import trial_run
from seatrial.text.lines import last_line, one_line
from seatrial.text.printable import printable

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container
    from docker.models.networks import Network

    from seatrial.config.cluster import Cluster

MIN_API = (1, 41)  # Docker 20.10 and Podman 4
_TIMEOUT_S = 60
_SOCKET = "unix:///var/run/docker.sock"
# One device file per GPU; a MIG device is a part of one.
_COUNT_GPUS = "ls -d /dev/nvidia[0-9]* /dev/dri/renderD* 2>/dev/null | wc -l"


class GoneError(SeatrialError):
    """The daemon has no such object."""


class Daemon:
    """A connection to the daemon that the settings, the environment or docker's context name."""

    def __init__(self, settings: DockerPlatform) -> None:
        self._settings = settings
        self.address = _SOCKET
        self.source = "the default"

    @cached_property
    def client(self) -> "DockerClient":
        """The client. Raises MissingError if no daemon answers, or if it is too old."""
        import docker
        from docker.errors import DockerException

        try:
            options = self._options()
            _try_socket(self.address)
            # ssh itself, unlike paramiko, reads ssh's configuration
            client = docker.DockerClient(
                **options, version="auto", timeout=_TIMEOUT_S, use_ssh_client=True
            )
        except (
            DockerException,
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
        ) as error:
            # Docker's SDK raises the last three for a broken context
            raise MissingError.of(
                "docker-unreachable",
                address=printable(self.address),
                source=self.source,
                problem=error_text(error),
            ) from error
        if (
            tuple(int(part) for part in client.api.api_version.split(".") if part.isdecimal())
            < MIN_API
        ):
            raise MissingError.of(
                "docker-too-old",
                address=self.address,
                version=client.api.api_version,
                oldest=".".join(map(str, MIN_API)),
            )
        return client

    def _options(self) -> dict[str, Any]:
        """Return the arguments of DockerClient, with docker's precedence: settings, DOCKER_HOST,
        context.
        """
        from docker.context import ContextAPI
        from docker.utils import kwargs_from_env

        if self._settings.host:
            self.address = self._settings.host
            self.source = "platform.host"
            return {**kwargs_from_env(), "base_url": self.address}
        if not self._settings.context and os.environ.get("DOCKER_HOST"):
            self.address = os.environ["DOCKER_HOST"]
            self.source = "DOCKER_HOST"
            return dict(kwargs_from_env())
        name = self._settings.context or os.environ.get("DOCKER_CONTEXT")
        self.source = f"context {printable(name or 'of ~/.docker/config.json')}"
        context = ContextAPI.get_context(name)
        if context is None:
            raise ValueError("docker knows no such context; `docker context ls` lists them")
        if not name:
            self.source = f"context {printable(context.Name)}"
        self.address = context.Host or _SOCKET
        tls = {"tls": context.TLSConfig} if context.TLSConfig else {}
        return {"base_url": self.address, **tls}

    @property
    def remote_host(self) -> str | None:
        """The machine that runs the daemon; None if it is this one."""
        parts = urlsplit(self.address)
        host = None if parts.scheme.endswith("unix") else parts.hostname
        return None if host in (None, "localhost", "127.0.0.1", "::1") else host

    def info(self) -> Body:
        """Return the daemon's description of its host."""
        with explained("info"):
            return dict(self.client.info())

    def containers(self, run_id: str | None = None) -> "list[Container]":
        """Return the containers of a run in node order, whatever their state; of all runs when
        None.
        """
        with explained("list containers"):
            listed = self.client.containers.list(
                all=True, filters={"label": _label(run_id)}, ignore_removed=True
            )
        return sorted(listed, key=lambda container: _index(container.labels.get(NODE, "")))

    def networks(self, run_id: str | None = None) -> "list[Network]":
        """Return the networks of a run; of all runs when None."""
        with explained("list networks"):
            return list(self.client.networks.list(filters={"label": _label(run_id)}))

    def has_image(self, image: str) -> bool:
        from docker.errors import ImageNotFound

        with explained(f"look for image {image}"):
            try:
                self.client.images.get(image)
            except ImageNotFound:
                return False
        return True

    def create(self, name: str, body: Body) -> str:
        """Create a container and return its id."""
        with explained(f"create {name}"):
            api: Any = self.client.api  # the SDK's stubs leave this method untyped
            return str(api.create_container_from_config(body, name)["Id"])

    def create_network(self, body: Body) -> "Network":
        with explained(f"create network {body['Name']}"):
            return self.client.networks.create(
                body["Name"], driver=body["Driver"], check_duplicate=True, labels=body["Labels"]
            )


def _try_socket(address: str) -> None:
    """Connect to a socket of this machine.

    Raises OSError; the SDK's own error would not name the cause.
    """
    scheme, _, path = address.partition("://")
    if scheme.endswith("unix"):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_TIMEOUT_S)
            client.connect(path)


@contextmanager
def explained(action: str) -> Iterator[None]:
    """Turn the SDK's errors into LaunchError, or GoneError for an object that is gone."""
    from docker.errors import DockerException, NotFound
    from requests import RequestException

    try:
        yield
    except NotFound as error:
        raise GoneError.of("docker-refused", action=action, problem=error_text(error)) from error
    except (DockerException, RequestException, OSError) as error:
        raise LaunchError.of("docker-refused", action=action, problem=error_text(error)) from error


def error_text(error: Exception) -> str:
    """Return the message of the daemon, in one bounded line."""
    text = getattr(error, "explanation", None) or getattr(error, "strerror", None) or str(error)
    return printable(one_line(text))[:500] or type(error).__name__


def _label(run_id: str | None) -> str:
    return f"{RUN_ID}={run_id}" if run_id else RUN_ID


def _index(node: str) -> int:
    number = node.rpartition("-")[2]
    return int(number) if number.isdecimal() and len(number) < 6 else 0


def problems(daemon: Daemon, cluster: "Cluster", settings: DockerPlatform) -> list[Reason]:
    """Return everything that would keep a run from starting."""
    run = trial_run(cluster, f"doctor-{secrets.token_hex(4)}")
    plan = DockerPlan(run, settings, states.this_owner(KIND), time.time())
    try:
        info = daemon.info()
        if uses_cdi(plan):
            runtime = "CDI devices"
            there = bool(info.get("CDISpecDirs") or info.get("DiscoveredDevices"))
        else:
            runtime = "nvidia runtime"
            there = "nvidia" in (info.get("Runtimes") or {})
        if cluster.gpus and not there:
            return [
                Reason.of("docker-gpus-missing", address=printable(daemon.address), runtime=runtime)
            ]
        if not isinstance(cluster.image, Prebuilt):
            return []  # an image that is yet to be built cannot be tried
        image = cluster.image.reference
        return [*(_trial(daemon, plan) if daemon.has_image(image) else _missing_image(image))]
    except SeatrialError as error:
        return [error.reason]


def _missing_image(image: str) -> Iterator[Reason]:
    """Look for the image in its registry from this machine."""
    from seatrial.builders.registry import look_up

    try:
        if look_up(image) is None:
            yield Reason.of(
                "docker-image-missing", image=image, problem="its registry does not have it"
            )
    except (UnreachableError, MissingError) as error:
        yield Reason.of("docker-image-missing", image=image, problem=error.reason)


def _trial(daemon: Daemon, plan: DockerPlan) -> Iterator[Reason]:
    """Start and remove one container with the settings of the nodes, so that the daemon checks
    them.
    """
    body = container_body(plan, 0)
    gpus = tuple(gpu for i in range(plan.run.cluster.nodes) for gpu in gpus_of(plan, i))
    body["HostConfig"] |= {"DeviceRequests": device_requests(plan, gpus), "NetworkMode": "none"}
    body["HostConfig"].pop("PortBindings", None)
    body |= {"Entrypoint": ["/bin/sh", "-c", _COUNT_GPUS]}
    body.pop("NetworkingConfig", None)
    container = daemon.client.containers.get(daemon.create(plan.network, body))
    try:
        with explained("start a container for a trial"):
            container.start()
            container.wait(timeout=60)
            counted = last_line(container.logs(tail=1).decode(errors="replace"))
    finally:
        with explained("remove the container of the trial"):
            container.remove(v=True, force=True)
    count = int(counted) if counted.isdecimal() else 0
    if gpus and count < (1 if any(gpu.startswith("MIG") for gpu in gpus) else len(gpus)):
        yield Reason.of("docker-gpus-too-few", needed=len(gpus), count=count)
