"""Podman's Docker-compatible socket, started for the tests on the images and the lock of
tests/images.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

from tests.images import lane
from tests.site import PATIENCE_S

# Machines that take CAP_SYS_RESOURCE away from root refuse podman's own limits.
LIMITS = {"nofile": 1024, "nproc": 4096}


@dataclass(frozen=True)
class Engine:
    """A daemon that answers, and an image of images/cpu that it has."""

    address: str
    image: str

    @property
    def settings(self) -> dict[str, Any]:
        """The section `platform` of a cluster file for it."""
        return {"kind": "docker", "host": self.address, "ulimits": LIMITS}

    def objects(self) -> set[str]:
        """Every container and network with our labels."""
        client = docker.DockerClient(base_url=self.address)
        try:
            label: dict[str, Any] = {"label": "seatrial.run-id"}
            containers = {
                str(each.name) for each in client.containers.list(all=True, filters=label)
            }
            return containers | {str(each.name) for each in client.networks.list(filters=label)}
        finally:
            client.close()


@contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    """Podman's service on a socket in the folder, until the end.

    Raises AssertionError where it does not answer.
    """
    socket = folder / "podman.sock"
    command = [
        "podman",
        *lane.STORE,
        "--runtime",
        "runc",
        "system",
        "service",
        "--time",
        "0",
        f"unix://{socket}",
    ]
    with (folder / "service.log").open("wb") as log:
        service = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not socket.exists():
                assert service.poll() is None, (folder / "service.log").read_text()
                assert time.monotonic() < deadline, "podman's service made no socket"
                time.sleep(0.05)
            yield Engine(f"unix://{socket}", lane.build("cpu"))
        finally:
            service.terminate()
            service.wait(30)
