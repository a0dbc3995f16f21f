"""A containerd folder with the images in it, made once: unpacking an image of a gigabyte for every
node takes too long.

Each node gets a copy by hard links. Blobs and layers are never written to again; containerd's own
databases are.
"""

import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.e2e.kubernetes import images
from tests.e2e.kubernetes.build import CACHE, exclusive

DATABASES = (
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
)
SCRIPT = """\
set -eu
mount -t tmpfs tmpfs /run
containerd --config "$1/config.toml" --root "$2" --state /run/containerd --address /run/containerd.sock 2>"$1/log" &
server=$!
until ctr --address /run/containerd.sock version >/dev/null 2>&1; do sleep 0.05; done
shift 2
for file; do ctr --address /run/containerd.sock --namespace k8s.io images import "$file"; done
kill "$server"
wait "$server" || true
"""


def prepared(pause: Path) -> Path:
    """The folder, made when the cache has none of these images.

    Raises:
        Unavailable: images cannot be built here.
    """
    cpu = images.build_cpu()
    digest = hashlib.sha256(pause.read_bytes() + cpu.encode()).hexdigest()[:16]
    folder = CACHE / "store" / "cpu" / digest
    with exclusive(CACHE / "store.lock"):
        if not folder.exists():
            shutil.rmtree(folder.parent, ignore_errors=True)  # of an older image
            _make(folder, pause, cpu)
    return folder


def _make(folder: Path, pause: Path, cpu: str) -> None:
    work = folder.with_suffix(".partial")
    work.mkdir(parents=True)
    archives = [images.save_program(pause, work / "pause.tar"), images.save(cpu, work / "cpu.tar")]
    (work / "config.toml").write_text(
        'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
    )
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "bash",
        "-c",
        SCRIPT,
        "store",
    ]
    done = subprocess.run(
        [*command, str(work), str(work / "root"), *map(str, archives)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}{(work / 'log').read_text()[-2000:]}"
    (work / "root").rename(folder)
    shutil.rmtree(work)


def copy(store: Path, target: Path) -> None:
    """Give a node its own."""
    subprocess.run(["cp", "--archive", "--link", str(store), str(target)], check=True)
    for name in DATABASES:
        (target / name).unlink()
        shutil.copy2(store / name, target / name)
