"""Builders `docker` and `buildah`: a program of this machine builds, then pushes to the repository
if there is one.
"""

import codecs
import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from seatrial.builders.failures import build_failure, over_time
from seatrial.builders.plan import BuildPlan, ignore_file
from seatrial.builders.stored import BuiltImage, StoredImage
from seatrial.config.image import TIMEOUT_S, Buildah, Docker
from seatrial.model.errors import LaunchError, MissingError
from seatrial.system.rawlog import RawLog
from seatrial.text.redact import Secrets

log = logging.getLogger("seatrial.image")


def docker_argv(plan: BuildPlan, metadata: Path) -> list[str]:
    """Return the command line. BuildKit finds Dockerfile.dockerignore itself."""
    config = plan.config
    return [
        "docker",
        "buildx",
        "build",
        "--progress=plain",
        f"--platform={','.join(plan.platforms)}",
        f"--file={config.context / config.dockerfile}",
        f"--tag={plan.reference}",
        *(["--no-cache"] if plan.anew else []),
        *plan.build_args,
        "--push" if config.repository else "--load",
        f"--metadata-file={metadata}",
        str(config.context),
    ]


def buildah_argv(plan: BuildPlan) -> list[str]:
    """Return the command line.

    Isolation chroot needs only root or a user namespace, so it works in containers.
    """
    config = plan.config
    ignore = ignore_file(config)
    return [
        "buildah",
        "bud",
        "--layers",
        "--isolation=chroot",
        "--ulimit=nofile=1024:1024",
        f"--platform={plan.platforms[0]}",
        f"--file={config.context / config.dockerfile}",
        *([f"--ignorefile={ignore}"] if ignore else []),
        f"--tag={plan.reference}",
        *(["--no-cache"] if plan.anew else []),
        *plan.build_args,
        str(config.context),
    ]


def push_argv(plan: BuildPlan, digest_file: Path) -> list[str]:
    return [
        "buildah",
        "push",
        f"--digestfile={digest_file}",
        plan.reference,
        f"docker://{plan.reference}",
    ]


class LocalImage:
    """Images of a registry, or of this machine's storage."""

    unpushed: str  # stands for the repository of an image that is only here
    inspection: tuple[str, ...]  # the command that prints digest and architecture of such an image

    def __init__(self, config: Docker | Buildah) -> None:
        self._config = config

    def reference(self, tag: str) -> str:
        return f"{self._config.repository or self.unpushed}/{self._config.name}:{tag}"

    def _stored(self, reference: str) -> StoredImage | None:
        shown = _output(*self.inspection, reference)
        return StoredImage(shown.split()[0], tuple(shown.split()[1:])) if shown else None


class DockerImage(LocalImage):
    """Images that docker buildx makes."""

    unpushed = "seatrial"
    inspection = ("docker", "image", "inspect", "--format", "{{.Id}} {{.Architecture}}")

    def exists(self, reference: str) -> StoredImage | None:
        from seatrial.builders.registry import look_up

        is_pushed = self._config.repository or not reference.startswith("seatrial/")
        return look_up(reference) if is_pushed else self._stored(reference)

    def build(self, plan: BuildPlan, log_file: Path) -> BuiltImage:
        _need(
            "docker", "install Docker with its buildx plugin, or use builder buildah or cloud-build"
        )
        if _output("docker", "buildx", "version") is None:
            raise MissingError.of(
                "builder-missing",
                program="docker buildx",
                remedy="install Docker's buildx plugin (docker-buildx-plugin)",
            )
        with tempfile.TemporaryDirectory() as folder:
            metadata = Path(folder) / "metadata.json"
            _run_build(docker_argv(plan, metadata), plan, log_file)
            with suppress(OSError, ValueError):
                stored: dict[str, str] = json.loads(metadata.read_text())
                if digest := stored.get("containerimage.digest") or stored.get(
                    "containerimage.config.digest"
                ):
                    return BuiltImage(plan.reference, digest, plan.architectures, fresh=True)
        raise LaunchError.of(
            "image-no-digest", image=plan.reference, builder="docker buildx", log=str(log_file)
        )

    def render(self, plan: BuildPlan) -> str:
        return shlex.join(docker_argv(plan, Path("metadata.json"))) + "\n"


