"""How much other programs take of this machine's processors."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from seatrial.system import other_programs
from seatrial.system.other_programs import OtherPrograms

LOOP = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]


@pytest.fixture
def loop() -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen(LOOP, stdout=subprocess.PIPE) as started:
        assert started.stdout
        started.stdout.readline()
        yield started
        started.kill()


def ticks_of(pid: int) -> int:
    return next(
        ticks for (number, _), ticks in other_programs._used_ticks().items() if number == pid
    )


def test_processor_time_of_other_programs_counts_from_the_start(
    loop: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits by processor time of the loop, so that a busy machine does not matter."""
    monkeypatch.setattr(other_programs, "children", lambda pid: set())
    others, began, before = OtherPrograms(), time.monotonic(), ticks_of(loop.pid)
    while ticks_of(loop.pid) < before + 20:
        time.sleep(0.05)
    assert others.cores() >= 0.2 / (time.monotonic() - began) * 0.9


def test_own_child_processes_do_not_count_as_other_programs(
    loop: "subprocess.Popen[bytes]",
) -> None:
    others = OtherPrograms()
    assert {loop.pid, os.getpid()}.isdisjoint(pid for pid, _ in others._used)


def test_first_run_of_a_process_counts_other_programs_from_its_start() -> None:
    other_programs.watch_from_now()
    (first,) = other_programs._from_the_start
    assert other_programs.watched() is first
    assert other_programs.watched() is not first, (
        "a later run of this process counts from its own start"
    )
