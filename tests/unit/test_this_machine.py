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


@pytest.mark.parametrize(
    ("gpus", "hardware", "count", "slots"),
    [
        ("", "cpu", 0, 2),
        ("NVIDIA H100 80GB HBM3", "H100-SXM", 8, 8),
        ("NVIDIA RTX 9999", "NVIDIA RTX 9999", 2, 2),
    ],
)
def test_this_machine_uses_its_gpus_or_two_cpu_ranks(
    nvidia_smi: Path, gpus: str, hardware: str, count: int, slots: int
) -> None:
    """GPUs that are not in the catalog keep their printed name."""
    if gpus:
        _say(nvidia_smi, f"yes '{gpus}' | head -{count}")
    cluster = load_cluster(HERE)
    assert (cluster.platform.kind, cluster.nodes, cluster.hardware.name) == (
        "this-machine",
        1,
        hardware,
    )
    assert (cluster.gpus, cluster.slots) == (count, slots)


def test_this_machine_uses_the_gpus_of_amd_where_nvidia_smi_is_missing(
    nvidia_smi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        (tmp_path / f"renderD{number}").write_text("AMD Instinct MI300X OAM\n")
    monkeypatch.setattr("seatrial.config.cluster.AMD_MODELS", f"{tmp_path}/renderD*")
    cluster = load_cluster(HERE)
    assert (cluster.hardware.name, cluster.gpus, cluster.slots) == ("MI300X", 2, 2)


def test_every_listed_gpu_model_maps_to_catalog_hardware() -> None:
    with (Path(catalog.__file__).parent / "gpu_models.csv").open() as rows:
        models = list(csv.DictReader(rows))
    assert {row["hardware"] for row in models} <= {*catalog.known_hardware()}
    assert len({row["model"] for row in models}) == len(models)
    assert all(row["source"] for row in models)


def test_a_driver_that_does_not_answer_is_reported(nvidia_smi: Path) -> None:
    _say(nvidia_smi, "echo 'NVIDIA-SMI has failed'; exit 9")
    with pytest.raises(
        InputError, match=r"^this-machine: nvidia-smi does not answer \(CalledProcessError\)[^\n]*$"
    ):
        load_cluster(HERE)


def test_file_named_this_machine_takes_precedence_over_the_keyword(nvidia_smi: Path) -> None:
    HERE.write_text("name: mine\nnodes: 4\nplatform: {kind: local}\n")
    assert load_cluster(HERE).name == "mine"
