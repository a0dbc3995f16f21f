"""Images that are not ours: Debian with sshd and Open MPI, and one without sshd."""

from pathlib import Path

import pytest

from tests.docker.engine import Engine
from tests.docker.test_run import PATIENT, cluster_file
from tests.e2e.conftest import Console
from tests.images import lane

INSTALL = "apt-get update -qq && apt-get install -y -qq --no-install-recommends"


def foreign(folder: Path, packages: str) -> str:
    """An image of Debian with those packages and a command of its own, which is not to be run."""
    text = f'FROM {lane.base()}\nRUN {INSTALL} {packages}\nENTRYPOINT ["false"]\nCMD ["never"]\n'
    return lane.build_text("foreign", text, folder)


@pytest.mark.gate
def test_nodes_of_an_image_with_sshd_and_open_mpi_answer(
    docker_engine: Engine, console: Console, tmp_path: Path
) -> None:
    cluster = cluster_file(console, docker_engine, 2)
    image = foreign(tmp_path, "openssh-server openmpi-bin")
    cluster.write_text(cluster.read_text().replace(docker_engine.image, image))
    finished = console.check(cluster, console.suite(**PATIENT, training=None, devices=None, collectives=None))
    assert finished.status == 0, finished.output
    assert {check["name"]: check["verdict"] for check in finished.document["checks"]} == {"connectivity": "pass"}
    assert "the nodes have no Python, so their hardware" in " ".join(finished.document["notes"])
    log = (console.folder / "out" / "logs" / "mpirun-hostname.log").read_text()
    assert [line for line in log.splitlines() if line.endswith(("node-0", "node-1"))], log


def test_an_image_without_sshd_is_named_in_the_first_line(
    docker_engine: Engine, console: Console, tmp_path: Path
) -> None:
    cluster = cluster_file(console, docker_engine, 1)
    cluster.write_text(cluster.read_text().replace(docker_engine.image, foreign(tmp_path, "openmpi-bin")))
    finished = console.check(cluster, console.suite(**PATIENT))
    assert finished.status == 3, finished.output
    assert "sshd is missing: install openssh-server in the image (launch: srun of" in finished.document["reason"]
