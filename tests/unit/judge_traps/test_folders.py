"""`seatrial judge FOLDER`: every file is judged, or listed as not judged; results of trainings are
inputs.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import command
from tests.unit.judge_traps.sweeplogs import HEALTHY, log_text

SXM = "NVIDIA H100 80GB HBM3"
ACROSS = (330.0, 350.0, 360.0, 370.0, 375.0)
TRAINED: dict[str, Any] = {
    "model": "resnet50", "precision": "fp32", "data": "synthetic", "compile": False, "device": SXM, "world_size": 8,
    "batch_size_per_gpu": 64, "throughput_samples_per_second": 14_000.0, "loss_start": 6.9, "loss_end": 5.1,
}  # fmt: skip
NO_FILE = "python3: can't open file '/shared/training.pyz': [Errno 2] No such file or directory"


def events(
    throughput: float = 14_000.0, last: float | None = 5.1, step_loss: float | None = 6.9
) -> str:
    """What the probe prints."""
    shared = {
        key: TRAINED[key]
        for key in ("model", "precision", "data", "world_size", "batch_size_per_gpu", "device")
    }
    summary = {
        "event": "summary",
        **shared,
        "throughput_samples_s": throughput,
        "first_loss": 6.9,
        "last_loss": last,
    }
    steps = [{"event": "step", "step": 0, "loss": step_loss, "step_time_ms": 36.0}]
    return "".join(json.dumps(event) + "\n" for event in (*steps, summary))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What measure.sbatch leaves."""
    (tmp_path / "all_reduce.log").write_text(log_text(ACROSS, 16, 2).replace("NVIDIA GPU", SXM))
    inside = ("NCCL_P2P_LEVEL=NVL", "NCCL_SHM_DISABLE=1")
    for node in ("node-0", "node-1"):
        text = log_text(HEALTHY, 8, before=inside).replace("NVIDIA GPU", SXM)
        (tmp_path / f"intra-{node}.log").write_text(text.replace("on node-0", f"on {node}"))
    (tmp_path / "hostnames.log").write_text("node-0\nnode-1\n")
    (tmp_path / "training.log").write_text(events())
    return tmp_path


def judged(
    folder: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, dict[str, Any]]:
    status = command("judge", str(folder), "--fabric", "IB-8x400G", "--json", *options)
    return status, json.loads(capsys.readouterr().out)


def test_every_file_of_a_folder_is_judged_without_options(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, document = judged(folder, capsys, "--require-baseline")
    assert (status, document["not_judged"]) == (0, []), document["reason"]
    assert "training of resnet50 at 14,000 samples/s" in document["reason"]


@pytest.mark.parametrize(
    ("name", "text", "status", "verdict", "reason"),
    [
        (
            "training.log",
            events(6_000.0),
            1,
            "fail",
            "training: throughput 6,000 samples/s, catalog 14,000",
        ),
        ("training.log", events(step_loss=None), 1, "corrupt", "the loss of step 0 is not finite"),
        ("training.log", events(last=None), 1, "corrupt", "the loss is not finite"),
        ("training.log", NO_FILE, 3, "not_run", "training: command missing (/shared/training.pyz)"),
        (
            "training.log",
            events().splitlines()[0],
            3,
            "inconclusive",
            "training that ends at step 0",
        ),
        (
            "hostnames.log",
            "node-0\nnode-0\n",
            1,
            "fail",
            "hostnames: a task started on 1 of 2 nodes",
        ),
        ("network.log", "", 3, "inconclusive", "network: "),
        (
            "results.json",
            json.dumps({**TRAINED, "loss_end": 7.0}),
            1,
            "fail",
            "the loss went from 6.90 to 7",
        ),
        (
            "run/results.json",
            json.dumps(TRAINED | {"loss_end": float("nan")}),
            1,
            "corrupt",
            "is not finite",
        ),
    ],
)
def test_bad_file_in_a_folder_decides_the_verdict(
    folder: Path,
    name: str,
    text: str,
    status: int,
    verdict: str,
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    ended, document = judged(folder, capsys)
    assert (ended, document["verdict"]) == (status, verdict), document["reason"]
    assert reason in document["reason"]


def test_file_without_known_content_is_listed_as_not_judged(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "notes.txt").write_text("rack 7\n")
    (folder / "plot.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    status, document = judged(folder, capsys)
    assert (status, document["not_judged"]) == (0, ["notes.txt", "plot.png"])
    assert judged(folder, capsys, "--require-baseline")[0] == 3
    command("judge", str(folder), "--fabric", "IB-8x400G")
    assert "not judged, nothing known in it: notes.txt, plot.png" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({}, 0, "as expected by catalog"),
        ({"throughput_samples_per_second": 10_000}, 1, "29 % below the 14,000 samples/s"),
        ({"throughput_samples_per_second": 6_000}, 1, "57 % below the 14,000 samples/s"),
        (
            {"throughput_samples_per_second": 6_000, "precision": "bf16"},
            0,
            "not judged by the 14,000 samples/s",
        ),
        ({"model": "own"}, 0, "no baseline yet"),
    ],
)
def test_training_result_is_judged_without_other_files(
    changes: dict[str, Any],
    status: int,
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for indent in (None, 2):
        (tmp_path / "results.json").write_text(json.dumps(TRAINED | changes, indent=indent) + "\n")
        assert command("judge", str(tmp_path / "results.json")) == status
        assert reason in capsys.readouterr().out


def test_training_results_with_other_key_names_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {
        "model": "resnet50",
        "num_gpus": 8,
        "batch_per_gpu": 64,
        "samples_per_second": 6000,
        "final_loss": 1.0,
    }
    (tmp_path / "results.json").write_text(json.dumps(document, indent=4))
    assert command("judge", str(tmp_path / "results.json"), "--hardware", "H100") == 1
    assert "57 % below the 14,000 samples/s" in capsys.readouterr().out
