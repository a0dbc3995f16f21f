"""NCCL's own files on the nodes, and what happens when logs cannot be had."""

import logging
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from seatrial.cluster import Cluster
from seatrial.run import Run
from seatrial.suite import load_suite
from seatrial.tail import MAX_BYTES, copy_tail, last_bytes
from tasks import collect as step


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("nccl-%h-%p.log", ["nccl-HOST-12.log", "nccl-HOST-7.log"]),
        ("nccl-%p-%h.log", []),
        ("my logs/%p", ["my logs/1"]),
        ("100%%.txt", ["100%.txt"]),
    ],
)
def test_the_files_that_nccl_wrote_are_found(tmp_path: Path, pattern: str, found: list[str]) -> None:
    host = subprocess.run(["uname", "-n"], capture_output=True, text=True, check=True).stdout.strip().partition(".")[0]
    (tmp_path / "my logs").mkdir()
    for name in (f"nccl-{host}-7.log", f"nccl-{host}-12.log", "nccl-other-9.log", "my logs/1", "100%.txt"):
        (tmp_path / name).touch()
    script = f'for file in {step.as_glob(f"{tmp_path}/{pattern}")}; do [ -f "$file" ] && echo "$file"; done'
    listed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False).stdout.splitlines()
    assert listed == [f"{tmp_path}/{name.replace('HOST', host)}" for name in found]


def test_logs_that_cannot_be_had_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Any) -> Any:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(step, "platform_for", broken)
    cluster = Cluster.model_validate({"name": "c", "nodes": 2, "platform": {"kind": "local"}})
    with caplog.at_level(logging.WARNING):
        step.collect(Run("r1", cluster, load_suite("quick"), tmp_path), None)
    assert caplog.messages == ["not all logs could be collected: ZeroDivisionError: oops"]


def test_what_is_known_to_be_secret_does_not_stay_in_the_logs(tmp_path: Path) -> None:
    """Of the run: what lies there from an earlier one, behind a link, or is being written, is left alone."""
    env = {"MY_TOKEN": "s3cr3t-value"}
    cluster = Cluster.model_validate({"name": "c", "nodes": 2, "platform": {"kind": "local"}, "env": env})
    run, started = Run("r1", cluster, load_suite("quick"), tmp_path), datetime.now(UTC)
    (run.logs / "pod-logs").mkdir(parents=True)
    elsewhere, earlier = tmp_path / "elsewhere", run.logs / "earlier.log"
    for path in (run.logs / "pod-logs" / "node-1.log", run.logs / "run.log", elsewhere, earlier):
        path.write_bytes(b"\xff\r\nwith s3cr3t-value \n")
    (run.logs / "harmless.log").write_text("nothing here")
    (run.logs / "link.log").symlink_to(elsewhere)
    os.utime(earlier, (started.timestamp() - 60,) * 2)
    before = (run.logs / "harmless.log").stat()
    step.hide_secrets(run, started)
    assert (run.logs / "pod-logs" / "node-1.log").read_bytes() == b"\xff\r\nwith *** \n"
    assert all(b"s3cr3t" in path.read_bytes() for path in (run.logs / "run.log", elsewhere, earlier))
    assert (run.logs / "harmless.log").stat() == before
    assert sorted(path.name for path in (run.logs / "pod-logs").iterdir()) == ["node-1.log"]


def test_only_the_end_of_what_is_long_is_kept(tmp_path: Path) -> None:
    assert last_bytes([b"ab", b"", b"c"]) == b"abc"
    assert last_bytes([b"x" * 700_000, b"y" * 700_000, b"z"]) == b"x" * 348_575 + b"y" * 700_000 + b"z"
    assert last_bytes([b"x" * 3 * MAX_BYTES]) == b"x" * MAX_BYTES
    (tmp_path / "long").write_bytes(b"a" + b"b" * MAX_BYTES)
    (tmp_path / "empty").touch()
    copy_tail(tmp_path / "long", tmp_path / "to" / "long")
    copy_tail(tmp_path / "empty", tmp_path / "to" / "empty")
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["long"]
    assert (tmp_path / "to" / "long").read_bytes() == b"b" * MAX_BYTES
