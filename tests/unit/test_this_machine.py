"""`seatrial run this-machine`: the cluster that needs no file."""

import csv
import stat
from pathlib import Path

import pytest

from seatrial import catalog
from seatrial.config.cluster import load_cluster
from seatrial.model.errors import InputError

HERE = Path("this-machine")


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only program on PATH besides the system's."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def _say(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_without_gpus_two_ranks_share_the_processor(nvidia_smi: Path) -> None:
    cluster = load_cluster(HERE)
    assert (cluster.platform.kind, cluster.nodes, cluster.hardware.name, cluster.slots) == ("this-machine", 1, "cpu", 2)


def test_its_gpus_take_part(nvidia_smi: Path) -> None:
    _say(nvidia_smi, "yes 'NVIDIA H100 80GB HBM3' | head -8")
    cluster = load_cluster(HERE)
    assert (cluster.hardware.name, cluster.gpus, cluster.slots) == ("H100-SXM", 8, 8)


def test_gpus_that_the_catalog_does_not_know_have_their_own_name(nvidia_smi: Path) -> None:
    _say(nvidia_smi, "yes 'NVIDIA RTX 9999' | head -2")
    cluster = load_cluster(HERE)
    assert (cluster.hardware.name, cluster.gpus, cluster.slots) == ("NVIDIA RTX 9999", 2, 2)


def test_every_model_has_hardware_of_the_catalog() -> None:
    with (Path(catalog.__file__).parent / "gpu_models.csv").open() as rows:
        models = list(csv.DictReader(rows))
    assert {row["hardware"] for row in models} <= {*catalog.known_hardware()}
    assert len({row["model"] for row in models}) == len(models)
    assert all(row["source"] for row in models)


def test_a_driver_that_does_not_answer_is_said(nvidia_smi: Path) -> None:
    _say(nvidia_smi, "echo 'NVIDIA-SMI has failed'; exit 9")
    with pytest.raises(InputError, match=r"^this-machine: nvidia-smi does not answer \(CalledProcessError\)[^\n]*$"):
        load_cluster(HERE)


def test_a_file_of_that_name_wins(nvidia_smi: Path) -> None:
    HERE.write_text("name: mine\nnodes: 4\nplatform: {kind: local}\n")
    assert load_cluster(HERE).name == "mine"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("nodes: 2", "nodes: must be 1 on platform this-machine, is 2"),
        ("nodes: 1\nimage: registry.example.com/cpu:1", "image: has no use on platform this-machine"),
        ("nodes: 1\nfaults: [{kind: slow-link, nodes: [node-0], mbit_s: 10}]", "faults"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path: Path, fields: str, problem: str) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(f"{fields}\nplatform: {{kind: this-machine}}\n")
    with pytest.raises(InputError, match=rf"^[^\n]*cluster\.yaml[^\n]*{problem}[^\n]*$"):
        load_cluster(file)
