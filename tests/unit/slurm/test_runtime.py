"""Container runtimes of Slurm: how an image is named, and which parts of a cluster file fit together."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.builders import ensure_image, render_image
from seatrial.config.cluster import Cluster
from seatrial.platforms.slurm import SlurmPlatform
from seatrial.platforms.slurm.script import container_of, pyxis_image
from tests.cluster_files import refusal

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("nvcr.io/nvidia/pytorch:25.08-py3", "nvcr.io#nvidia/pytorch:25.08-py3"),
        ("localhost:5000/team/trials", "localhost:5000#team/trials"),
        ("localhost/trials:1", "localhost#trials:1"),
        ("team/trials:1", "team/trials:1"),  # Docker Hub's
        ("ubuntu", "ubuntu"),
        (f"nvcr.io/nvidia/pytorch@{DIGEST}", f"nvcr.io#nvidia/pytorch:{DIGEST}"),
        (f"nvcr.io/nvidia/pytorch:25.08-py3@{DIGEST}", f"nvcr.io#nvidia/pytorch:{DIGEST}"),
        ("/shared/trials.sqsh", "/shared/trials.sqsh"),
    ],
)
def test_an_image_as_pyxis_reads_it(reference: str, expected: str) -> None:
    assert pyxis_image(reference) == expected


def cluster(image: str | None, **platform: Any) -> Cluster:
    fields = {"name": "test", "nodes": 2, "image": image, "hardware": platform.pop("hardware", "H100-SXM")}
    gpus = {"gpus_per_node": 8} if fields["hardware"] != "cpu" else {}
    return Cluster.model_validate({**fields, **gpus, "platform": {"kind": "slurm", **platform}})


@pytest.mark.parametrize(
    ("image", "hardware", "expected"),
    [
        ("/s/t.sif", "H100-SXM", "apptainer exec --nv /s/t.sif"),
        ("/s/t.sif", "MI300X", "apptainer exec --rocm /s/t.sif"),
        ("/s/t.sif", "cpu", "apptainer exec /s/t.sif"),
        (f"nvcr.io/a/b:1@{DIGEST}", "cpu", f"apptainer exec docker://nvcr.io/a/b@{DIGEST}"),
        ("localhost:5000/b:1", "cpu", "apptainer exec docker://localhost:5000/b:1"),
    ],
)
def test_the_command_of_apptainer(image: str, hardware: str, expected: str) -> None:
    described = cluster(image, runtime="apptainer", hardware=hardware)
    assert described.image is not None
    assert " ".join(container_of(described, described.image.planned).command) == expected


MOUNTS = "mounts: [{source: /a, target: /b}]"


@pytest.mark.parametrize(
    ("image", "platform", "problem"),
    [
        ("image: nvcr.io/a/b:1", "kind: slurm", "platform.runtime: must say what starts the image"),
        ("", f"kind: slurm, {MOUNTS}", "platform.mounts: are for containers"),
        ("", "kind: slurm, runtime: pyxis", "image: is required with platform.runtime pyxis"),
        ("image: /s/t.sif", "kind: slurm, runtime: pyxis", r"image: pyxis starts a .sqsh file or a reference"),
        ("image: /s/t.sqsh", "kind: slurm, runtime: singularity", r"image: singularity starts a .sif file"),
        ("image: s/t.sqsh", "kind: slurm, runtime: pyxis", "image.path: must be a full path"),
        (
            "image: /s/t.sqsh",
            "kind: docker",
            "image: a file is only for platforms slurm and baremetal; docker takes a reference",
        ),
        ("image: {build: cpu, builder: buildah}", "kind: slurm, runtime: pyxis", "image: needs a repository"),
        (
            "",
            "kind: slurm, args: [--mem=0, --nodes]",
            "platform.args.1: --nodes is set by another field or by seatrial",
        ),
        ("", "kind: slurm, args: [--time=1]", "platform.args.0: --time is set by another field or by seatrial"),
        ("", "kind: slurm, args: ['--mem=0 --time=1']", "platform.args.0: must be one option with its value"),
        ("", "kind: slurm, gres: 'gpu:h100:8'", "platform.gres: needs hardware that has GPUs"),
        ("", "kind: slurm, folder: a/../b", "platform.folder: must be a path of letters"),
        ("", "kind: slurm, folder: -rf", "platform.folder: must be a path of letters"),
        ("", "kind: slurm, python: a b", "platform.python: must be a path of letters"),
        ("", "kind: slurm, runtime: podman", "'none', 'pyxis', 'apptainer' or 'singularity'"),
        ("image: nvcr.io/a/b", "kind: slurm, runtime: pyxis, mounts: [{source: a, target: /b}]", "must be a full path"),
    ],
)
def test_what_does_not_fit_together_is_one_line(tmp_path: Path, image: str, platform: str, problem: str) -> None:
    assert problem in refusal(tmp_path, **yaml.safe_load(f"{image}\nplatform: {{{platform}}}"))


def test_options_of_sbatch_that_begin_as_one_of_ours_are_legal() -> None:
    assert SlurmPlatform(kind="slurm", args=("--time-min=10", "--gpus-per-task=1")).args[0] == "--time-min=10"


def test_a_file_is_neither_built_nor_looked_for(tmp_path: Path) -> None:
    image = cluster("/shared/trials.sqsh", runtime="pyxis").image
    assert image is not None
    assert ensure_image(image, "amd64", tmp_path / "log").pinned == "/shared/trials.sqsh"
    assert render_image(image, "amd64") == {}
