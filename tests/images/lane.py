"""Builds images/cpu for real and runs it: buildah without a daemon, podman with runc. Needs root.

Everything that takes long lies in a cache outside the tree, under a hash of what it was made from.
"""

import hashlib
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from seatrial.platforms.container import CAPABILITIES
from seatrial.remote.probes import PROBES
from tests.site import PATIENCE_S

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "images"
MAKE_BASE = IMAGES / "cpu" / "base" / "make-base"
DEBIAN_MIRROR = MAKE_BASE.with_name("debian-mirror")
SUITE = "bookworm"
PACKAGES = ROOT / "scripts" / "image-packages"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seatrial" / "images"
# Nobody else's images and containers
STORE = ("--root", str(CACHE / "storage"), "--runroot", "/run/seatrial-images")
# Machines that take CAP_SYS_RESOURCE away from root refuse podman's own limits.
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
# What a node has on Kubernetes; podman's own seccomp profile is that of the container runtimes
# there.
RIGHTS = (
    "--cap-drop=ALL",
    *(f"--cap-add={name}" for name in CAPABILITIES),
    "--security-opt=no-new-privileges",
)
PREFIX = "seatrial-test-"
_LOCK = FileLock(CACHE / "lock")
HOST_FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")


def lacking() -> str | None:
    """Why images cannot be built here, after installing what can be installed; None when they
    can.
    """
    if os.geteuid() != 0:
        return "building and running images needs root"
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    done = subprocess.run([str(PACKAGES)], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return done.stdout.strip()
    return None if exists(_base_name()) else _no_mirror()


def _no_mirror() -> str | None:
    """Why the base cannot be made from this machine's Debian mirror; None when it can."""
    done = subprocess.run([str(DEBIAN_MIRROR), SUITE], capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip()
    release = f"{done.stdout.strip()}/dists/{SUITE}/Release"
    return (
        None
        if _answers(release)
        else f"{release} does not answer, and there is no base from an earlier time"
    )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=20):
            return True
    except OSError:
        return False


@contextmanager
def alone() -> Iterator[None]:
    """One process at a time; what a killed one has left goes first, what this one leaves goes last.

    Several lanes of one process have it together, as in the gate.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with _LOCK:
        if _LOCK.lock_counter == 1:
            clean()
        try:
            yield
        finally:
            if _LOCK.lock_counter == 1:
                clean()


def clean() -> None:
    """Remove every container, build in progress and network of the lane; keep the images."""
    podman("rm", "--force", "--all", "--time", "0")
    _run(["buildah", *STORE, "rm", "--all"], check=False)
    for network in podman("network", "ls", "--quiet", "--filter", f"name={PREFIX}").split():
        podman("network", "rm", "--force", network)


def leftovers() -> list[str]:
    """What still runs or is mounted.

    Every podman mounts the folder of layers itself for as long as it is at work.
    """
    containers = podman("ps", "--all", "--quiet").split()
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    layers = f"{CACHE}/storage/overlay"
    mounts = [
        point for point in points if point.startswith(f"{CACHE}/storage/") and point != layers
    ]
    networks = podman("network", "ls", "--quiet", "--filter", f"name={PREFIX}").split()
    return containers + mounts + networks


def base() -> str:
    """The image to build from: Debian by debootstrap."""
    name = _base_name()
    if not exists(name):
        folder = CACHE / "base"
        _run([str(MAKE_BASE), str(folder), SUITE])
        _run(["buildah", *STORE, "bud", "--isolation", "chroot", "--tag", name, str(folder)])
        shutil.rmtree(folder)
    return name


def _base_name() -> str:
    return f"localhost/seatrial/debian:{_hash(MAKE_BASE.parent)}"


def build(image: str, *arguments: str, start_from: str | None = None) -> str:
    """Build images/IMAGE unless an image of the same inputs is there, and return its name."""
    start = start_from or base()
    inputs = _hash(IMAGES / "common", IMAGES / image, *PROBES, text=repr((start, arguments)))
    name = f"localhost/seatrial/{image}:{inputs}"
    if not exists(name):
        dockerfile = IMAGES / image / "Dockerfile"
        options = ["--layers", "--isolation", "chroot", "--build-arg", f"BASE={start}", *arguments]
        files = [
            f"--ignorefile={dockerfile}.dockerignore",
            "--tag",
            name,
            "--file",
            str(dockerfile),
            str(ROOT),
        ]
        _run(["buildah", *STORE, "bud", *options, *files])
    return name


def build_text(name: str, dockerfile: str, folder: Path) -> str:
    """Build an image from the text of a Dockerfile, with the folder as its context."""
    tag = f"localhost/seatrial/{name}:{_hash(folder, text=dockerfile)}"
    if not exists(tag):
        _run(
            [
                "buildah",
                *STORE,
                "bud",
                "--layers",
                "--isolation",
                "chroot",
                "-t",
                tag,
                "-f",
                "-",
                str(folder),
            ],
            dockerfile,
        )
    return tag


def build_file(name: str, dockerfile: Path, inputs: Sequence[Path], start: str) -> str:
    """Build a Dockerfile of the repository as it is, its own base replaced, when one of the inputs
    has changed.
    """
    tag = f"localhost/seatrial/{name}:{_hash(dockerfile.parent, *inputs, text=start)}"
    if not exists(tag):
        # What this machine needs to reach Debian and PyPI is this machine's, and stays out of the
        # image.
        own = [f"--volume={file}:{file}:ro" for file in HOST_FILES if Path(file).exists()]
        options = ["--layers", "--isolation", "chroot", "--from", start, *own]
        _run(
            ["buildah", *STORE, "bud", *options, "--tag", tag, "--file", str(dockerfile), str(ROOT)]
        )
    return tag


def exists(name: str) -> bool:
    return subprocess.run(["podman", *STORE, "image", "exists", name], check=False).returncode == 0


def podman(*arguments: str) -> str:
    return _run(["podman", *STORE, "--runtime", "runc", *arguments])


def run_once(
    image: str, *command: str, options: tuple[str, ...] = (), timeout_s: float = PATIENCE_S
) -> subprocess.CompletedProcess[str]:
    """A container that runs to its end; stdout and stderr together."""
    return subprocess.run(
        ["podman", *STORE, "--runtime", "runc", "run", "--rm", *LIMITS, *options, image, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=timeout_s,
    )


@dataclass(frozen=True)
class Container:
    """A container of the lane that is a node."""

    name: str
    address: str

    def exec(self, *command: str) -> str:
        return podman("exec", self.name, *command)

    def wait_ready(self, timeout_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self.exec("seatrial-ready")
                return
            except AssertionError as error:
                if time.monotonic() > deadline:
                    raise AssertionError(f"{error}\n{self.logs()}") from None
                time.sleep(0.1)

    def logs(self) -> str:
        return _run(["podman", *STORE, "logs", self.name])

    def wait_logged(self, text: str, timeout_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in (log := self.logs()):
            assert time.monotonic() < deadline, (
                f"{self.name} did not say {text!r} in {timeout_s} s:\n{log}"
            )
            time.sleep(0.1)

    def wait_exit(self, timeout_s: float = PATIENCE_S) -> int:
        """Its exit status."""
        deadline = time.monotonic() + timeout_s
        while (state := json.loads(podman("inspect", self.name))[0]["State"])["Running"]:
            assert time.monotonic() < deadline, f"{self.name} still runs after {timeout_s} s"
            time.sleep(0.1)
        return int(state["ExitCode"])


def start(
    image: str, name: str, keys: Path, options: tuple[str, ...] = (), command: tuple[str, ...] = ()
) -> Container:
    """Start a node with the folder's keys, as a Secret would be mounted: read-only, readable for
    everyone.
    """
    mount = ("--volume", f"{keys}:/etc/seatrial:ro")
    podman(
        "run",
        "--detach",
        *LIMITS,
        *RIGHTS,
        "--name",
        PREFIX + name,
        "--hostname",
        name,
        *mount,
        *options,
        image,
        *command,
    )
    networks = json.loads(podman("inspect", PREFIX + name))[0]["NetworkSettings"]["Networks"]
    return Container(
        PREFIX + name, next((network["IPAddress"] for network in networks.values()), "")
    )


def _hash(*paths: Path, text: str = "") -> str:
    """Of the files' names, modes and contents."""
    digest = hashlib.sha256(text.encode())
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(
                    f"{file.relative_to(path.parent)} {file.stat().st_mode & 0o111:o}".encode()
                )
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _run(command: list[str], stdin: str = "", *, check: bool = True) -> str:
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=1500
    )
    assert not check or done.returncode == 0, (
        f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
    )
    return done.stdout + done.stderr if "logs" in command else done.stdout
