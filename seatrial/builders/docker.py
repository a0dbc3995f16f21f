"""Builder `docker`: docker buildx; pushes to the repository, else loads the image into the local docker."""

import json
import shlex
import tempfile
from pathlib import Path

from seatrial.builders import BuiltImage, StoredImage
from seatrial.builders.plan import BuildPlan
from seatrial.builders.process import ask, need, run_build
from seatrial.config.image import Docker
from seatrial.model.errors import LaunchError, MissingError
from seatrial.model.reason import Reason


def argv(plan: BuildPlan, metadata: Path) -> list[str]:
    """Return the command line. BuildKit finds Dockerfile.dockerignore itself."""
    config = plan.config
    return [
        *("docker", "buildx", "build", "--progress=plain"),
        f"--platform={','.join(plan.platforms)}",
        f"--file={config.context / config.dockerfile}",
        f"--tag={plan.reference}",
        *(["--no-cache"] if plan.anew else []),
        *plan.build_args,
        "--push" if config.repository else "--load",
        f"--metadata-file={metadata}",
        str(config.context),
    ]


class DockerImage:
    """Images of a registry, or of this machine's docker."""

    def __init__(self, config: Docker) -> None:
        self._config = config

    def reference(self, tag: str) -> str:
        return f"{self._config.repository or 'seatrial'}/{self._config.name}:{tag}"

    def exists(self, reference: str) -> StoredImage | None:
        from seatrial.builders.registry import look_up

        if self._config.repository or not reference.startswith("seatrial/"):
            return look_up(reference)
        shown = ask("docker", "image", "inspect", "--format", "{{.Id}} {{.Architecture}}", reference)
        return StoredImage(shown.split()[0], tuple(shown.split()[1:])) if shown else None

    def build(self, plan: BuildPlan, log_file: Path) -> BuiltImage:
        need("docker", "install Docker with its buildx plugin, or use builder buildah or cloud-build")
        if ask("docker", "buildx", "version") is None:
            remedy = "install Docker's buildx plugin (docker-buildx-plugin)"
            raise MissingError(Reason.of("builder-missing", program="docker buildx", remedy=remedy))
        with tempfile.TemporaryDirectory() as folder:
            metadata = Path(folder) / "metadata.json"
            run_build(argv(plan, metadata), plan, log_file)
            digest = _digest(metadata)
        if not digest:
            raise LaunchError(
                Reason.of("image-no-digest", image=plan.reference, builder="docker buildx", log=str(log_file))
            )
        return BuiltImage(plan.reference, digest, plan.architectures, fresh=True)

    def render(self, plan: BuildPlan) -> str:
        return shlex.join(argv(plan, Path("metadata.json"))) + "\n"


def _digest(metadata: Path) -> str | None:
    """Read the digest of the pushed manifest, or the id of an image that was only loaded."""
    try:
        metadata_fields: dict[str, str] = json.loads(metadata.read_text())
    except (OSError, ValueError):
        return None
    return metadata_fields.get("containerimage.digest") or metadata_fields.get("containerimage.config.digest")


def builder(config: Docker) -> DockerImage:
    return DockerImage(config)
