"""Images that are not ours: Debian with sshd and Open MPI, and one without sshd."""

from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.checks.collectives.section import Collectives, PlannedSweep
from seatrial.checks.collectives.sweep import sweep_once
from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.verdict import Verdict
from seatrial.platforms import platform_for
from seatrial.remote.node_setup import set_up_node
from tests.docker.engine import Engine
from tests.docker.test_run import PATIENT, cluster_file
from tests.e2e.conftest import Console
from tests.images import foreign
from tests.unit.collectives.fake_mpirun import GPU_SIZES


@pytest.mark.gate
def test_nodes_of_an_image_with_sshd_and_open_mpi_answer(
    docker_engine: Engine, console: Console, tmp_path: Path
) -> None:
    cluster = cluster_file(console, docker_engine, 2)
    image = foreign.build(tmp_path, "openssh-server openmpi-bin")
    cluster.write_text(cluster.read_text().replace(docker_engine.image, image))
    finished = console.check(
        cluster, console.suite(**PATIENT, training=None, devices=None, collectives=None)
    )
    assert finished.status == 0, finished.output
    assert {check["name"]: check["verdict"] for check in finished.document["checks"]} == {
        "connectivity": "pass"
    }
    assert "the nodes have no Python, so their hardware" in " ".join(finished.document["notes"])
    log = (console.folder / "out" / "logs" / "mpirun-hostname.log").read_text()
    assert [line for line in log.splitlines() if line.endswith(("node-0", "node-1"))], log


def test_a_sweep_of_nccl_tests_needs_no_python(
    docker_engine: Engine, console: Console, tmp_path: Path
) -> None:
    """The stand-in is started by mpirun over both containers, as if each had a GPU."""
    image = foreign.build(tmp_path, "openssh-server openmpi-bin")
    described = {"name": "trial", "nodes": 2, "image": image, "platform": docker_engine.settings}
    cluster = Cluster.model_validate(described)
    run = Run("foreign-1", cluster, load_suite("a4-sweep"), console.folder / "sweep", image)
    section = run.suite.section(Collectives)
    assert section
    sizes = section.gpu.model_copy(
        update={"min_bytes": GPU_SIZES[0], "max_bytes": GPU_SIZES[-1], "step_factor": 4}
    )
    platform = platform_for(cluster)
    try:
        launched = platform.launch(run)
        bed = replace(
            launched, python="", nodes=tuple(replace(node, gpus=1) for node in launched.nodes)
        )
        for node in bed.nodes:
            set_up_node(bed, node, 60).transport.close()
        outcome = sweep_once(
            run, bed, section, PlannedSweep("all_reduce", sizes), label="all_reduce"
        )
    finally:
        platform.teardown(run.run_id)
    assert outcome.verdict is Verdict.PASS, outcome.reason
    assert outcome.reason.sentence == "all_reduce: 3 sizes from 256K to 4M, every result right"


def test_an_image_without_sshd_is_named_in_the_first_line(
    docker_engine: Engine, console: Console, tmp_path: Path
) -> None:
    cluster = cluster_file(console, docker_engine, 1)
    cluster.write_text(
        cluster.read_text().replace(docker_engine.image, foreign.build(tmp_path, "openmpi-bin"))
    )
    finished = console.check(cluster, console.suite(**PATIENT))
    assert finished.status == 3, finished.output
    assert (
        "sshd is missing: install openssh-server in the image (launch: srun of"
        in finished.document["reason"]
    )
