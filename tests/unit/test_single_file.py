"""Probes as one file, run from a folder that holds nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from seatrial.cli.app import app
from seatrial.model.errors import InputError
from seatrial.nccl.parse import parse_text
from seatrial.remote.single_file import BY_HAND, single_file

ALONE = (sys.executable, "-I")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def run(folder: Path, name: str, *arguments: str, start: tuple[str, ...] = ALONE) -> str:
    """What it prints, in a folder of its own, without this project's path and with one thread."""
    (folder / f"{name}.pyz").write_bytes(single_file(name))
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*start, f"{name}.pyz", *arguments],
        cwd=folder, env=clean, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


by_hand = pytest.mark.parametrize(  # under torchrun, the quick check stands in for the others
    ("start", "ranks"),
    [pytest.param(ALONE, 1, id="alone"), pytest.param(TORCHRUN, 2, id="torchrun", marks=pytest.mark.slow)],
)


@by_hand
def test_devices_and_facts_are_one_line_of_json_from_each_process(
    tmp_path: Path, start: tuple[str, ...], ranks: int
) -> None:
    answers = [json.loads(line) for line in run(tmp_path, "devices", "--seconds", "0.05", start=start).splitlines()]
    assert len(answers) == ranks
    for (device,) in (answer["devices"] for answer in answers):
        assert (device["wrong"], device["error"]) == ("", "")
        assert min(device["matmul_tflops"]) > 0
    facts = [json.loads(line) for line in run(tmp_path, "facts", start=start).splitlines()]
    assert [fact["cpus"] >= 1 for fact in facts] == [True] * ranks


@by_hand
def test_training_alone_and_under_torchrun(tmp_path: Path, start: tuple[str, ...], ranks: int) -> None:
    *_, last = run(tmp_path, "training", "--steps", "4", start=start).splitlines()
    summary = json.loads(last)
    assert (summary["event"], summary["world_size"], summary["steps"]) == ("summary", ranks, 4)
    assert summary["last_loss"] < summary["first_loss"]


@pytest.mark.parametrize("start", [ALONE, TORCHRUN], ids=["alone", "torchrun"])
def test_the_quick_check_alone_and_under_torchrun(tmp_path: Path, start: tuple[str, ...]) -> None:
    lines = run(tmp_path, "check", "--allow-no-gpu", start=start).splitlines()
    names = ["[ENV]", "[ENV]", "[COMPUTE]", "[COLLECTIVE]", "[TRAIN]", "[RESULT]"]
    assert [line.split()[0] for line in lines] == names
    assert lines[-1].startswith("[RESULT] pass: ")
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["train"]["world_size"], results["train"]["improved"]) == (2, True)


@by_hand
def test_a_sweep_reads_as_one_of_nccl_tests(tmp_path: Path, start: tuple[str, ...], ranks: int) -> None:
    options = ("--operation", "all_reduce", "--min-bytes", "1024", "--max-bytes", "4096")
    (sweep,) = parse_text(run(tmp_path, "collective", *options, start=start))
    assert [row.size for row in sweep.rows] == [1024, 2048, 4096]
    assert sweep.ranks == ranks


@pytest.mark.parametrize("name", BY_HAND)
def test_the_file_is_the_same_each_time(name: str) -> None:
    assert single_file(name) == single_file(name)


def test_the_command_writes_it_once(tmp_path: Path) -> None:
    file = tmp_path / "check.pyz"
    arguments = ["probe", "facts", "--out", str(file)]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).output == f"{file}: python {file} --help\n"
    assert file.read_bytes() == single_file("facts")
    with pytest.raises(InputError, match=r"check\.pyz: is there already; remove it, or name another file with --out$"):
        CliRunner().invoke(app, arguments, catch_exceptions=False, standalone_mode=False)
