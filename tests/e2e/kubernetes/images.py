"""The images that a cluster has: seatrial's own images/cpu, and the pause program that holds a pod's namespaces."""

import hashlib
import io
import json
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.kubernetes.build import CACHE, Unavailable
from tests.e2e.kubernetes.machine import Machine
from tests.images import lane

CPU = "localhost/seatrial/cpu:test"
PAUSE = "localhost/seatrial/pause:test"


def archive() -> Path:
    """images/cpu as one file, built when what it is made from has changed.

    Raises:
        Unavailable: images cannot be built here.
    """
    if reason := lane.lacking():
        raise Unavailable(reason)
    with lane.alone():
        image = lane.build("cpu")
        file = CACHE / "images" / f"{image.rpartition(':')[2]}.tar"
        if not file.exists():
            _export(image, file)
    return file


def _export(image: str, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    for old in file.parent.glob("*"):
        old.unlink()
    partial = file.with_suffix(".partial")
    target = f"docker-archive:{partial}:{CPU}"
    done = subprocess.run(
        ["buildah", *lane.STORE, "push", "--quiet", image, target], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    partial.rename(file)


def load(machine: Machine, nodes: tuple[str, ...], cpu: Path | None, pause: Path) -> None:
    """Bring the images into every node's containerd, all nodes at once."""
    archive = machine.state / "pause.tar"
    archive.write_bytes(_from_scratch(PAUSE, pause))
    files = [archive, cpu] if cpu else [archive]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: _load(machine, node, files), nodes))


def _load(machine: Machine, node: str, files: list[Path]) -> None:
    for file in files:
        machine.run("ctr", "--namespace", "k8s.io", "images", "import", "-", node=node, stdin=file)


def _from_scratch(name: str, program: Path) -> bytes:
    """An image of one static program, in the format of `docker save`."""
    layer = _tar({program.name: program.read_bytes()})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    files = {"manifest.json": manifest, "config.json": config}
    return _tar({"layer.tar": layer, **{file: json.dumps(content).encode() for file, content in files.items()}})


def _tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()
