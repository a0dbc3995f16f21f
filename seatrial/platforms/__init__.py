"""The contract of platforms: everything that differs between them; the rest is shared."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Protocol

from seatrial.config import PLATFORMS
from seatrial.model.errors import InputError
from seatrial.model.reason import Reason, placed

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster
    from seatrial.config.run import Run
    from seatrial.model.testbed import Testbed
    from seatrial.text.redact import Secrets

_SETTINGS = {
    "local": "seatrial.platforms.local:LocalPlatform",
    "kubernetes": "seatrial.platforms.kubernetes.config:KubernetesPlatform",
    "slurm": "seatrial.platforms.slurm:SlurmPlatform",
    "runai": "seatrial.platforms.runai:RunaiPlatform",
    "docker": "seatrial.platforms.docker:DockerPlatform",
    "baremetal": "seatrial.platforms.baremetal:BaremetalPlatform",
    "this-machine": "seatrial.platforms.baremetal:ThisMachinePlatform",
}
PLATFORMS.update({kind: partial(resolve_name, name) for kind, name in _SETTINGS.items()})


@dataclass(frozen=True, slots=True)
class Rendered:
    """Files to submit, by name, in the order of their use.

    `testbed` is the testbed that mpirun would use, with names in place of unknown addresses; None
    if the files contain the commands.
    """

    files: Mapping[str, str]
    # Not compared: its functions are new in every rendering
    testbed: "Testbed | None" = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Leftover:
    """Objects or state of an earlier run."""

    run_id: str
    age_s: float
    what: str


class Platform(Protocol):
    """The contract that every platform fulfils; `tests/contract` holds each to it."""

    def render(self, run: "Run") -> Rendered:
        """Render what `launch` submits. Pure."""

    def launch(self, run: "Run") -> "Testbed":
        """Bring the nodes up. Returns when they answer, or raises LaunchError naming the cause."""

    def attach(self, run_id: str) -> "Testbed":
        """Return the testbed of a run that is up, as another process finds it.

        Raises InputError when it is over.
        """

    def collect(self, run_id: str, folder: Path, timeout_s: float, secrets: "Secrets") -> None:
        """Write what the platform knows of the run, such as the logs of its nodes, into `folder`,
        redacted.
        """

    def keep(self, run_id: str, seconds: float) -> bool:
        """Keep the nodes up for `seconds` after this process ends; return false if there is nothing
        to keep.
        """

    def teardown(self, run_id: str) -> None:
        """Remove everything of the run. Idempotent; needs no state in memory."""

    def leftovers(self) -> list[Leftover]:
        """Return the leftovers of runs whose process is gone."""

    def missing(self) -> list[Reason]:
        """List prerequisites that this machine lacks, each with the next step."""


class Isolator(Protocol):
    """Takes nodes out of service and back, by the platform's scheduler."""

    def command(self, node: str, run_id: str, why: str) -> str:
        """Return the command line that does what `isolate` does. Pure."""

    def isolate(self, node: str, run_id: str, why: str) -> bool:
        """Take the node out of service; return false if it already is."""

    def release(self, node: str) -> None:
        """Return a node that `isolate` took out to service. Raises InputError for any
        other node.
        """


def platform_for(cluster: "Cluster", file: Path | None = None) -> Platform:
    """Return the platform that `cluster` (read from `file`) names.

    Raises InputError when the parts of the cluster file do not fit together on it.
    """
    where = file or f"cluster {cluster.name}"
    try:
        # On first use: their SDKs are heavy
        platform: Platform = cluster.platform.own_module("platform").platform(cluster)
    except InputError as error:
        raise InputError(placed(str(where), error.reason)) from error
    except ImportError as error:  # the platform of another package cannot be imported
        raise InputError(f"{where}: platform {cluster.platform.kind}: {error}") from error
    return platform


def isolator_for(cluster: "Cluster") -> Isolator:
    """Return the isolator of the cluster's nodes.

    Raises InputError if the platform has no scheduler that can isolate nodes.
    """
    if not cluster.platform.isolates:
        raise InputError(
            f"platform {cluster.platform.kind}: cannot isolate nodes; legal: kubernetes, slurm"
        )
    isolator: Isolator = cluster.platform.own_module("isolate").isolator(cluster)
    return isolator


def local_platform() -> Platform:
    """Return the local platform, the only one that finds leftovers of runs without a
    cluster file.
    """
    local: Platform = PLATFORMS["local"]().own_module("platform").PLATFORM
    return local
