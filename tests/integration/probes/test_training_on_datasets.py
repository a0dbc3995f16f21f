"""Training on data sets in the formats that they are published in."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from seatrial.remote.probes import probe
from tests.integration.probes.launched import by_hand
from tests.integration.probes.published import IMAGES, WRITERS, write_fashion_mnist, write_imagenet

DEBIAN = "/usr/bin/python3"


def train(
    *arguments: str, ranks: int = 1, python: str = sys.executable
) -> "subprocess.CompletedProcess[str]":
    torchrun = (
        ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        if ranks > 1
        else []
    )
    argv = [
        python,
        *torchrun,
        str(probe("training")),
        "--model=resnet18",
        "--image-size=32",
        *arguments,
    ]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_a_resnet_trains_on_each_dataset(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path)
    workers = ["--workers=1"] if name == "imagenet" else []
    results = tmp_path / "results.json"
    done = train(
        f"--data={name}",
        f"--data-dir={tmp_path}",
        "--batch=4",
        "--steps=4",
        f"--results={results}",
        *workers,
    )
    assert done.returncode == 0, done.stderr
    written = json.loads(results.read_text())
    # After two to warm up
    assert (written["data"], written["world_size"], written["total_samples"]) == (name, 1, 8)
    assert written["total_time_seconds"] == pytest.approx(2 * written["average_step_time_seconds"])
    assert written["throughput_samples_per_second"] == pytest.approx(
        8 / written["total_time_seconds"]
    )


@pytest.mark.slow
def test_the_torch_of_debian_12_reads_folders_of_images(tmp_path: Path) -> None:
    """images/cpu has it: torch 1.13 and Pillow 9.4."""
    versions = "import torch, PIL; print(torch.__version__)"
    asked = subprocess.run(
        [DEBIAN, "-c", versions], capture_output=True, text=True, check=False, timeout=120
    )
    if not asked.stdout.startswith("1."):
        pytest.skip(
            f"{DEBIAN} has no torch of Debian 12 with Pillow (apt-get install "
            "python3-torch python3-pil)"
        )
    write_imagenet(tmp_path)
    done = train(
        "--data=imagenet",
        f"--data-dir={tmp_path}",
        "--batch=4",
        "--epochs=1",
        "--workers=1",
        python=DEBIAN,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["steps"] == IMAGES // 4


@pytest.mark.slow
def test_two_ranks_share_the_images_of_a_pass(tmp_path: Path) -> None:
    write_fashion_mnist(tmp_path)
    done = train(
        "--data=fashion_mnist", f"--data-dir={tmp_path}", "--batch=4", "--epochs=2", ranks=2
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["steps"], len({rank["checksum"] for rank in summary["ranks"]})) == (
        2 * IMAGES // 2 // 4,
        1,
    )
    assert 0 <= summary["communication_share"] <= 1


def test_truncated_image_ends_the_training_with_one_line(tmp_path: Path) -> None:
    write_imagenet(tmp_path)
    broken = tmp_path / "train/n01440764/n01440764_3.JPEG"
    broken.write_bytes(broken.read_bytes()[:1000])
    options = [
        f"--data-dir={tmp_path}",
        "--model=resnet18",
        "--image-size=32",
        "--batch=2",
        "--epochs=1",
        "--workers=1",
    ]
    done = by_hand("training", "--data=imagenet", *options)
    assert done.status == 3
    assert f"cannot start: {broken} cannot be decoded: " in done.lines[-1]
    assert not any("Traceback" in line for line in done.lines)


def test_fewer_images_than_a_batch_are_reported(tmp_path: Path, training: ModuleType) -> None:
    write_fashion_mnist(tmp_path)
    size = [
        "--model=resnet18",
        "--batch=64",
        "--data=fashion_mnist",
        f"--data-dir={tmp_path}",
        "--device=cpu",
    ]
    with pytest.raises(
        training.rendezvous.CannotStart,
        match=f"24 images in {tmp_path} are no batch of 64 for every rank",
    ):
        training.main(size)
    torch.distributed.destroy_process_group()
