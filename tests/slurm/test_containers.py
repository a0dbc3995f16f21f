"""Nodes in containers: Slurm parses the options of Pyxis, and a module brings Apptainer."""

import os
from pathlib import Path
from typing import Any

import pytest

from seatrial.model.errors import LaunchError
from seatrial.remote.mpi import mpirun
from seatrial.remote.node_setup import set_up_node
from tests.e2e.conftest import Console
from tests.quick_run import launched, quick_run
from tests.site import PATIENCE_S
from tests.slurm.cluster import SlurmCluster
from tests.slurm.containers import MARK, REFERENCE, lacking, mounts
from tests.slurm.test_measure import folder, output_line, submitted
from tests.slurm.test_run import PATIENT, TRAINING

__all__ = ["folder"]


@pytest.fixture(params=["pyxis", "apptainer"])
def container(
    request: pytest.FixtureRequest,
    slurm: SlurmCluster,
    settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    """Fields of a cluster file."""
    if request.param == "pyxis" and (absent := lacking()):
        pytest.skip(f"missing: {absent}")
    monkeypatch.setenv("LMOD_PKG", str(slurm.containers.modules))
    image = slurm.containers.sqsh if request.param == "pyxis" else slurm.containers.sif
    modules = ["apptainer/1.3"] if request.param == "apptainer" else []
    runtime = {
        "runtime": request.param,
        "mounts": mounts(),
        "modules": modules,
        "mpi_plugin": "none",
    }
    return {"image": str(image), "platform": {**settings, **runtime}}


@pytest.mark.parametrize("container", ["pyxis"], indirect=True)
def test_the_whole_chain_runs_in_containers(slurm_console: Console, container: Any) -> None:
    cluster = slurm_console.cluster(2, **container, keep="always")
    finished = slurm_console.check(cluster, slurm_console.suite(**PATIENT, training=TRAINING))
    assert finished.status == 0, finished.output
    assert {check["verdict"] for check in finished.document["checks"]} == {"pass"}
    where = slurm_console.run(
        "ssh", "out", finished.document["nodes"][1]["name"], "--", "cat", f"/{MARK}"
    )
    assert where.out.strip() == f"{Path(container['image']).name}.root", where.output
    assert slurm_console.run("reap", "--run", finished.document["run_id"]).status == 0


@pytest.mark.parametrize("launch", ["sshd", "srun"])
def test_ranks_run_in_the_containers_with_their_environment(
    container: Any, tmp_path: Path, launch: str
) -> None:
    described = {
        **container,
        "platform": {**container["platform"], "launch": launch},
        "env": {"NCCL_ALGO": "NVLS"},
    }
    with launched(quick_run(tmp_path, nodes=2, **described)) as testbed:
        for node in testbed.nodes:
            set_up_node(testbed, node, 30).transport.close()
        command = f"echo $NCCL_ALGO $(ls {testbed.workdir}/training.py) $(cat /{MARK})"
        result = mpirun(testbed, ["sh", "-c", command], timeout_s=PATIENCE_S)
        rank = f"NVLS {testbed.workdir}/training.py {Path(container['image']).name}.root"
        assert [line for line in result.lines if not line.startswith("srun: ")] == [rank, rank]


def test_variables_of_the_cluster_file_win_over_those_of_the_image(
    slurm: SlurmCluster, folder: Path, container: Any
) -> None:
    gpus = {"hardware": "H100-SXM", "gpus_per_node": 2, "env": {"NCCL_ALGO": "NVLS"}}
    if container["platform"]["runtime"] == "pyxis":
        container["image"] = REFERENCE
    printed, logs = submitted(slurm, folder, **gpus, **container)
    image = (
        REFERENCE.replace("/", "+").replace(":", "+")
        if container["image"] == REFERENCE
        else "trials.sif.root"
    )
    assert {name: output_line(logs / f"{name}.log") for name in ("all_reduce", "network")} == {
        "all_reduce": f"# test P2P=0 ALGO=NVLS ranks=4 image={image}",
        "network": f"# test P2P=1 ALGO=Ring ranks=4 image={image}",
    }, printed
    # The torch of the mounted Python finds no GPU
    assert "needs one" in (logs / "training.log").read_text()


@pytest.mark.parametrize("container", ["pyxis"], indirect=True)
def test_the_script_unpacks_the_image_once_on_each_node_and_removes_it(
    slurm: SlurmCluster, folder: Path, container: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    enroot = folder / "bin" / "enroot"
    enroot.parent.mkdir()
    enroot.write_text(f'#!/bin/sh\necho "$(hostname) $*" >>{folder}/removed\n')
    enroot.chmod(0o755)
    monkeypatch.setenv("PATH", f"{enroot.parent}:{os.environ['PATH']}")
    imports = slurm.containers.folder / "imports"
    before = set(os.listdir(imports))
    gpus = {"hardware": "H100-SXM", "gpus_per_node": 2}
    printed, logs = submitted(slurm, folder, **gpus, **container)
    job = logs.name.removeprefix("seatrial-")
    nodes = set((logs / "hostnames.log").read_text().split())
    assert {path.stem for path in logs.glob("intra-*.log")} == {f"intra-{node}" for node in nodes}
    assert set(os.listdir(imports)) - before == {f"{node}.seatrial-{job}" for node in nodes}, (
        printed
    )
    removed = (folder / "removed").read_text().splitlines()
    assert sorted(removed) == sorted(
        f"{node} remove --force pyxis_seatrial-{job}" for node in nodes
    )


def test_an_image_that_is_not_there_is_named(container: Any, tmp_path: Path) -> None:
    container["image"] = (
        "nvcr.io/nvidia/nothing:1"
        if container["platform"]["runtime"] == "pyxis"
        else "/no/such.sif"
    )
    words = r"task [01]: .*(nvcr.io#nvidia/nothing:1|could not open image /no)"
    with (
        pytest.raises(LaunchError, match=words),
        launched(quick_run(tmp_path, nodes=2, **container)),
    ):
        pass
