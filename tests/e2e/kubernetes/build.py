"""Builds Kubernetes from Go modules, once.

The binaries lie outside the tree, under a hash of their inputs.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
TOOLS = HERE / "tools"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seatrial" / "kubernetes"
KUBERNETES = "k8s.io/kubernetes/cmd/"
PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kubectl": KUBERNETES + "kubectl",
    "kube-apiserver": KUBERNETES + "kube-apiserver",
    "kube-controller-manager": KUBERNETES + "kube-controller-manager",
    "kube-scheduler": KUBERNETES + "kube-scheduler",
    "kubelet": KUBERNETES + "kubelet",
    "pause": "./pause",
}
API_SERVER = ("etcd", "kube-apiserver", "kubectl")  # what a cluster without nodes needs
CNI = Path("/usr/lib/cni")
TIMEOUT_S = 2400


class Unavailable(Exception):
    """This machine cannot have a cluster; the text says why and what would help."""


def require_system() -> None:
    """Install what comes from Debian.

    Raises:
        Unavailable: this is not root, or something is missing and cannot be installed.
    """
    script = HERE.parents[2] / "scripts" / "kubernetes-packages"
    done = subprocess.run([str(script)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(done.stdout.strip() or done.stderr.strip())
    require_root()
    if "/usr/sbin" not in os.environ["PATH"].split(":"):
        os.environ["PATH"] += ":/usr/sbin:/sbin"


def require_root() -> None:
    if os.geteuid() != 0:
        raise Unavailable("Kubernetes in namespaces of its own needs root")


def programs(names: Collection[str] = tuple(PROGRAMS)) -> Path:
    """The folder of the binaries. Those of `names` are in it: what the cache has not is built.

    Raises:
        Unavailable: there is no Go here, or the modules cannot be had.
    """
    folder = CACHE / cache_key()
    with exclusive(CACHE / "build.lock"):
        for name in names:
            if not (folder / name).exists():
                require_go()
                go_build(TOOLS, PROGRAMS[name], folder / name, linker_flags())
    return folder


def cache_key() -> str:
    """Of everything that decides what the binaries are."""
    return digest(repr(sorted(PROGRAMS.items())), TOOLS)


def digest(recipe: str, source: Path) -> str:
    """Of what is asked for, and of every file below the folder that it is built from."""
    whole = hashlib.sha256(recipe.encode())
    for file in sorted(source.rglob("*")):
        if file.is_file():
            whole.update(f"{file.relative_to(source)}\n".encode() + file.read_bytes())
    return whole.hexdigest()[:16]


def require_go() -> None:
    if not shutil.which("go"):
        raise Unavailable("building Kubernetes needs Go (https://go.dev/dl), version 1.26 or newer")


def go_build(module: Path, package: str, target: Path, flags: str = "-s -w") -> None:
    """Build one program. Two packages at a time and politely: people work on this machine."""
    print(f"building {target.name} ...", file=sys.stderr, flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    options = ["-p", "2", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", flags]
    done = subprocess.run(
        ["nice", "-n", "19", "go", "build", *options, "-o", str(partial), package],
        cwd=module,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    if done.returncode:
        raise Unavailable(f"{package} cannot be built: {done.stderr.strip()[-1000:]}")
    partial.rename(target)


def linker_flags() -> str:
    """Kubernetes without its version in it calls itself v0.0.0, which some clients cannot bear."""
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    fields = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return "-s -w " + " ".join(
        f"-X {package}.{key}={value}" for package in packages for key, value in fields.items()
    )


def kubernetes_version() -> str:
    """The one in go.mod, such as "v1.36.3"."""
    for line in (TOOLS / "go.mod").read_text().splitlines():
        words = line.split()
        if words[:1] == ["k8s.io/kubernetes"]:
            return words[1]
    raise AssertionError("tools/go.mod does not require k8s.io/kubernetes")


@contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """One at a time on this machine."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
