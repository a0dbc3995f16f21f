"""The training of one process, or of two by torchrun, as people start it by hand: models, sizes,
bad arguments.
"""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import pytest

from seatrial.checks.training.section import TransformerSize, Workload
from seatrial.remote.probes import models, probe
from tests.integration.probes.launched import by_hand


# torchvision's own models of these names have as many parameters.
@pytest.mark.parametrize(
    ("model", "parameters"),
    [("resnet18", 11_689_512), pytest.param("resnet50", 25_557_032, marks=pytest.mark.slow)],
)
def test_one_process_trains_a_resnet_that_learns(model: str, parameters: int) -> None:
    size = ["--model", model, "--image-size", "32", "--steps", "6", "--batch", "4"]
    done = by_hand("training", *size)
    assert done.status == 0, done.lines
    summary = json.loads(done.lines[-1])
    assert (summary["model"], summary["parameters"]) == (model, parameters)
    assert (summary["world_size"], [rank["rank"] for rank in summary["ranks"]]) == (1, [0])
    assert summary["last_loss"] < 0.8 * summary["first_loss"]


def test_a_transformer_has_the_size_that_is_asked_for(tmp_path: Path) -> None:
    size = TransformerSize(layers=3, width=32, heads=4, sequence_length=16, vocabulary=64)
    workload = Workload(
        model="transformer", transformer=size, steps=40, batch_per_rank=8, learning_rate=3e-3
    )
    written = tmp_path / "results.json"
    done = by_hand("training", "--device", "cpu", *workload.arguments(), "--results", str(written))
    assert done.status == 0, done.lines
    summary, results = json.loads(done.lines[-1]), json.loads(written.read_text())
    assert summary["model"] == results["model"] == workload.name == "transformer 3x32"
    assert results["transformer"] == size.model_dump()
    blocks, embedded = 3 * (12 * 32**2 + 13 * 32), (64 + 16) * 32
    assert summary["parameters"] == embedded + blocks + 2 * 32 + 32 * 64 + 64
    assert summary["flops_per_sample"] == pytest.approx(size.flops()), (
        "as a plan of the suite has it"
    )
    assert summary["last_loss"] < 0.8 * summary["first_loss"]


def test_default_transformer_size_equals_that_of_the_suite() -> None:
    assert TransformerSize().model_dump() == asdict(models.TransformerSize())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "transformer", "--layers", "0"], "needs --layers of 1"),
        (["--model", "transformer", "--width", "100"], "--width that --heads divides"),
        (["--model", "resnet18", "--layers", "3"], "are of transformer; --model is resnet18"),
    ],
)
def test_invalid_model_size_is_refused_in_one_line(
    training: ModuleType, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        training.main(["--device", "cpu", *arguments])
    error = capsys.readouterr().err.splitlines()[-1]
    assert (ended.value.code, ": error: " in error, words in error) == (2, True, True), error


@pytest.mark.slow
def test_two_processes_by_torchrun_end_with_the_same_resnet() -> None:
    size = ["--model", "resnet18", "--image-size", "32", "--steps", "4", "--batch", "2"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*torchrun, str(probe("training")), *size],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["world_size"], len({rank["checksum"] for rank in summary["ranks"]})) == (2, 1)
