"""Step `image`: what the nodes will run. Where there is no image, the versions this machine has are the record."""

import json
import subprocess
import sys
from dataclasses import dataclass, field

from prefect import task
from prefect.cache_policies import NO_CACHE

from seatrial.probes import probe
from seatrial.run import Run


@dataclass(frozen=True, slots=True)
class Image:
    """What the nodes run. Without an image `reference` and `digest` are None; `fingerprint` is version by package."""

    reference: str | None = None
    digest: str | None = None
    fingerprint: dict[str, str] = field(default_factory=dict)


def image(run: Run) -> Image:
    """The image that the run's nodes use; on the local platform there is none and this machine is what they run."""
    if run.cluster.platform.kind != "local":
        return Image(run.cluster.image)
    return Image(fingerprint=_versions_here(run.cluster.mpi.mpirun))


def _versions_here(mpirun: str) -> dict[str, str]:
    """Versions as the nodes will report them: the same probe, run here."""
    done = subprocess.run(
        [sys.executable, str(probe("facts")), mpirun], capture_output=True, text=True, check=True, timeout=60
    )
    versions: dict[str, str] = json.loads(done.stdout)["versions"]
    return versions


@task(name="image", cache_policy=NO_CACHE)
def image_task(run: Run) -> Image:
    return image(run)
