"""The probe `storage`: what is left of it, which is nothing, however it ends."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def started(probes: Path, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    argv = [sys.executable, "-S", str(probes / "storage.py"), str(folder)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def ask(program: "subprocess.Popen[str]", **request: object) -> dict[str, Any]:
    assert program.stdin and program.stdout
    program.stdin.write(json.dumps({"id": 1, **request}) + "\n")
    program.stdin.flush()
    answer: dict[str, Any] = json.loads(program.stdout.readline())
    return answer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def gone(folder: Path) -> bool:
    """Whether the folder is empty, or is so soon."""
    deadline = time.monotonic() + 60
    while any(folder.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(folder.iterdir())


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, None])
def test_probe_leaves_no_files_however_it_ends(
    probes: Path, folder: Path, end: signal.Signals | None
) -> None:
    with started(probes, folder) as program:
        assert program.stdout and program.stdin
        greeting = json.loads(program.stdout.readline())
        own = folder / greeting["folder"]
        assert ask(program, do="save", bytes=16 << 20, shards=2)["bytes"] == 16 << 20
        assert ask(program, do="note")["digest"]
        assert own.stat().st_mode & 0o777 == 0o700
        assert {path.name for path in own.iterdir()} == {"shard-0", "shard-1", "note"}, (
            "the file of streams has no name"
        )
        program.stdin.close() if end is None else program.send_signal(end)
        program.wait(60)
        assert gone(folder)


def test_invalid_request_is_answered_with_an_error(probes: Path, folder: Path) -> None:
    with started(probes, folder) as program:
        assert program.stdout
        program.stdout.readline()
        assert "is no folder of a node" in ask(program, do="contend", folder="../../etc")["error"]
        assert "unexpected keyword" in ask(program, do="note", more=1)["error"]
        assert ask(program, do="nothing")["error"] == "'nothing'"
        assert ask(program, do="release")["error"]
        assert ask(program, do="look", folder=".seatrial-x", digest="0", limit_s=0.05) == {
            "id": 1,
            "seen": "no such file",
        }


def test_changed_shard_is_reported_wrong(probes: Path, folder: Path) -> None:
    with started(probes, folder) as program:
        assert program.stdout
        name = json.loads(program.stdout.readline())["folder"]
        ask(program, do="save", bytes=16 << 20, shards=2)
        with (folder / name / "shard-1").open("r+b") as file:
            file.seek((1 << 20) + 5)
            file.write(b"?")
        loaded = ask(program, do="load", folder=name, bytes=16 << 20, shards=2)
        assert (
            loaded["wrong"]
            == f"shard 1: the block at byte {1 << 20} of the file is not what was written"
        )
