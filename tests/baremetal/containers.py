"""Hosts that start containers: by podman with the images of tests/images, and by a script in place
of Apptainer.
"""

import sys
from collections.abc import Sequence
from typing import Any

from tests.baremetal.hosts import Hosts
from tests.images import lane
from tests.slurm.containers import Containers, mounts

# Machines that take CAP_SYS_RESOURCE away from root refuse podman's own limits.
LIMITS = {"nofile": 1024, "nproc": 4096}

_STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{folder}/{name}.podman/storage"
runroot = "{folder}/{name}.podman/run"
[storage.options]
additionalimagestores = ["{folder}/images"]
"""
_CONTAINERS_CONF = """\
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
tmp_dir = "{folder}/{name}.podman/tmp"
"""


class PodmanHosts(Hosts):
    """Each has a podman with containers of its own, and sees the images of the cache."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        with lane.alone():
            self.image = lane.build("cpu")

    def environment(self, name: str) -> dict[str, str]:
        folder = f"{self.folder}/{name}.podman"
        return {
            "CONTAINERS_STORAGE_CONF": f"{folder}/storage.conf",
            "CONTAINERS_CONF": f"{folder}/containers.conf",
        }

    def prepare(self, name: str) -> str:
        folder = self.folder / f"{name}.podman"
        folder.mkdir()
        (self.folder / "images").mkdir(exist_ok=True)
        (folder / "storage.conf").write_text(_STORAGE_CONF.format(folder=self.folder, name=name))
        (folder / "containers.conf").write_text(
            _CONTAINERS_CONF.format(folder=self.folder, name=name)
        )
        return f"mount --bind {lane.CACHE}/storage {self.folder}/images"

    def left_on(self, name: str) -> set[str]:
        """Containers too."""
        return super().left_on(name) | set(
            self.on(name, "podman", "ps", "--all", "--format", "{{.Names}}").split()
        )

    @property
    def fields(self) -> dict[str, Any]:
        """Of the section `platform`."""
        return {"runtime": "podman", "ulimits": LIMITS}


class DockerHosts(PodmanHosts):
    """The docker client on each talks to podman's Docker-compatible socket, as there is no daemon
    of Docker's here.
    """

    def environment(self, name: str) -> dict[str, str]:
        return {
            **super().environment(name),
            "DOCKER_HOST": f"unix://{self.folder}/{name}.podman/docker.sock",
        }

    def start(self) -> None:
        super().start()
        for name in self.names:
            self.on(
                name,
                "sh",
                "-c",
                'setsid -f podman system service --time 0 "$DOCKER_HOST" >/dev/null 2>&1',
            )
            self.on(name, "sh", "-c", "timeout 30 sh -c 'until docker version; do sleep 0.1; done'")

    def left_on(self, name: str) -> set[str]:
        return {
            line for line in super().left_on(name) if not line.startswith("podman system service")
        }

    @property
    def fields(self) -> dict[str, Any]:
        return {**super().fields, "runtime": "docker"}


class ApptainerHosts(Hosts):
    """Each finds the script on PATH."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._containers = Containers(self.folder / "images")
        self._containers.prepare()
        self.image = str(self._containers.sif)

    def environment(self, name: str) -> dict[str, str]:
        return {"PATH": f"{self._containers.modules}/bin:/usr/local/bin:/usr/bin:/bin"}

    @property
    def fields(self) -> dict[str, Any]:
        """Of the section `platform`."""
        return {"runtime": "apptainer", "mounts": mounts(), "container_python": sys.executable}