class BuildahImage(LocalImage):
    """Images that buildah makes, without a daemon."""

    unpushed = "localhost/seatrial"
    inspection = (
        "buildah",
        "inspect",
        "--type=image",
        "--format={{.FromImageDigest}} {{.OCIv1.Architecture}}",
    )

    def exists(self, reference: str) -> StoredImage | None:
        from seatrial.builders.registry import look_up

        # Buildah's own name for what is only here
        is_pushed = not reference.startswith("localhost/")
        return look_up(reference) if is_pushed else self._stored(reference)

    def build(self, plan: BuildPlan, log_file: Path) -> BuiltImage:
        remedy = (
            "apt-get install buildah (it needs root or user namespaces), or use builder "
            "docker or cloud-build"
        )
        _need("buildah", remedy)
        _run_build(buildah_argv(plan), plan, log_file)
        if not self._config.repository:
            stored = self._stored(plan.reference)
            if stored is None:
                raise LaunchError.of(
                    "image-no-digest",
                    image=plan.reference,
                    builder="buildah",
                    log="buildah images",
                )
            return BuiltImage(plan.reference, stored.digest, plan.architectures, fresh=True)
        with tempfile.TemporaryDirectory() as folder:
            digest_file = Path(folder) / "digest"
            _run_build(push_argv(plan, digest_file), plan, log_file)
            return BuiltImage(
                plan.reference, digest_file.read_text().strip(), plan.architectures, fresh=True
            )

    def render(self, plan: BuildPlan) -> str:
        commands = [
            buildah_argv(plan),
            *([push_argv(plan, Path("digest"))] if self._config.repository else []),
        ]
        return "".join(f"{shlex.join(command)}\n" for command in commands)


def builder(config: Docker | Buildah) -> LocalImage:
    return DockerImage(config) if isinstance(config, Docker) else BuildahImage(config)


def _need(program: str, next_step: str) -> None:
    """Raise MissingError if the program is not installed."""
    if not shutil.which(program):
        raise MissingError.of("builder-missing", program=program, remedy=next_step)


def _output(*argv: str) -> str | None:
    """Return the output of a short command; None if it failed."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _run_build(argv: Sequence[str], plan: BuildPlan, log_file: Path) -> None:
    """Run a build to its end.

    Raises LaunchError with the cause when it fails or exceeds its time limit.
    """
    timeout_s = plan.config.timeout_s or TIMEOUT_S
    with RawLog(log_file, Secrets.of(os.environ), append=True) as out:
        out.write(f"+ {' '.join(argv)}\n")
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        late = threading.Event()

        def end_late() -> None:
            late.set()
            _end(child)

        timer = threading.Timer(timeout_s, end_late)
        timer.start()
        try:
            tail = _copy(child, out)
            status = child.wait()
        finally:
            timer.cancel()
            _end(child)
            assert child.stdout is not None
            child.stdout.close()
    if late.is_set():
        raise LaunchError(over_time(plan.reference, timeout_s, log_file))
    if status:
        raise LaunchError(build_failure(plan.reference, "the build failed", tail, log_file))


def _copy(child: "subprocess.Popen[bytes]", out: RawLog) -> str:
    """Copy the output to the log; return its end, which says why a build failed."""
    assert child.stdout is not None
    decoder, tail = codecs.getincrementaldecoder("utf-8")("replace"), ""
    while True:
        data = os.read(child.stdout.fileno(), 65536)
        text = out.write(decoder.decode(data)) if data else out.close()
        for line in text.splitlines():
            log.debug("%s", line)
        tail = (tail + text)[-64 * 1024 :]
        if not data:
            return tail


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End the child and its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(10)
