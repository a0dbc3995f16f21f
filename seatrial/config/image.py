"""The field `image` of a cluster file: a reference, a file, or a recipe; and the inputs that a
Dockerfile names.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from seatrial.config.yamlfile import Strict, matching, no_boolean
from seatrial.system.shipped import IMAGES, REPOSITORY
from seatrial.text.redact import looks_secret

Limit = Annotated[int, Field(ge=-1, le=2**62), BeforeValidator(no_boolean)]
LimitName = Literal[
    "as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio",
    "sigpending", "stack",
]  # fmt: skip
Ulimits = dict[LimitName, Limit]
FILES = (".sqsh", ".sif")  # of Enroot, and of Apptainer and Singularity
TIMEOUT_S = 7200  # where neither the cluster file nor a recipe says how long a build may take
Platform = Literal["linux/amd64", "linux/arm64"]
Machine = Literal["E2_MEDIUM", "E2_HIGHCPU_8", "E2_HIGHCPU_32", "N1_HIGHCPU_8", "N1_HIGHCPU_32"]
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = rf"(?:[A-Za-z0-9.-]+(?::\d+)?/)?{_PART}(?:/{_PART})*"
Repository = Annotated[
    str,
    AfterValidator(
        matching(_PATH, "registry/path without tag, such as us-docker.pkg.dev/PROJECT/REPOSITORY")
    ),
]
_legal_reference = matching(
    rf"{_PATH}(?::\w[\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?",
    "an image reference, such as registry/path:tag or registry/path@sha256:...",
)
_ARTIFACT_REGISTRY = re.compile(r"([a-z0-9-]+)-docker\.pkg\.dev/([^/]+)/[^/]+")
_LOGIN = re.compile(r"https?://[^/\s@]+@|//[^/\s@]*:[^/\s@]*@", re.IGNORECASE)
# Docker and buildah take these without an ARG in the Dockerfile, and leave them out of the image.
_PREDEFINED = frozenset(f"{kind}_PROXY" for kind in ("HTTP", "HTTPS", "FTP", "NO", "ALL"))


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield (keyword, rest) of each instruction of a Dockerfile, without comments, continued lines
    joined.
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\[ \t]*\n", " ", "\n".join(lines)).splitlines():
        keyword, _, rest = line.strip().partition(" ")
        if keyword:
            yield keyword.upper(), rest.strip()


def arguments(text: str) -> set[str]:
    """Return the names of the build arguments of a Dockerfile."""
    return {
        word.split("=")[0]
        for keyword, rest in instructions(text)
        if keyword == "ARG"
        for word in _words(rest)
    }


def bases(text: str, build_args: Mapping[str, str]) -> list[str]:
    """Return the images that a Dockerfile starts or copies from, in order, with `build_args` filled
    in.
    """
    values: dict[str, str] = {}
    stages = {"scratch"}
    images: list[str] = []
    for keyword, rest in instructions(text):
        if keyword == "ARG" and not images:  # before the first FROM
            defaults = [word.partition("=") for word in _words(rest)]
            values |= {
                name: build_args.get(name, _filled(value.strip("\"'"), values))
                for name, _, value in defaults
            }
        elif keyword == "FROM":
            words = [word for word in rest.split() if not word.startswith("--")]
            images += _outside(_filled(words[0], values), stages)
            stages |= {words[2].lower()} if len(words) > 2 else set()
        elif (
            keyword == "COPY"
            and (source := re.search(r"--from=(\S+)", rest))
            and not source[1].isdigit()
        ):
            images += _outside(_filled(source[1], values), stages)
    return list(dict.fromkeys(images))


def _outside(image: str, stages: set[str]) -> list[str]:
    return [] if image.lower() in stages else [image]


def _filled(text: str, values: Mapping[str, str]) -> str:
    variable = r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))"
    return re.sub(variable, lambda match: values.get(match[1] or match[3]) or match[2] or "", text)


def _words(rest: str) -> list[str]:
    return re.findall(r"(?:\"[^\"]*\"|'[^']*'|\S)+", rest)


def legal_path(value: str) -> str:
    """Check a full path for options of container runtimes. Raises ValueError."""
    if (
        not re.fullmatch(r"/[A-Za-z0-9_./+@-]*", value)
        or posixpath.normpath(value) != value
        or value.startswith("//")
    ):
        raise ValueError(f"must be a full path without '..', such as /data, is {value!r}")
    return value


FullPath = Annotated[str, Field(max_length=1000), AfterValidator(legal_path)]


class Mount(Strict):
    """A file or folder of the machine that its containers see."""

    source: FullPath = Field(description="full path on the machine that runs the container")
    target: FullPath = Field(description="full path in the containers")
    read_only: bool = Field(True, description="containers may only read it")


def _legal_file(value: str) -> str:
    legal_path(value)
    if not value.endswith(FILES):
        raise ValueError(f"must end with {' or '.join(FILES)}, is {value!r}")
    return value


def _legal_build(value: str) -> str:
    folder = _folder(value)
    if not (folder / "Dockerfile").is_file():
        names = ", ".join(sorted(path.parent.name for path in IMAGES.glob("*/Dockerfile")))
        raise ValueError(f"{folder} has no Dockerfile; legal: {names}, or a folder that has one")
    if not re.fullmatch(_PART, folder.resolve().name):
        raise ValueError(
            "the folder's name names the image, so it must be of a-z, 0-9, '.', '_', "
            f"'-', is {value!r}"
        )
    return value


def _folder(build: str) -> Path:
    """Return a name under images/, or a path from where the command is run."""
    return Path(build).expanduser() if "/" in build or build in (".", "..") else IMAGES / build


def _nothing_private(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if looks_secret(name) or "PRIVATE KEY" in text:
            raise ValueError(
                f"the name or value of {name} looks like a secret, which anyone could "
                "read in the image; leave it out"
            )
        if _LOGIN.search(text) or (name.upper() in _PREDEFINED and "@" in text):
            raise ValueError(
                f"the value of {name} has a login in its address, which anyone could read in the "
                "log; legal: an address"
                " without one, such as http://proxy:3128"
            )
        if "\0" in text:
            raise ValueError(f"the value of {name} must be text")
    return value


def _legal_substitutions(value: dict[str, str]) -> dict[str, str]:
    for name in _nothing_private(value):
        if not re.fullmatch(r"_[A-Z0-9_]+", name):
            raise ValueError(
                f"{name!r} is no name of a substitution: _ and then A-Z, 0-9 and _ are legal"
            )
        if name == "_TAG":
            raise ValueError("_TAG is set from the build context; leave it out")
    return value


Texts = Annotated[dict[str, str], AfterValidator(_nothing_private)]


class Prebuilt(Strict):
    """An image that exists."""

    builder: Literal["prebuilt"] = Field(
        description="nothing is built; a reference alone means the same"
    )
    reference: Annotated[str, AfterValidator(_legal_reference)] = Field(
        description="registry/path:tag or registry/path@sha256:..."
    )

    @property
    def planned(self) -> str:
        """The image of the nodes, before it is looked for."""
        return self.reference


class ImageFile(Strict):
    """An image that is a file on the nodes, for a container runtime of Slurm."""

    builder: Literal["file"] = Field(description="nothing is built; a path alone means the same")
    path: Annotated[str, AfterValidator(_legal_file)] = Field(
        description=f"full path that ends with {' or '.join(FILES)}, on a file system that all nodes "
        "share"
    )

    @property
    def planned(self) -> str:
        """The image of the nodes."""
        return self.path


class Recipe(Strict):
    """An image to build, unless one of the same inputs is there.

    `builds_only`: what the builder can build for.
    """

    builds_only: ClassVar[tuple[str, ...]] = ()
    build: Annotated[str, AfterValidator(_legal_build)] = Field(
        description="a name under images/, or a folder"
    )
    repository: Repository | None = Field(
        None, description="where it is pushed to; unset: kept on this machine"
    )
    platforms: tuple[Platform, ...] = Field(
        (), description="what it is built for; unset: that of the nodes"
    )
    args: Texts = Field(default_factory=dict, description="build arguments, such as EXTRA_DEB")
    timeout_s: int | None = Field(
        None, ge=1, le=86_400, description=f"seconds; {TIMEOUT_S}, or cloudbuild.yaml's, when unset"
    )

    @model_validator(mode="after")
    def _knows_its_arguments(self) -> Self:
        legal = arguments((self.folder / "Dockerfile").read_text())
        for name in self.args:
            if name not in legal and name.upper() not in _PREDEFINED:
                raise ValueError(
                    f"args: the Dockerfile has no ARG {name}; legal: {', '.join(sorted(legal))}"
                )
        return self

    @property
    def planned(self) -> str:
        """The image of the nodes, before it is built."""
        return f"<{self.name}, once built>"

    @property
    def folder(self) -> Path:
        """The folder of the Dockerfile."""
        return _folder(self.build).absolute()

    @property
    def context(self) -> Path:
        """The build context: the repository for the project's own images, which share images/common
        and the probes.
        """
        return REPOSITORY if self.folder.parent == IMAGES else self.folder

    @property
    def name(self) -> str:
        """The image's name in its repository."""
        return self.folder.resolve().name

    @property
    def dockerfile(self) -> str:
        """The Dockerfile, as the context knows it."""
        return (self.folder / "Dockerfile").relative_to(self.context).as_posix()


