"""The probe `disk` on real folders: what it leaves, which is nothing, and what it refuses."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.devices.answers import DiskAnswer
from seatrial.remote.answers import read_answer
from tests.integration.probes.conftest import Load

MIB = 1 << 20


@pytest.fixture
def program(probes: Path) -> Path:
    return probes / "disk.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


def start(
    program: Path, folder: Path, *options: str, path: str | None = None
) -> "subprocess.Popen[str]":
    env = {**os.environ, **({"PATH": path} if path is not None else {})}
    argv = [sys.executable, str(program), "--folder", str(folder), *options]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)


def answer_of(process: "subprocess.Popen[str]") -> str:
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    return output


def test_python_writes_and_reads_a_file(program: Path, folder: Path) -> None:
    answer = read_answer(
        DiskAnswer, answer_of(start(program, folder, "--bytes", str(16 * MIB), path=""))
    )
    assert (answer.tool, answer.wrong) == ("python", "")
    assert [m.metric for m in answer.measurements("node-0")] == ["disk_write", "disk_read"]
    assert answer.filesystem
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_fio_writes_and_reads_a_file(program: Path, folder: Path) -> None:
    answer = read_answer(
        DiskAnswer, answer_of(start(program, folder, "--bytes", str(16 * MIB), "--seconds", "1"))
    )
    assert (answer.tool, len(list(answer.measurements("node-0")))) == ("fio", 2)
    assert list(folder.iterdir()) == []


def test_an_error_of_fio_is_passed_on(program: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "fio").write_text("#!/bin/sh\necho 'fio: no engine' >&2\nexit 1\n")
    (tmp_path / "fio").chmod(0o700)
    output = answer_of(
        start(program, folder, "--bytes", str(16 * MIB), path=f"{tmp_path}:{os.environ['PATH']}")
    )
    assert json.loads(output) == {"error": "fio: fio: no engine"}


def test_nothing_is_left_of_a_probe_that_is_killed(program: Path, folder: Path) -> None:
    process = start(program, folder, "--bytes", str(8 * MIB), path="")
    try:
        while not open_in(process.pid, folder):
            assert process.poll() is None, process.communicate()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    assert list(folder.iterdir()) == []


def open_in(pid: int, folder: Path) -> bool:
    """Whether the process holds a file in the folder open."""
    try:
        return any(str(folder) in os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


@pytest.mark.parametrize(
    ("options", "words"),
    [((), "No such file or directory"), (("--bytes", str(1 << 33)), "too little is free")],
)
def test_unusable_folder_is_reported_as_an_error(
    program: Path, options: tuple[str, ...], words: str
) -> None:
    place = Path("/nonexistent") if not options else Path("/proc")
    answer: dict[str, Any] = json.loads(answer_of(start(program, place, *options)))
    assert list(answer) == ["error"]
    assert words in answer["error"]


def test_block_changed_after_writing_is_reported_wrong(folder: Path, load: Load) -> None:
    """A block that changed after it was written."""
    disk: Any = load("disk")
    content = b"x" * (MIB - 8)
    with (folder / "file").open("w+b") as file:
        for block in range(3):
            file.write((block * MIB).to_bytes(8, "little") + content)
        file.seek(MIB + 5000)
        file.write(b"y")
        file.flush()
        read, wrong, took = disk.read_back(file.fileno(), 3 * MIB, content, 60)
    assert (read, wrong) == (
        3 * MIB,
        f"the block at byte {MIB} of the file is not what was written",
    )
    assert took > 0
