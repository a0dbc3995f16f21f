"""Probes as one file, run from a folder that holds nothing else."""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from seatrial.cli.app import app
from seatrial.cli.nodes import BY_HAND, single_file
from seatrial.model.errors import InputError
from seatrial.nccl.parse import parse_text
from seatrial.remote.probes import PROBES
from tests.sources import imported

ALONE = (sys.executable, "-I")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def run(folder: Path, name: str, *arguments: str, start: tuple[str, ...] = ALONE) -> str:
    """What it prints, in a folder of its own, without this project's path and with one thread."""
    (folder / f"{name}.pyz").write_bytes(single_file(name))
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*start, f"{name}.pyz", *arguments],
        cwd=folder, env=clean, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_devices_and_facts_are_one_line_of_json_from_each_process(tmp_path: Path) -> None:
    answers = [
        json.loads(line)
        for line in run(tmp_path, "devices", "--seconds", "0.05", start=TORCHRUN).splitlines()
    ]
    assert len(answers) == 2
    for (device,) in (answer["devices"] for answer in answers):
        assert (device["wrong"], device["error"]) == ("", "")
        assert min(device["matmul_tflops"]) > 0
    facts = [json.loads(line) for line in run(tmp_path, "facts", start=TORCHRUN).splitlines()]
    assert [fact["cpus"] >= 1 for fact in facts] == [True] * 2


@pytest.mark.slow
def test_single_file_training_runs_under_torchrun(tmp_path: Path) -> None:
    *_, last = run(tmp_path, "training", "--steps", "4", start=TORCHRUN).splitlines()
    summary = json.loads(last)
    assert (summary["event"], summary["world_size"], summary["steps"]) == ("summary", 2, 4)
    assert summary["last_loss"] < summary["first_loss"]


@pytest.mark.slow
@pytest.mark.parametrize("start", [ALONE, TORCHRUN], ids=["alone", "torchrun"])
def test_single_file_quick_check_passes_alone_and_under_torchrun(
    tmp_path: Path, start: tuple[str, ...]
) -> None:
    """The check starts devices, collective, all_reduce, training and facts from the same file."""
    lines = run(tmp_path, "check", "--allow-no-gpu", start=start).splitlines()
    names = ["[ENV]", "[ENV]", "[COMPUTE]", "[COLLECTIVE]", "[TRAIN]", "[RESULT]"]
    assert [line.split()[0] for line in lines] == names
    assert lines[-1].startswith("[RESULT] pass: ")
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["train"]["world_size"], results["train"]["improved"]) == (2, True)


@pytest.mark.slow
def test_single_file_sweep_parses_like_nccl_tests(tmp_path: Path) -> None:
    options = ("--operation", "all_reduce", "--min-bytes", "1024", "--max-bytes", "4096")
    (sweep,) = parse_text(run(tmp_path, "collective", *options, start=TORCHRUN))
    assert [row.size for row in sweep.rows] == [1024, 2048, 4096]
    assert sweep.ranks == 2


def test_single_file_probes_hold_their_parts_and_no_build_time() -> None:
    for name in BY_HAND:
        with zipfile.ZipFile(io.BytesIO(single_file(name))) as file:
            started = (
                {"devices", "collective", "all_reduce", "training", "facts"}
                if name == "check"
                else set()
            )
            assert {f"{part}.py" for part in (name, *started)} <= set(file.namelist())
            assert {entry.date_time for entry in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}, name


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "check.pyz"
    arguments = ["probe", "facts", "--out", str(file)]
    assert (
        CliRunner().invoke(app, arguments, catch_exceptions=False).output
        == f"{file}: python {file} --help\n"
    )
    assert file.read_bytes() == single_file("facts")
    with pytest.raises(
        InputError,
        match=r"check\.pyz: is there already; remove it, or name another file with --out$",
    ):
        CliRunner().invoke(app, arguments, catch_exceptions=False, standalone_mode=False)


# Probes run on the nodes: they import the standard library, torch and each other; more only if they
# can do without.


# torch measures processors where numpy is missing, nvidia-smi reads sensors where nvidia-ml-py is;
# only folders of images need Pillow, object stores fsspec, and fp8 torchao, which a probe asks for
# by name.
OPTIONAL = {
    "datasets": {"PIL"},
    "devices": {"numpy"},
    "objects": {"fsspec"},
    "parallel": {"torchao"},
    "torch_device": {"pynvml"},
}
ALLOWED = sys.stdlib_module_names | {"torch"} | {path.stem for path in PROBES}


@pytest.mark.parametrize("path", PROBES, ids=lambda path: path.stem)
def test_probes_import_only_modules_available_on_nodes(path: Path) -> None:
    assert imported(path) <= ALLOWED | OPTIONAL.get(path.stem, set())
