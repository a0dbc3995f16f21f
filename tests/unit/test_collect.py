"""NCCL's own files on the nodes, and what happens when logs cannot be had."""

import logging
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from seatrial.tasks import launch as step
from seatrial.text.lines import MAX_BYTES, last_bytes, tail_of
from tests.unit.collectives.fake_mpirun import make_run


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("nccl-%h-%p.log", ["nccl-HOST-12.log", "nccl-HOST-7.log"]),
        ("nccl-%p-%h.log", []),
        ("my logs/%p", ["my logs/1"]),
        ("100%%.txt", ["100%.txt"]),
    ],
)
def test_the_files_that_nccl_wrote_are_found(
    tmp_path: Path, pattern: str, names: list[str]
) -> None:
    host = os.uname().nodename.partition(".")[0]
    (tmp_path / "my logs").mkdir()
    for name in (
        f"nccl-{host}-7.log",
        f"nccl-{host}-12.log",
        "nccl-other-9.log",
        "my logs/1",
        "100%.txt",
    ):
        (tmp_path / name).touch()
    script = (
        f'for file in {step.as_glob(f"{tmp_path}/{pattern}")}; do [ -f "$file" ] && echo '
        '"$file"; done'
    )
    listed = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    assert listed == [f"{tmp_path}/{name.replace('HOST', host)}" for name in names]


def test_logs_that_cannot_be_had_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Any) -> Any:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(step, "platform_for", broken)
    with caplog.at_level(logging.WARNING):
        step.collect(make_run(tmp_path), None)
    assert caplog.messages == ["not all logs could be collected: ZeroDivisionError: oops"]


def test_only_the_tail_of_a_long_log_is_kept(tmp_path: Path) -> None:
    assert last_bytes([b"ab", b"", b"c"]) == b"abc"
    assert (
        last_bytes([b"x" * 700_000, b"y" * 700_000, b"z"]) == b"x" * 348_575 + b"y" * 700_000 + b"z"
    )
    assert last_bytes([b"x" * 3 * MAX_BYTES]) == b"x" * MAX_BYTES
    (tmp_path / "long").write_bytes(b"a" + b"b" * MAX_BYTES)
    assert tail_of(tmp_path / "long") == b"b" * MAX_BYTES
    (tmp_path / "short").write_bytes(b"first\nlast")
    assert tail_of(tmp_path / "short") == b"first\nlast"


def test_the_tail_of_a_long_log_begins_with_a_whole_line(tmp_path: Path) -> None:
    """What is left of a line that is cut may be the end of a secret, which nothing would find."""
    lines = b"with s3cr3t-value\n" * 100_000
    (tmp_path / "long").write_bytes(lines)
    for tail in (
        tail_of(tmp_path / "long"),
        last_bytes([lines]),
        last_bytes([lines[:900_001], lines[900_001:]]),
    ):
        assert MAX_BYTES - 18 < len(tail) <= MAX_BYTES
        assert tail.startswith(b"with s3cr3t-value\n")
