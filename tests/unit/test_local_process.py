"""A command of this machine, followed like one on a node."""

import os
import time
from pathlib import Path

import pytest

from seatrial.remote.command import LocalProcess


def started(script: str) -> LocalProcess:
    return LocalProcess(["sh", "-c", script], dict(os.environ), Path("/"))


def all_lines(process: LocalProcess) -> list[str]:
    lines: list[str] = []
    while (batch := process.read_lines(5)) is not None:
        lines += batch
    return lines


def test_input_output_and_status() -> None:
    process = started("cat; pwd >&2; exit 7")
    process.send(b"first\nhal")
    process.send(b"f")
    process.close_stdin()
    assert all_lines(process) == ["first", "half/"]
    assert (process.exit_status(), process.received_bytes) == (7, 12)
    process.close(1)


def test_nothing_arrives_in_time() -> None:
    process = started("read line")
    assert process.read(0.01) == b""
    process.close(5)  # closed input ends it
    assert process.exit_status() is not None


def test_what_does_not_leave_is_killed() -> None:
    process = started("trap '' TERM; exec 0</dev/null; echo up; while :; do sleep 0.1; done")
    assert process.read_lines(5) == ["up"]
    before = time.monotonic()
    process.close(0.2)
    assert time.monotonic() - before < 5
    assert process.exit_status() == -9


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        LocalProcess(["/no/such/program"], {}, Path("/"))


def test_a_lost_machine_has_no_exit_status() -> None:
    process = LocalProcess(["sh", "-c", "exit 255"], dict(os.environ), Path("/"), lost_status=255)
    assert all_lines(process) == []
    assert process.exit_status() is None
    process.close(1)
