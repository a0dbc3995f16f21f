"""Images: find or build what a cluster file names.

A builder has only what differs between builders.
"""

import json
import logging
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from seatrial.builders.stored import BuiltImage, StoredImage, UnreachableError
from seatrial.system.private import closed_folder, write_atomic
from seatrial.system.state_home import state_home

if TYPE_CHECKING:
    from seatrial.builders.plan import BuildPlan
    from seatrial.config.image import Image, Recipe


log = logging.getLogger("seatrial.image")
Digests = Mapping[str, str | None]  # by base; None: unknown

_MODULES = {
    "docker": "seatrial.builders.local",
    "buildah": "seatrial.builders.local",
    "cloud-build": "seatrial.builders.cloud_build",
}


class Builder(Protocol):
    """The contract that every builder fulfils."""

    def reference(self, tag: str) -> str:
        """Return the reference of an image with that tag. Pure."""

    def exists(self, reference: str) -> StoredImage | None:
        """Look the image up; None if it does not exist.

        Raises UnreachableError if that is unknown.
        """

    def build(self, plan: "BuildPlan", log_file: Path) -> BuiltImage:
        """Build the image, append the output to `log_file`, and end the build when interrupted.

        Raises LaunchError or MissingError with cause and next step.
        """

    def render(self, plan: "BuildPlan") -> str:
        """Return the commands or the request of `build`. Pure."""


def builder_for(config: "Image") -> Builder:
    """Return the builder that the cluster file names; its module is imported on first use, since
    SDKs are heavy.
    """
    builder: Builder = import_module(_MODULES[config.builder]).builder(config)
    return builder


def ensure_image(
    config: "Image", architecture: str | None, log_file: Path, *, rebuild: bool = False
) -> BuiltImage:
    """Return the image that `config` names: an existing one of the same inputs, else a new build.

    `architecture` is that of the nodes (amd64, arm64), None if unknown. Raises MissingError when a
    prebuilt image or a tool is missing, LaunchError when a build fails.
    """
    from seatrial.builders.plan import make_plan
    from seatrial.config.image import ImageFile, Prebuilt

    if isinstance(config, ImageFile):
        return BuiltImage(config.path)  # on the nodes, which tell whether it is there
    if isinstance(config, Prebuilt):
        from seatrial.builders.registry import existing

        return _existing_image(existing, config.reference) or BuiltImage(config.reference)
    builder = builder_for(config)
    platforms, digests = platforms_of(config, architecture), _digests(builder, config)
    plan = make_plan(config, platforms, digests, builder.reference)
    # An image of the digests last seen is reused but never built: a base may have moved, and the
    # tag would be wrong.
    last_seen = with_last_seen(digests)
    earlier = (
        plan if last_seen == digests else make_plan(config, platforms, last_seen, builder.reference)
    )
    for reference in () if rebuild else dict.fromkeys((earlier.reference, plan.reference)):
        if image := _existing_image(builder.exists, reference):
            log.info("%s is there: nothing that it is made of is known to have changed", reference)
            return image
    log.info("building %s with %s (%s)", plan.reference, config.builder, log_file)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    return builder.build(replace(plan, anew=rebuild), log_file)


def check_recipe(config: "Image | None") -> None:
    """Raise InputError if a file that the builder reads, such as cloudbuild.yaml, is wrong."""
    from seatrial.config.image import Recipe

    if isinstance(config, Recipe):
        builder_for(config).reference("TAG")


def render_image(config: "Image", architecture: str | None) -> dict[str, str]:
    """Render the build by file name.

    Pure: the hash, which needs the bases' digests, is left open.
    """
    from seatrial.builders.plan import BuildPlan, bases_of, tag_for
    from seatrial.config.image import ImageFile, Prebuilt

    if isinstance(config, Prebuilt | ImageFile):
        return {}
    builder = builder_for(config)
    tag = tag_for(bases_of(config), "HASH")
    platforms = platforms_of(config, architecture)
    plan = BuildPlan(config, tag, builder.reference(tag), platforms, ())
    return {
        "image": f"{plan.reference} for {', '.join(platforms)}\n",
        "image-build": builder.render(plan),
    }


def platforms_of(config: "Recipe", architecture: str | None) -> tuple[str, ...]:
    """Return the platforms to build for: the file's, else the nodes', else this machine's."""
    from seatrial.config.architecture import architecture_named

    if config.builds_only:
        return config.builds_only
    return config.platforms or (f"linux/{architecture or architecture_named(platform.machine())}",)


def _digests(builder: Builder, config: "Recipe") -> Digests:
    """Look up the digest of every base, None if unknown."""
    from seatrial.builders.plan import bases_of

    digests = dict[str, str | None]()
    for base in bases_of(config):
        if "@" in base:  # it has its digest in its name
            digests[base] = base.partition("@")[2]
            continue
        try:
            stored, problem = builder.exists(base), "there is no such image"
        except UnreachableError as error:
            stored, problem = None, str(error)
        if stored is None:
            log.warning("base %s: %s; a change of it goes unnoticed", base, problem)
        digests[base] = stored.digest if stored else None
    return digests


def _existing_image(
    exists: Callable[[str], StoredImage | None], reference: str
) -> BuiltImage | None:
    try:
        stored = exists(reference)
    except UnreachableError as error:
        log.warning("image %s: %s", reference, error)
        return None
    return BuiltImage(reference, stored.digest, stored.architectures) if stored else None


def with_last_seen(digests: Digests) -> Digests:
    """Fill in unknown digests with those last seen, and store the known ones."""
    file = state_home() / "bases.json"
    stored: dict[str, str] = {}
    with suppress(OSError, ValueError):
        document = json.loads(file.read_text())
        stored = document if isinstance(document, dict) else {}
    stored |= {base: digest for base, digest in digests.items() if digest}
    with suppress(OSError):  # a home that cannot be written to: nothing is stored
        closed_folder(file.parent)
        # Atomically: another run may read meanwhile
        write_atomic(file, json.dumps(stored, indent=2))
    return {base: stored.get(base) for base in digests}
