"""Container runtimes of Slurm, parts of a cluster file that fit together, and the time limit of a
job.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.builders import ensure_image, render_image
from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import MissingError
from seatrial.platforms.slurm import SlurmPlatform, seconds
from seatrial.platforms.slurm.platform import check_time_limit
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
def test_image_references_are_written_in_pyxis_syntax(reference: str, expected: str) -> None:
    assert pyxis_image(reference) == expected


def cluster(image: str | None, **platform: Any) -> Cluster:
    fields = {
        "name": "test",
        "nodes": 2,
        "image": image,
        "hardware": platform.pop("hardware", "H100-SXM"),
    }
    gpus = {"gpus_per_node": 8} if fields["hardware"] != "cpu" else {}
    return Cluster.model_validate({**fields, **gpus, "platform": {"kind": "slurm", **platform}})


@pytest.mark.parametrize(
    ("image", "hardware", "expected"),
    [
        ("/s/t.sif", "H100-SXM", "apptainer exec --nv /s/t.sif"),
        ("/s/t.sif", "MI300X", "apptainer exec --rocm /s/t.sif"),
        ("/s/t.sif", {"name": "AMD Instinct MI210"}, "apptainer exec --rocm /s/t.sif"),
        ("/s/t.sif", {"name": "mi250x"}, "apptainer exec --rocm /s/t.sif"),
        ("/s/t.sif", {"name": "MIG 1g.10gb"}, "apptainer exec --nv /s/t.sif"),
        ("/s/t.sif", "cpu", "apptainer exec /s/t.sif"),
        (f"nvcr.io/a/b:1@{DIGEST}", "cpu", f"apptainer exec docker://nvcr.io/a/b@{DIGEST}"),
        ("localhost:5000/b:1", "cpu", "apptainer exec docker://localhost:5000/b:1"),
    ],
)
def test_apptainer_starts_a_file_or_a_pinned_image(
    image: str, hardware: str | dict[str, str], expected: str
) -> None:
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
        ("image: /s/t.sqsh", "kind: docker",
         "image: a file is only for platforms slurm and baremetal; docker takes a reference"),
        ("image: {build: cpu, builder: buildah}", "kind: slurm, runtime: pyxis", "image: needs a repository"),
        ("", "kind: slurm, args: [--mem=0, --nodes]",
         "platform.args.1: --nodes is set by another field or by seatrial"),
        ("", "kind: slurm, args: [--time=1]", "platform.args.0: --time is set by another field or by seatrial"),
        ("", "kind: slurm, args: ['--mem=0 --time=1']", "platform.args.0: must be one option with its value"),
        ("", "kind: slurm, gres: 'gpu:h100:8'", "platform.gres: needs hardware that has GPUs"),
        ("", "kind: slurm, folder: a/../b", "platform.folder: must be a path of letters"),
        ("", "kind: slurm, folder: -rf", "platform.folder: must be a path of letters"),
        ("", "kind: slurm, python: a b", "platform.python: must be a path of letters"),
        ("", "kind: slurm, runtime: podman", "'none', 'pyxis', 'apptainer' or 'singularity'"),
        ("image: nvcr.io/a/b", "kind: slurm, runtime: pyxis, mounts: [{source: a, target: /b}]", "must be a full path"),
    ],
)  # fmt: skip
def test_inconsistent_slurm_settings_are_refused_in_one_line(
    tmp_path: Path, image: str, platform: str, problem: str
) -> None:
    assert problem in refusal(tmp_path, **yaml.safe_load(f"{image}\nplatform: {{{platform}}}"))


def test_sbatch_options_that_share_a_prefix_with_reserved_ones_are_legal() -> None:
    assert (
        SlurmPlatform(kind="slurm", args=("--time-min=10", "--gpus-per-task=1")).args[0]
        == "--time-min=10"
    )


def test_image_file_is_neither_built_nor_looked_up_in_a_registry(tmp_path: Path) -> None:
    image = cluster("/shared/trials.sqsh", runtime="pyxis").image
    assert image is not None
    assert ensure_image(image, "amd64", tmp_path / "log").pinned == "/shared/trials.sqsh"
    assert render_image(image, "amd64") == {}


def warning(suite: str, time_limit: str, **fields: Any) -> str | None:
    settings = SlurmPlatform(kind="slurm", time_limit=time_limit)
    cluster = Cluster.model_validate({"name": "test", "nodes": 2, "platform": settings, **fields})
    return check_time_limit(
        Run("20260102-0304-abcde", cluster, load_suite(suite), Path("out")), settings
    )


def test_a_long_enough_job_yields_no_warning() -> None:
    assert warning("quick", "00:30:00") is None


def test_warning_states_time_limit_and_needed_time() -> None:
    words = warning("nightly", "00:45:00") or ""
    assert "suite nightly" in words
    assert "time_limit is 0:45:00" in words
    assert "keep_s" not in words
    (enough,) = re.findall(r"add up to (1:\d\d:\d\d),", words)  # five sweeps, the training and more
    assert warning("nightly", enough) is None


def test_time_for_kept_nodes_counts_towards_the_time_limit() -> None:
    assert warning("quick", "00:30:00", keep="on_failure", keep_s=600) is None
    assert "keep_s (2:00:00)" in (warning("quick", "00:30:00", keep="on_failure") or "")


@pytest.mark.parametrize(("suite", "limit"), [("acceptance", "00:59:00"), ("nightly", "00:09:00")])
def test_a_step_that_may_outlive_the_job_is_refused(suite: str, limit: str) -> None:
    with pytest.raises(MissingError) as error:
        warning(suite, limit)
    assert error.value.reason.code == "slurm-time-limit-short"
    assert f"time_limit is 0:{limit[3:]}" in error.value.reason.sentence


def test_checks_skipped_on_a_single_gpu_need_no_time() -> None:
    gpus = {"hardware": "H100-SXM", "nodes": 1}
    assert warning("nightly", "00:45:00", gpus_per_node=1, **gpus) is None
    assert warning("nightly", "00:45:00", gpus_per_node=2, **gpus)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1", 60),
        ("90:30", 90 * 60 + 30),
        ("2:03:04", 2 * 3600 + 3 * 60 + 4),
        ("1-6", 30 * 3600),
        ("1-6:30", 30 * 3600 + 1800),
        ("1-06:00:01", 30 * 3600 + 1),
        ("30-0", 30 * 86400),
    ],
)
def test_time_limits_are_read_as_sbatch_reads_them(written: str, meant: int) -> None:
    assert seconds(written) == meant


@pytest.mark.parametrize("written", ["0:59", "30-0:00:01", "-1", "1:2:3:4", "1h"])
def test_invalid_time_limits_are_refused(written: str) -> None:
    with pytest.raises(ValueError, match="must be "):
        seconds(written)
