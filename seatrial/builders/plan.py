"""The inputs of a build, and the tag that follows from them: same inputs, same tag.

Reads files, changes nothing.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from seatrial.config.image import Recipe, bases


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """One build of `reference` from `files` of the context for `platforms` (linux/amd64); `anew`:
    without a cache.
    """

    config: Recipe
    tag: str
    reference: str
    platforms: tuple[str, ...]
    files: tuple[str, ...]
    anew: bool = False

    @property
    def build_args(self) -> list[str]:
        """The build arguments as docker and buildah take them."""
        return [f"--build-arg={name}={value}" for name, value in sorted(self.config.args.items())]

    @property
    def architectures(self) -> tuple[str, ...]:
        """The architectures that the image runs on, such as amd64."""
        return tuple(name.split("/")[1] for name in self.platforms)


def bases_of(config: Recipe) -> list[str]:
    """Return the base images, that of the last FROM last."""
    return bases((config.folder / "Dockerfile").read_text(), config.args)


def make_plan(
    config: Recipe,
    platforms: tuple[str, ...],
    digests: Mapping[str, str | None],
    name: Callable[[str], str],
) -> BuildPlan:
    """Plan a build on bases of those digests; `name` makes a tag a reference.

    The bases are in the order of their FROMs; a digest is None where the registry tells none.
    """
    files = context_files(config)
    settings = config.model_dump(include={"args", "substitutions"})
    inputs = {"platforms": platforms, "bases": dict(digests), **settings}
    tag = tag_for(list(digests), context_hash(config.context, files, inputs))
    return BuildPlan(config, tag, name(tag), platforms, files)


def tag_for(used: list[str], digest: str) -> str:
    """Return a tag: the tag of the last base, for people, and a hash of all inputs; the hash alone
    if the base has no tag.
    """
    own = ""
    if used:
        name = used[-1].rpartition("/")[2]
        own = name.partition("@")[0].partition(":")[2]
    readable = re.sub(r"[^\w.-]", "-", own)[:100].lstrip(".-")
    if readable:
        return f"{readable}-{digest}"
    return digest


def context_hash(context: Path, files: tuple[str, ...], inputs: Mapping[str, object]) -> str:
    """Hash paths, modes and contents of the files, and `inputs`; of a mode only the executable bit
    counts.

    12 hexadecimal digits. A link counts by where it points to.
    """
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode())
    for name in files:
        path = context / name
        if path.is_symlink():
            kind = "link"
            content = str(path.readlink()).encode()
        else:
            kind = "755" if path.stat().st_mode & 0o111 else "644"
            content = path.read_bytes()
        content_digest = hashlib.sha256(content).hexdigest()
        digest.update(f"\0{name}\0{kind}\0{content_digest}".encode())
    return digest.hexdigest()[:12]


def ignore_file(config: Recipe) -> Path | None:
    """Return the ignore file as BuildKit finds it: Dockerfile.dockerignore, else the context's
    .dockerignore.
    """
    for path in (config.folder / "Dockerfile.dockerignore", config.context / ".dockerignore"):
        if path.is_file():
            return path
    return None


def context_files(config: Recipe) -> tuple[str, ...]:
    """List the files of the context without those that its ignore file leaves out, sorted by
    path.
    """
    from docker.utils.build import exclude_paths

    ignore = ignore_file(config)
    lines = ignore.read_text().splitlines() if ignore else []
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    kept = exclude_paths(str(config.context), patterns, dockerfile=config.dockerfile)
    return tuple(sorted(name for name in kept if _counts(config.context / name)))


def _counts(path: Path) -> bool:
    """Return whether a path is part of the inputs: a file or a link, but no ignore file."""
    is_file = path.is_file() or path.is_symlink()
    return is_file and not path.name.endswith(".dockerignore")
