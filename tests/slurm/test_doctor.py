"""`seatrial doctor`, as the platform answers it, on a real Slurm; nothing is submitted."""

from typing import Any

import pytest

from seatrial.config.cluster import Cluster, load_cluster
from seatrial.model.reason import Reason
from seatrial.platforms import platform_for
from tests.e2e.conftest import Console
from tests.slurm.cluster import SlurmCluster
from tests.slurm.containers import REFERENCE, lacking


def missing(settings: dict[str, Any], **fields: Any) -> list[Reason]:
    return platform_for(
        Cluster.model_validate({"name": "test", "nodes": 2, "platform": settings, **fields})
    ).missing()


def test_doctor_reports_nothing_missing(settings: dict[str, Any]) -> None:
    assert missing(settings) == missing({**settings, "launch": "srun", "mpi_plugin": "pmi2"}) == []


@pytest.mark.parametrize(
    ("settings_more", "fields"),
    [
        ({"constraint": "liquid"}, {}),
        ({}, {"nodes": 64}),
        ({}, {"hardware": "H100-SXM", "gpus_per_node": 8}),
    ],
)
def test_what_sbatch_would_refuse_is_named(
    settings: dict[str, Any], settings_more: dict[str, Any], fields: dict[str, Any]
) -> None:
    (problem,) = missing({**settings, **settings_more}, **fields)
    assert problem.code == "slurm-submit-refused"


def test_doctor_names_an_unreadable_image_and_a_missing_pyxis(
    slurm: SlurmCluster, settings: dict[str, Any]
) -> None:
    pyxis = {**settings, "runtime": "pyxis"}
    without = missing({**settings, "runtime": "apptainer"}, image="/no/such.sif")
    assert [problem.code for problem in without] == ["slurm-image-unreadable"]
    assert [problem.code for problem in missing(pyxis, image=str(slurm.containers.sqsh))] == (
        ["slurm-pyxis-missing"] if lacking() else []
    )
    plugstack = slurm.folder / "plugstack.conf"
    plugins = plugstack.read_text()
    plugstack.write_text("")
    try:
        problems = missing(pyxis, image=REFERENCE)
    finally:
        plugstack.write_text(plugins)
    assert [problem.code for problem in problems] == ["slurm-pyxis-missing"]


def test_init_writes_a_cluster_file_from_which_nothing_is_missing(slurm_console: Console) -> None:
    file = slurm_console.folder / "site.yaml"
    done = slurm_console.run("init", file, "--platform", "slurm", "--yes")
    assert done.status == 0, done.output
    cluster = load_cluster(file)
    assert (cluster.nodes, cluster.gpus, cluster.platform.model_dump()["partition"]) == (
        4,
        2,
        "batch",
    )
    assert slurm_console.run("render", file).status == 0
    doctor = slurm_console.run("doctor", file)
    assert "ok      platform slurm" in doctor.out, doctor.output