class Docker(Recipe):
    """docker buildx, on this machine or wherever its builder is."""

    builder: Literal["docker"] = Field(description="docker buildx")

    @model_validator(mode="after")
    def _several_platforms_are_pushed(self) -> Self:
        if len(self.platforms) > 1 and not self.repository:
            raise ValueError(
                "repository: is required with more than one platform, which docker cannot "
                "keep here as one"
            )
        return self


class Buildah(Recipe):
    """buildah on this machine, without a daemon."""

    builder: Literal["buildah"] = Field(description="buildah")

    @model_validator(mode="after")
    def _one_platform(self) -> Self:
        if len(self.platforms) > 1:
            raise ValueError("platforms: buildah builds for one; builder docker takes several")
        return self


class CloudBuild(Recipe):
    """Google Cloud Build; these fields win over the folder's cloudbuild.yaml."""

    builds_only: ClassVar[tuple[str, ...]] = ("linux/amd64",)
    builder: Literal["cloud-build"] = Field(description="Google Cloud Build")
    repository: Repository = Field(description="where it is pushed to, without name and tag")
    project: str | None = Field(
        None, min_length=1, description="that builds; unset: the repository's"
    )
    region: str | None = Field(
        None, min_length=1, description="where it builds; unset: the repository's"
    )
    machine: Machine | None = Field(None, description="type; unset: E2_HIGHCPU_32")
    bucket: str | None = Field(
        None, min_length=3, description="for the source; unset: PROJECT_cloudbuild"
    )
    substitutions: Annotated[dict[str, str], AfterValidator(_legal_substitutions)] = Field(
        default_factory=dict, description="_NAME to value, over those of cloudbuild.yaml"
    )

    @model_validator(mode="after")
    def _fits_cloud_build(self) -> Self:
        if self.platforms not in ((), self.builds_only):
            raise ValueError(
                "platforms: cloud-build's machines are linux/amd64; builder docker builds "
                "for others"
            )
        if not self.project and not _ARTIFACT_REGISTRY.match(self.repository):
            raise ValueError("project: is required with a repository outside Artifact Registry")
        return self

    @property
    def own_project(self) -> str:
        match = _ARTIFACT_REGISTRY.match(self.repository)
        return self.project or (match[2] if match else "")

    @property
    def own_region(self) -> str:
        """The region to build in: as given, else that of the repository, else `global`.

        A multi-region such as `us` holds images and builds nothing.
        """
        match = _ARTIFACT_REGISTRY.match(self.repository)
        return self.region or (match[1] if match and "-" in match[1] else "global")


def _read_image(value: object) -> object:
    if isinstance(value, str) and value.endswith(FILES):
        return {"builder": "file", "path": value}
    if isinstance(value, str):
        return {"builder": "prebuilt", "reference": _legal_reference(value)}
    if value is None or isinstance(value, dict | Strict):
        return value
    raise ValueError(
        f"must be a reference or what to build, such as {{build: cpu, builder: docker}}, "
        f"is {value!r}"
    )


Image = Prebuilt | ImageFile | CloudBuild | Docker | Buildah
ImageField = Annotated[
    Annotated[Image, Field(discriminator="builder")] | None,
    BeforeValidator(_read_image, json_schema_input_type=str | Image),
]
