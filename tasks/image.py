"""Step `image`: what the nodes will run, found or built.

Without an image, this machine's versions are the record.
"""

import logging
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from prefect import task
from prefect.cache_policies import NO_CACHE

from seatrial.builders import ensure_image, platforms_of
from seatrial.config.architecture import node_architecture, wrong_architecture
from seatrial.config.cluster import Cluster
from seatrial.config.image import Recipe
from seatrial.config.run import Run
from seatrial.model.errors import MissingError
from seatrial.remote.answers import Facts, read_answer
from seatrial.remote.probes import probe

log = logging.getLogger("seatrial.image")


@dataclass(frozen=True, slots=True)
class Image:
    """The nodes' image: `reference` is None without one; `fingerprint` is version by package.

    The fingerprint always has the digest, the reference where it comes from a registry: what was
    only loaded here is found by its tag alone, which carries the hash of its sources.
    """

    reference: str | None = None
    fingerprint: dict[str, str] = field(default_factory=dict)


def image(run: Run, rebuild: bool = False) -> Image:
    """Return the image that the run's nodes use, built if need be.

    Local nodes are this machine's own and run what it has. Raises MissingError when there is no
    such image or it cannot run on the nodes, LaunchError when a build fails.
    """
    config = run.cluster.image
    reference: str | None = None
    fingerprint: dict[str, str] = {}
    if config:
        cluster = run.cluster
        nodes = node_architecture(cluster, platform.machine())
        if isinstance(config, Recipe):
            _refuse_foreign(
                config.name, [name.split("/")[1] for name in platforms_of(config, nodes)], cluster
            )
        built = ensure_image(config, nodes, run.logs / "image-build.log", rebuild=rebuild)
        _refuse_foreign(built.reference, built.architectures, cluster)
        log.info("image: %s", built.pinned)
        fingerprint["image"] = built.pinned
        pulled = not isinstance(config, Recipe) or config.repository
        reference = built.pinned if pulled else built.reference
    if not run.cluster.platform.uses_host_software:
        return Image(reference, fingerprint)
    if reference:
        log.warning(
            "nodes of platform %s run this machine's own software, not the image",
            run.cluster.platform.kind,
        )
    return Image(reference, fingerprint | _versions_here(run.cluster.mpi.mpirun))


def _refuse_foreign(reference: str, architectures: Sequence[str], cluster: Cluster) -> None:
    if wrong := wrong_architecture(reference, architectures, cluster, platform.machine()):
        raise MissingError(wrong)


def _versions_here(mpirun: str) -> dict[str, str]:
    """Return versions as the nodes will report them: the same probe, run here.

    Unknown versions are left out.
    """
    try:
        argv = [sys.executable, str(probe("facts")), mpirun]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
        versions = read_answer(Facts, done.stdout).versions
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        log.warning("the versions of this machine's software are not known: %s", error)
        return {}
    return {package: version for package, version in versions.items() if version}


image_task = task(name="image", cache_policy=NO_CACHE)(image)
