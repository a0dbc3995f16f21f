"""Step `image`: what the nodes will run, found or built."""

import logging
import platform
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

log = logging.getLogger("seatrial.image")


@dataclass(frozen=True, slots=True)
class Image:
    """The nodes' image: `reference` is None and `fingerprint` empty without one.

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
    cluster = run.cluster
    config = cluster.image
    if config is None:
        return Image()
    nodes = node_architecture(cluster, platform.machine())
    if isinstance(config, Recipe):
        _refuse_foreign(
            config.name, [name.split("/")[1] for name in platforms_of(config, nodes)], cluster
        )
    built = ensure_image(config, nodes, run.logs / "image-build.log", rebuild=rebuild)
    _refuse_foreign(built.reference, built.architectures, cluster)
    log.info("image: %s", built.pinned)
    if cluster.platform.uses_host_software:
        log.warning(
            "nodes of platform %s run this machine's own software, not the image",
            cluster.platform.kind,
        )
    pulled = not isinstance(config, Recipe) or config.repository
    return Image(built.pinned if pulled else built.reference, {"image": built.pinned})


def _refuse_foreign(reference: str, architectures: Sequence[str], cluster: Cluster) -> None:
    if wrong := wrong_architecture(reference, architectures, cluster, platform.machine()):
        raise MissingError(wrong)


image_task = task(name="image", cache_policy=NO_CACHE)(image)
