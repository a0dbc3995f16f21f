"""The images of a cluster: images/cpu, those of a site, and the pause program that holds the
namespaces of a pod.
"""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.kubernetes.build import Unavailable
from tests.e2e.kubernetes.machine import Machine
from tests.images import foreign, lane, server

CPU = "localhost/seatrial/cpu:test"
SERVER = "localhost/seatrial/server:test"
PAUSE = "localhost/seatrial/pause:test"


def build_cpu() -> str:
    """Build images/cpu when what it is made from has changed; the name that it has where it was
    built.

    Raises:
        Unavailable: images cannot be built here.
    """
    if reason := lane.lacking():
        raise Unavailable(reason)
    with lane.alone():
        return lane.build("cpu")


def build_site() -> dict[str, str]:
    """Build what a site runs where that is to be done: by their names in the cluster, those where
    they were built.

    Raises:
        Unavailable: images cannot be built here.
    """
    if reason := lane.lacking():
        raise Unavailable(reason)
    with lane.alone():
        return {SERVER: server.build_server(), server.POSTGRES: server.build_postgres()}


def build_foreign(folder: Path) -> str:
    """Build Debian with sshd, Open MPI and a stand-in for all_reduce_perf, and no more.

    Raises:
        Unavailable: images cannot be built here.
    """
    if reason := lane.lacking():
        raise Unavailable(reason)
    with lane.alone():
        return foreign.build(folder, "openssh-server openmpi-bin")


def save(image: str, file: Path, name: str = CPU) -> Path:
    """Write it to a file as `docker save` does, under the name that it has in the cluster."""
    command = ["buildah", *lane.STORE, "push", "--quiet", image, f"docker-archive:{file}:{name}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return file


def load(machine: Machine, nodes: Sequence[str], image: str, name: str) -> None:
    """Give the nodes of a machine one more image, under the name that it has in the cluster."""
    file = save(image, machine.state / "image.tar", name)
    command = ["ctr", "--namespace", "k8s.io", "images", "import", f"/run/cluster/{file.name}"]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: machine.run(*command, node=node), nodes))
    file.unlink()


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
    return _tar(
        {
            "layer.tar": layer,
            **{file: json.dumps(content).encode() for file, content in files.items()},
        }
    )


def _tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()
