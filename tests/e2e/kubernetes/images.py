"""The images that a cluster has: seatrial's own images/cpu, and the pause program that holds a pod's namespaces."""

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

from tests.e2e.kubernetes.build import Unavailable
from tests.images import lane

CPU = "localhost/seatrial/cpu:test"
PAUSE = "localhost/seatrial/pause:test"


def build_cpu() -> str:
    """Build images/cpu when what it is made from has changed; the name that it has where it was built.

    Raises:
        Unavailable: images cannot be built here.
    """
    if reason := lane.lacking():
        raise Unavailable(reason)
    with lane.alone():
        return lane.build("cpu")


def save_cpu(image: str, file: Path) -> Path:
    """Write it to a file as `docker save` does, under the name that it has in the cluster."""
    command = ["buildah", *lane.STORE, "push", "--quiet", image, f"docker-archive:{file}:{CPU}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return file


def save_program(program: Path, file: Path) -> Path:
    """Write an image of one static program."""
    file.write_bytes(_from_scratch(PAUSE, program))
    return file


def _from_scratch(name: str, program: Path) -> bytes:
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
