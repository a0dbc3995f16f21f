"""`seatrial doctor`, as the platform answers it, on a real Slurm; nothing is submitted."""

import re
from pathlib import Path
from typing import Any

import pytest

from seatrial.config.cluster import Cluster, load_cluster
from seatrial.model.reason import code_of
from seatrial.platforms import platform_for
from tests.e2e.conftest import Console
from tests.slurm.cluster import SlurmCluster
from tests.slurm.containers import REFERENCE, lacking


def missing(settings: dict[str, Any], **fields: Any) -> list[str]:
    return platform_for(Cluster.model_validate({"name": "test", "nodes": 2, "platform": settings, **fields})).missing()


def test_nothing_is_missing(settings: dict[str, Any]) -> None:
    assert missing(settings) == []


@pytest.mark.parametrize(
    ("settings_more", "fields"),
    [
        ({"partition": "nowhere"}, {}),
        ({"constraint": "liquid"}, {}),
        ({}, {"nodes": 64}),
        ({}, {"hardware": "H100-SXM", "gpus_per_node": 8}),
    ],
)
def test_what_sbatch_would_refuse_is_named(
    settings: dict[str, Any], settings_more: dict[str, Any], fields: dict[str, Any]
) -> None:
    (problem,) = missing({**settings, **settings_more}, **fields)
    assert code_of(problem) == "slurm-submit-refused"


def test_an_image_and_its_runtime_are_looked_for(slurm: SlurmCluster, settings: dict[str, Any]) -> None:
    pyxis = {**settings, "runtime": "pyxis"}
    without = missing({**settings, "runtime": "apptainer"}, image="/no/such.sif")
    assert [code_of(problem) for problem in without] == ["slurm-image-unreadable"]
    assert [code_of(problem) for problem in missing(pyxis, image=str(slurm.containers.sqsh))] == (
        ["slurm-pyxis-missing"] if lacking() else []
    )
    plugstack = slurm.folder / "plugstack.conf"
    plugins = plugstack.read_text()
    plugstack.write_text("")
    try:
        problems = missing(pyxis, image=REFERENCE)
    finally:
        plugstack.write_text(plugins)
    assert [code_of(problem) for problem in problems] == ["slurm-pyxis-missing"]


def test_the_mpi_plugin_of_srun_is_looked_for(
    slurm: SlurmCluster, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    srun = {**settings, "launch": "srun"}
    assert [missing({**srun, "mpi_plugin": plugin}) for plugin in ("none", "pmi2")] == [[], []]
    installed = Path(re.findall(r"PluginDir += (\S+)", slurm.command("scontrol", "show", "config"))[0])
    for plugin in installed.iterdir():
        if not plugin.name.startswith("mpi_pmi2"):
            (tmp_path / plugin.name).symlink_to(plugin)
    conf = slurm.folder / "without-pmi2.conf"
    conf.write_text((slurm.folder / "slurm.conf").read_text() + f"PluginDir={tmp_path}\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    (problem,) = missing({**srun, "mpi_plugin": "pmi2"})
    assert code_of(problem) == "slurm-mpi-plugin-missing"


def test_a_controller_that_does_not_answer_is_named(slurm: SlurmCluster, settings: dict[str, Any]) -> None:
    down = slurm.folder / "down.conf"
    configured = (slurm.folder / "slurm.conf").read_text()
    down.write_text(re.sub(r"SlurmctldPort=\d+", "SlurmctldPort=1", configured))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(down))
        (problem,) = missing(settings)
    assert code_of(problem) == "slurm-command-failed"
    assert "DOWN" in problem


def test_without_slurm_every_command_is_named(settings: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        problems = missing(settings)
    assert [code_of(problem) for problem in problems] == ["slurm-command-missing"] * 5


def test_init_writes_a_cluster_file_from_which_nothing_is_missing(slurm_console: Console) -> None:
    file = slurm_console.folder / "site.yaml"
    done = slurm_console.run("init", file, "--platform", "slurm", "--yes")
    assert done.status == 0, done.output
    cluster = load_cluster(file)
    assert (cluster.nodes, cluster.gpus, cluster.platform.model_dump()["partition"]) == (4, 2, "batch")
    assert slurm_console.run("render", file).status == 0
    doctor = slurm_console.run("doctor", file)
    assert "ok      platform slurm" in doctor.out, doctor.output
