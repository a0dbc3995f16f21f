"""Builder `buildah`: needs no daemon; pushes to the repository, else keeps the image in the local storage."""

import shlex
import tempfile
from pathlib import Path

from seatrial.builders import BuiltImage, StoredImage
from seatrial.builders.plan import BuildPlan, ignore_file
from seatrial.builders.process import ask, need, run_build
from seatrial.config.image import Buildah
from seatrial.model.errors import LaunchError
from seatrial.model.reason import Reason

_SHOWN = "{{.FromImageDigest}} {{.OCIv1.Architecture}}"


def argv(plan: BuildPlan) -> list[str]:
    """Return the command line. Isolation chroot needs only root or a user namespace, so it works in containers."""
    config = plan.config
    ignore = ignore_file(config)
    return [
        *("buildah", "bud", "--layers", "--isolation=chroot", "--ulimit=nofile=1024:1024"),
        f"--platform={plan.platforms[0]}",
        f"--file={config.context / config.dockerfile}",
        *([f"--ignorefile={ignore}"] if ignore else []),
        f"--tag={plan.reference}",
        *(["--no-cache"] if plan.anew else []),
        *plan.build_args,
        str(config.context),
    ]


def push_argv(plan: BuildPlan, digest_file: Path) -> list[str]:
    return ["buildah", "push", f"--digestfile={digest_file}", plan.reference, f"docker://{plan.reference}"]


class BuildahImage:
    """Images of a registry, or of this machine's container storage."""

    def __init__(self, config: Buildah) -> None:
        self._config = config

    def reference(self, tag: str) -> str:
        return f"{self._config.repository or 'localhost/seatrial'}/{self._config.name}:{tag}"

    def exists(self, reference: str) -> StoredImage | None:
        from seatrial.builders.registry import look_up

        if not reference.startswith("localhost/"):  # buildah's own name for what is only here
            return look_up(reference)
        shown = ask("buildah", "inspect", "--type=image", f"--format={_SHOWN}", reference)
        return StoredImage(shown.split()[0], tuple(shown.split()[1:])) if shown else None

    def build(self, plan: BuildPlan, log_file: Path) -> BuiltImage:
        need(
            "buildah",
            "apt-get install buildah (it needs root or user namespaces), or use builder docker or cloud-build",
        )
        run_build(argv(plan), plan, log_file)
        digest = self._push(plan, log_file) if self._config.repository else self._stored(plan)
        return BuiltImage(plan.reference, digest, plan.architectures, fresh=True)

    def _push(self, plan: BuildPlan, log_file: Path) -> str:
        with tempfile.TemporaryDirectory() as folder:
            digest_file = Path(folder) / "digest"
            run_build(push_argv(plan, digest_file), plan, log_file)
            return digest_file.read_text().strip()

    def _stored(self, plan: BuildPlan) -> str:
        stored = self.exists(plan.reference)
        if stored is None:
            raise LaunchError(
                Reason.of("image-no-digest", image=plan.reference, builder="buildah", log="buildah images")
            )
        return stored.digest

    def render(self, plan: BuildPlan) -> str:
        commands = [argv(plan), *([push_argv(plan, Path("digest"))] if self._config.repository else [])]
        return "".join(f"{shlex.join(command)}\n" for command in commands)


def builder(config: Buildah) -> BuildahImage:
    return BuildahImage(config)
