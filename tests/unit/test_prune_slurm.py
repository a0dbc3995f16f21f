"""`seatrial prune --slurm-output`: what batch scripts have left, beside files of the user's own."""

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seatrial.cli.upkeep import prune
from seatrial.runs.slurm_output import remove, scan

GOOD = "22:10:00 hostnames\n22:10:05 all_reduce\n"
FAILED = GOOD + "all_reduce: exit status 7, see seatrial-7/all_reduce.log\n"
DAY_S = 86400


def job(folder: Path, number: int, days: float, output: str = GOOD) -> None:
    logs = folder / f"seatrial-{number}"
    logs.mkdir()
    (logs / "all_reduce.log").write_text("x" * 1000)
    (folder / f"seatrial-{number}.out").write_text(output)
    changed = time.time() - days * DAY_S
    for path in (logs / "all_reduce.log", logs, folder / f"seatrial-{number}.out"):
        os.utime(path, (changed, changed))


def pruned(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(
        prune, ["--slurm-output", str(folder), *words], catch_exceptions=False
    )


def jobs(folder: Path) -> set[str]:
    return {path.name.removeprefix("seatrial-") for path in folder.iterdir()}


def test_prune_removes_no_job_output_without_the_yes_option(tmp_path: Path) -> None:
    for number, days in ((1, 100), (2, 50), (3, 1.5)):
        job(tmp_path, number, days)
    shown = pruned(tmp_path, "--older-than", "30d")
    assert "seatrial-1 seatrial-1.out" in shown.output
    assert "would remove: output of 2 jobs, " in shown.output
    assert jobs(tmp_path) == {"1", "1.out", "2", "2.out", "3", "3.out"}
    assert "removed: output of 2 jobs, " in pruned(tmp_path, "--older-than", "30d", "--yes").output
    assert jobs(tmp_path) == {"3", "3.out"}


@pytest.mark.parametrize(
    "ending", ["slurmstepd: error: *** JOB 9 CANCELLED ***\n", "all_reduce: exit status 7, see x\n"]
)
def test_the_newest_job_in_which_nothing_failed_stays(tmp_path: Path, ending: str) -> None:
    job(tmp_path, 1, 300)
    job(tmp_path, 2, 200)
    job(tmp_path, 3, 100, GOOD + ending)
    job(tmp_path, 4, 90, "")
    pruned(tmp_path, "--keep", "1", "--yes")
    assert jobs(tmp_path) == {"2", "2.out", "4", "4.out"}


def test_a_job_that_may_be_at_work_stays(tmp_path: Path) -> None:
    job(tmp_path, 1, 0.5, FAILED)
    job(tmp_path, 2, 0.1)
    pruned(tmp_path, "--older-than", "1h", "--yes")
    assert jobs(tmp_path) == {"1", "1.out", "2", "2.out"}


def test_prune_leaves_files_that_no_slurm_job_wrote(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "seatrial.log").write_text("mine")
    folder = tmp_path / "submitted"
    folder.mkdir()
    for number in range(1, 6):
        job(folder, number, 100, FAILED)
    (folder / "seatrial-1" / "thesis.tex").write_text("mine")
    (folder / "seatrial-2" / "all_reduce.log").unlink()
    (folder / "seatrial-2" / "all_reduce.log").symlink_to(outside / "seatrial.log")
    (folder / "seatrial-3" / "all_reduce.log").unlink()
    (folder / "seatrial-3").rmdir()
    (folder / "seatrial-3").symlink_to(outside)
    (folder / "seatrial-4.out").unlink()
    os.mkfifo(folder / "seatrial-4.out")
    (folder / "seatrial-x.out").write_text("mine")
    os.utime(folder / "seatrial-1", (0, 0))
    os.utime(folder / "seatrial-2", (0, 0))
    document = json.loads(pruned(folder, "--older-than", "1d", "--yes", "--json").output)
    assert [one["job"] for one in document["jobs"]] == [5]
    assert {one["name"]: one["problem"] for one in document["left"]} == {
        "seatrial-1": "holds 'thesis.tex', which no job writes",
        "seatrial-2": "holds 'all_reduce.log', which no job writes",
        "seatrial-3": "is no folder",
        "seatrial-4": "is no regular file",
    }
    assert (folder / "seatrial-x.out").exists()
    assert (outside / "seatrial.log").read_text() == "mine"


def test_output_changed_since_it_was_listed_is_not_removed(tmp_path: Path) -> None:
    job(tmp_path, 1, 100, FAILED)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        ((output,), _) = scan(descriptor)
        (tmp_path / "seatrial-1" / "latency.log").write_text("it goes on")
        with pytest.raises(ValueError, match="has changed in the meantime"):
            remove(descriptor, output)
    finally:
        os.close(descriptor)
    assert jobs(tmp_path) == {"1", "1.out"}
