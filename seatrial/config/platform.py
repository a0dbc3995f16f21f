"""What every platform's settings answer, and the table of platforms.

A platform is one package: `config` has its settings model, `platform` has `platform(cluster)`, which returns what
fulfils `seatrial.platforms.Platform`.
"""

from collections.abc import Iterator, Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from seatrial.config.yamlfile import Strict

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

# The settings models by kind, imported by name: this package is below those of the platforms.
PLATFORMS: Mapping[str, str] = {
    "local": "seatrial.platforms.local.config:LocalPlatform",
    "kubernetes": "seatrial.platforms.kubernetes.config:KubernetesPlatform",
    "slurm": "seatrial.platforms.slurm.config:SlurmPlatform",
    "runai": "seatrial.platforms.runai.config:RunaiPlatform",
    "docker": "seatrial.platforms.docker.config:DockerPlatform",
    "baremetal": "seatrial.platforms.baremetal.config:BaremetalPlatform",
    "this-machine": "seatrial.platforms.thismachine.config:ThisMachinePlatform",
}

Seconds = Annotated[float, Field(gt=0, le=7 * 86400)]


class PlatformSettings(Strict):
    """What a cluster file says of its platform, and what the rest of seatrial has to know of it."""

    kind: str
    pulls_images: ClassVar[bool] = False  # nodes take their image from a registry, so what is built needs a repository
    uses_host_software: ClassVar[bool] = False  # nodes run the software of this machine, not that of an image
    takes_image_files: ClassVar[bool] = False  # nodes may start an image that is a file
    injects_faults: ClassVar[bool] = False

    def architecture(self, hardware: str, here: str) -> str | None:
        """The nodes' (amd64, arm64) where the platform decides it; None where the hardware does.

        `here` is the architecture of this machine.
        """
        return None

    def secret_variables(self) -> tuple[str, ...]:
        """The environment variables of the nodes whose values are secret."""
        return ()

    def problems(self, cluster: "Cluster") -> Iterator[str]:
        """What does not fit together with the rest of the cluster file. Each begins with the field to change."""
        if self.pulls_images and cluster.builds_without_repository:
            yield f"image: needs a repository, from which the nodes of platform {self.kind} pull it"
        if cluster.image_is_a_file and not self.takes_image_files:
            takers = "slurm and baremetal"
            yield f"image: a file is only for platforms {takers}; {self.kind} takes a reference such as repo/name:tag"
        if cluster.faults and not self.injects_faults:
            yield "faults: are only for platform local; nobody's real cluster is broken on purpose"

    @classmethod
    def implementation(cls) -> str:
        """The module beside the model that brings nodes up."""
        return f"{cls.__module__.rpartition('.')[0]}.platform"


def settings_models() -> dict[str, type[PlatformSettings]]:
    """By kind, in the order of the table."""
    return {kind: resolve_name(name) for kind, name in PLATFORMS.items()}
