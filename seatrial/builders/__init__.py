"""Where an image comes from. A builder is only what differs between builders; what to build and when is shared."""

import logging
import platform
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from seatrial.builders.reasons import REASONS
from seatrial.model.errors import SeatrialError

if TYPE_CHECKING:
    from seatrial.builders.plan import BuildPlan
    from seatrial.config.image import Image, Recipe

__all__ = [
    "REASONS",
    "Builder",
    "BuiltImage",
    "StoredImage",
    "UnreachableError",
    "builder_for",
    "check_recipe",
    "ensure_image",
    "platforms_of",
    "render_image",
]

log = logging.getLogger("seatrial.image")

_MODULES = {
    kind: f"seatrial.builders.{kind.replace('-', '_')}" for kind in ("prebuilt", "docker", "buildah", "cloud-build")
}


class UnreachableError(SeatrialError):
    """Whether an image exists cannot be told from here; the message says why."""


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image that exists: the digest of its manifest, and what it runs on (amd64, arm64) where that is told."""

    digest: str
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """The image that nodes run. `digest` is None where nobody here could ask; `fresh` when it was built just now."""

    reference: str
    digest: str | None = None
    architectures: tuple[str, ...] = ()
    fresh: bool = False

    @property
    def pinned(self) -> str:
        """The reference with its digest: no other image can ever be meant."""
        bare = self.reference.partition("@")[0]
        return f"{bare}@{self.digest}" if self.digest else self.reference


class Builder(Protocol):
    """The contract that every builder fulfils."""

    def reference(self, tag: str) -> str:
        """What an image with that tag is called. Pure."""

    def exists(self, reference: str) -> StoredImage | None:
        """The image of that name where this builder would find it; None when there is none.

        Raises UnreachableError when that cannot be told.
        """

    def build(self, plan: "BuildPlan", log_file: Path) -> BuiltImage:
        """Build it, its output added to `log_file`. Raises LaunchError or MissingError naming cause and next step.

        Whatever interrupts it also ends the build.
        """

    def render(self, plan: "BuildPlan") -> str:
        """What `build` would run or submit. Pure."""


def builder_for(config: "Image") -> Builder:
    """The builder that the cluster file names; its module is imported on first use, since SDKs are heavy."""
    builder: Builder = import_module(_MODULES[config.builder]).builder(config)
    return builder


def ensure_image(config: "Image", architecture: str | None, log_file: Path, *, rebuild: bool = False) -> BuiltImage:
    """The image that `config` names: found when one of the same inputs exists, else built.

    `architecture` is what the nodes are (amd64, arm64), None where that is not known. Raises MissingError when an image
    that should exist does not, or a tool is not there, LaunchError when a build fails.
    """
    from seatrial.builders.last_seen import with_last_seen
    from seatrial.builders.plan import make_plan
    from seatrial.config.image import ImageFile, Prebuilt

    if isinstance(config, ImageFile):
        return BuiltImage(config.path)  # on the nodes, which tell whether it is there
    builder = builder_for(config)
    if isinstance(config, Prebuilt):
        return _existing_image(builder, config.reference) or BuiltImage(config.reference)
    platforms, digests = platforms_of(config, architecture), _digests(builder, config)
    plan = make_plan(config, platforms, digests, builder.reference)
    # Found, but never built, by what a base last was: it may have moved, and a tag must not claim that it has not.
    known = with_last_seen(digests)
    earlier = plan if known == digests else make_plan(config, platforms, known, builder.reference)
    for reference in () if rebuild else dict.fromkeys((earlier.reference, plan.reference)):
        if image := _existing_image(builder, reference):
            log.info("%s is there: nothing that it is made of is known to have changed", reference)
            return image
    log.info("building %s with %s (%s)", plan.reference, config.builder, log_file)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    return builder.build(replace(plan, anew=rebuild), log_file)


def check_recipe(config: "Image | None") -> None:
    """Raises InputError when what the builder reads beside the cluster file, such as cloudbuild.yaml, is wrong."""
    from seatrial.config.image import Recipe

    if isinstance(config, Recipe):
        builder_for(config).reference("TAG")


def render_image(config: "Image", architecture: str | None) -> dict[str, str]:
    """What would be built, by file name. Pure: the hash, which needs the bases' digests, is left open."""
    from seatrial.builders.plan import BuildPlan, bases_of, tag_for
    from seatrial.config.image import ImageFile, Prebuilt

    if isinstance(config, Prebuilt | ImageFile):
        return {}
    builder = builder_for(config)
    tag = tag_for(bases_of(config), "HASH")
    platforms = platforms_of(config, architecture)
    plan = BuildPlan(config, tag, builder.reference(tag), platforms, ())
    return {"image": f"{plan.reference} for {', '.join(platforms)}\n", "image-build": builder.render(plan)}


def platforms_of(config: "Recipe", architecture: str | None) -> tuple[str, ...]:
    """What to build for: what the file says, else what the nodes are, else what this machine is."""
    from seatrial.config.architecture import architecture_named

    if config.builds_only:
        return config.builds_only
    return config.platforms or (f"linux/{architecture or architecture_named(platform.machine())}",)


def _digests(builder: Builder, config: "Recipe") -> dict[str, str | None]:
    """The digest of every base, None where it cannot be told."""
    from seatrial.builders.plan import bases_of

    digests: dict[str, str | None] = {}
    for base in bases_of(config):
        if "@" in base:  # named by its digest, for which nobody need be asked
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


def _existing_image(builder: Builder, reference: str) -> BuiltImage | None:
    try:
        stored = builder.exists(reference)
    except UnreachableError as error:
        log.warning("image %s: %s", reference, error)
        return None
    return BuiltImage(reference, stored.digest, stored.architectures) if stored else None
