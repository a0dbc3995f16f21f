"""A run whose disk is full, on a small file system of its own: the result comes before everything
else.
"""

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import InputError, SeatrialError
from seatrial.runs.load import load_result
from seatrial.system.disk_reserve import reserved
from seatrial.tasks.record import record
from tests import samples

NODES = 4
ROOM_KIB = 4096


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A run whose folder has four MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={ROOM_KIB}k", "tmpfs", str(disk)], check=True
    )
    cluster = Cluster.model_validate(
        {"name": "local", "nodes": NODES, "platform": {"kind": "local"}}
    )
    try:
        yield Run("r1", cluster, load_suite("quick"), disk)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def fill(folder: Path, leave_kib: int = 0) -> None:
    """Take all room but so much, as logs do."""
    with (
        (folder / "filler").open("wb", buffering=0) as file,
        pytest.raises(OSError, match="No space left") as full,
    ):
        while True:
            file.write(bytes(4096))
    assert full.value.errno == errno.ENOSPC
    size = (folder / "filler").stat().st_size
    os.truncate(folder / "filler", size - leave_kib * 1024)


def test_a_disk_without_room_for_a_result_is_refused_before_anything_is_tried(run: Run) -> None:
    fill(run.out, leave_kib=64)
    with (
        pytest.raises(
            InputError,
            match=r"has no room for run.json \(1152 KiB\): No space left on device; give another",
        ),
        reserved(run.out, NODES),
    ):
        pytest.fail("the run would be lost")
    assert [path.name for path in run.out.iterdir()] == ["filler"]


def test_logs_that_fill_the_disk_leave_room_for_the_result(run: Run) -> None:
    result = samples.faulty_h100()
    with reserved(run.out, NODES):
        fill(run.out)
        written = record(result, run)
    assert "run.json" in written
    assert json.loads(written["run.json"].read_text()) == result.to_dict()


def test_a_full_disk_leaves_the_result_and_says_what_is_missing(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Room for run.json alone."""
    result = samples.faulty_h100()
    needed_kib = len(json.dumps(result.to_dict(), indent=1)) // 1024 + 8
    fill(run.out, leave_kib=needed_kib)
    written = record(result, run)
    assert set(written) == {"run.json"}
    assert load_result(run.out).verdict == result.verdict
    assert (
        "report.html could not be written: OSError: [Errno 28] No space left on device"
        in caplog.text
    )
    assert {path.name for path in run.out.iterdir()} == {"filler", "run.json"}


def test_verdict_is_written_without_details_when_the_disk_is_nearly_full(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    result = samples.faulty_h100()
    fill(run.out, leave_kib=16)
    record(result, run)
    document = json.loads((run.out / "run.json").read_text())
    assert (document["verdict"], document["reason"]) == (
        result.verdict.value,
        result.reason.sentence,
    )
    assert document["notes"] == ["the details could not be written: No space left on device"]
    assert [check["name"] for check in document["checks"]] == [
        check.name for check in result.checks
    ]
    assert "run.json has no details: No space left on device" in caplog.text


def test_a_result_that_cannot_be_written_at_all_is_an_error_and_no_half_file(run: Run) -> None:
    fill(run.out)
    with pytest.raises(
        SeatrialError, match=r"run\.json cannot be written: No space left on device; choose another"
    ):
        record(samples.faulty_h100(), run)
    assert [path.name for path in run.out.iterdir()] == ["filler"]


def test_failed_rewrite_on_a_full_disk_keeps_the_earlier_run_json(run: Run) -> None:
    record(samples.faulty_h100(), run)
    before = (run.out / "run.json").read_bytes()
    fill(run.out)
    with pytest.raises(SeatrialError, match="No space left on device"):
        record(samples.faulty_h100(), run)
    assert (run.out / "run.json").read_bytes() == before
