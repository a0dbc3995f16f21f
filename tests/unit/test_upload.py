"""What is uploaded, to where, and what becomes of it when that goes wrong."""

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run, set_aside
from seatrial.nccl import parse_text
from seatrial.tasks import upload as step
from seatrial.tasks.upload import CONNECTIVITY, SWEEPS, upload

GOLDEN = Path(__file__).parents[1] / "golden" / "nccl-logs"
SWEEP = (GOLDEN / "rccl_mi300x_8ranks.log").read_text()
RUN_LOG = """\
2026-11-21 15:44:00,000 INFO seatrial.launch: run r1: 2 nodes, head node-0 (10.77.0.2)
2026-11-21 15:44:01,000 INFO seatrial.connectivity: 2 of 2 nodes answer on port 222
2026-11-21 15:44:02,000 WARNING seatrial.contact: node-0 to node-1: throughput cannot be measured
2026-11-21 15:44:03,000 INFO seatrial.collectives: all_reduce is done
"""


@pytest.fixture
def bucket() -> Iterator[Any]:
    """The files at memory://, which live as long as the process."""
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def a_run(out: Path, url: str | None, **files: str) -> Run:
    """A run that has left `files`, by path with `__` for `/`."""
    cluster = {
        "name": "c",
        "nodes": 2,
        "platform": {"kind": "local"},
        "upload": url,
        "env": {"MY_TOKEN": "s3cr3t-value"},
    }
    for name, text in files.items():
        path = out / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Run("r1", Cluster.model_validate(cluster), load_suite("nightly"), out)


FILES = {
    "run.json": '{"verdict": "fail"}',
    "report.html": "<html>",
    "logs__run.log": RUN_LOG,
    "logs__mpirun-hostname.log": "$ mpirun hostname\nnode-0\nnode-1\n",
    "logs__all_reduce.log": f"$ mpirun all_reduce_perf\n{SWEEP}",
    "logs__all_gather.log": f"$ mpirun all_gather_perf\n{SWEEP}",
    "logs__pod-logs__coordinator.log": "# pod p-0\nMY_TOKEN is s3cr3t-value\n",
    "logs__pod-logs__worker-n1.log": "# pod p-1\n",
    "logs__events.txt": "an event\n",
}


def test_files_are_uploaded_to_their_documented_places(tmp_path: Path, bucket: Any) -> None:
    run = a_run(tmp_path, "memory://bucket/testbed-logs", **FILES)
    assert upload(run) == "files: memory://bucket/testbed-logs/r1/"
    there = {
        path.removeprefix("/bucket/testbed-logs/r1/"): bucket.cat(path).decode()
        for path in bucket.find("/bucket")
    }
    assert set(there) == {
        "run.json",
        "report.html",
        SWEEPS,
        CONNECTIVITY,
        "pod-logs/coordinator.log",
        "pod-logs/worker-n1.log",
        "logs/run.log",
        "logs/mpirun-hostname.log",
        "logs/all_reduce.log",
        "logs/all_gather.log",
        "logs/events.txt",
    }
    assert there["run.json"] == FILES["run.json"]
    assert there["pod-logs/coordinator.log"] == "# pod p-0\nMY_TOKEN is ***\n"
    assert len(parse_text(there[SWEEPS], SWEEPS)) == 2
    lines = there[CONNECTIVITY].splitlines()
    assert ("seatrial.connectivity: 2 of 2" in there[CONNECTIVITY], "node-1" in lines) == (
        True,
        True,
    )
    assert "seatrial.launch" not in there[CONNECTIVITY]


def test_files_are_uploaded_to_a_local_folder(tmp_path: Path) -> None:
    run = a_run(tmp_path / "out", f"file://{tmp_path}/new/folder", **FILES)
    assert upload(run) == f"files: file://{tmp_path}/new/folder/r1/"
    assert (
        tmp_path / "new" / "folder" / "r1" / "pod-logs" / "worker-n1.log"
    ).read_text() == "# pod p-1\n"


def test_copies_on_this_machine_are_for_their_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert upload(a_run(tmp_path / "out", f"file://{tmp_path}/shared", **FILES))
    finally:
        os.umask(before)
    copies = list((tmp_path / "shared").rglob("*"))
    assert {path.stat().st_mode & 0o777 for path in copies if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in copies if path.is_dir()} == {0o700}


@pytest.mark.parametrize("mode", [0o777, 0o1777], ids=oct)
def test_nothing_is_uploaded_through_a_planted_link(tmp_path: Path, mode: int) -> None:
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    (shared / "r1").mkdir(parents=True, mode=0o755)
    shared.chmod(mode)
    victim.write_text("mine")
    (shared / "r1" / "run.json").symlink_to(victim)
    assert upload(a_run(tmp_path / "out", f"file://{shared}", **FILES)) is None
    assert victim.read_text() == "mine"


def test_files_of_an_earlier_run_in_the_same_folder_are_not_uploaded(
    tmp_path: Path, bucket: Any
) -> None:
    """Even if the clock was set back between the two runs."""
    run = a_run(tmp_path, "memory://bucket", **FILES)
    set_aside(tmp_path)
    a_run(tmp_path, "memory://bucket", **{"run.json": "{}", "logs__training.log": "of this run\n"})
    os.utime(run.logs / "training.log", (0, 0))
    assert upload(run)
    assert bucket.find("/bucket") == ["/bucket/r1/logs/training.log", "/bucket/r1/run.json"]
    assert (tmp_path / "logs.1" / "all_gather.log").is_file()


def test_bytes_that_are_no_text_arrive_as_they_are(tmp_path: Path, bucket: Any) -> None:
    run = a_run(tmp_path, "memory://bucket", **FILES)
    raw = b"\xff\xfe not UTF-8\r\nand \x00 so on"
    (run.logs / "training.log").write_bytes(raw)
    assert upload(run)
    assert bucket.cat("/bucket/r1/logs/training.log") == raw


def test_nothing_is_uploaded_without_an_upload_address(tmp_path: Path) -> None:
    assert upload(a_run(tmp_path, None, **FILES)) is None


def test_an_error_is_a_warning_without_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError("403:\nservice account with password=hunter2hunter2 may not write")

    monkeypatch.setattr(step, "_put", refuse)
    with caplog.at_level(logging.WARNING):
        assert upload(a_run(tmp_path, "memory://bucket", **FILES)) is None
    (record,) = caplog.records
    message = record.getMessage()
    assert message.startswith(
        "upload to memory://bucket/r1 failed: PermissionError: 403: service account"
    )
    assert "hunter2" not in message


def test_a_package_that_is_missing_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert upload(a_run(tmp_path, "hdfs://host/logs", **FILES)) is None
    assert "hdfs://host/logs/r1" in caplog.text


def test_a_hanging_upload_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(step, "_put", lambda *_: over.wait())
    with caplog.at_level(logging.WARNING):
        assert upload(a_run(tmp_path, "memory://bucket", **FILES), timeout_s=0.2) is None
    over.set()
    assert "not through within 0.2 s" in caplog.text
