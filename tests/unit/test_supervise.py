"""The supervisor ends what it started: when time is up, when nobody wants it any more, and when it
leaves by itself.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from seatrial.remote.probes import probe


def supervise(timeout_s: float, *command: str, **variables: str) -> "subprocess.Popen[bytes]":
    program = [sys.executable, str(probe("supervise")), str(timeout_s), *command]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(json.dumps(variables).encode() + b"\n")
    process.stdin.flush()
    return process


def first_line(process: "subprocess.Popen[bytes]") -> bytes:
    """Its first line; unlike `communicate` this leaves standard input open."""
    assert process.stdout
    return process.stdout.readline()


def last_words(process: "subprocess.Popen[bytes]") -> bytes:
    """Its last line, once it has ended."""
    assert process.stdout
    process.wait()
    return process.stdout.read().splitlines()[-1]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 7", 7), ("exit 124", 124), ("exit 127", 127), ("kill -9 $$", 137)],
)
def test_supervisor_returns_the_exit_status_of_the_command_silently(
    script: str, status: int
) -> None:
    with supervise(20, "sh", "-c", script) as process:
        assert process.wait() == status
        assert first_line(process) == b""


def test_a_command_that_is_not_there_is_named() -> None:
    with supervise(20, "no-such-command") as process:
        assert (
            last_words(process)
            == b"seatrial-supervisor: cannot start no-such-command: No such file or directory"
        )


def test_the_command_gets_the_variables_and_is_found_without_them() -> None:
    with supervise(20, "sh", "-c", "echo $TOKEN $PATH", TOKEN="s3cret", PATH="/nowhere") as process:
        assert first_line(process) == b"s3cret /nowhere\n"
        assert "s3cret" not in str(process.args)


def test_input_closed_before_the_variables_starts_no_command() -> None:
    program = [sys.executable, str(probe("supervise")), "20", "echo", "started"]
    done = subprocess.run(program, input=b"", stdout=subprocess.PIPE, check=False)
    assert done.stdout == b"\nseatrial-supervisor: not wanted any more\n"


def test_time_limit_ends_the_command_and_its_children() -> None:
    with supervise(2, "sh", "-c", "sleep 300 & echo $!; wait") as process:
        out = first_line(process)
        assert re.fullmatch(
            rb"seatrial-supervisor: time is up; \d+\.\d s of it a process waited .*",
            last_words(process),
        )
    assert not alive(int(out))


def test_closed_input_ends_the_command_and_children_in_other_sessions() -> None:
    with supervise(
        60, "sh", "-c", "setsid sh -c 'echo $$; trap \"\" TERM; sleep 300' & sleep 300"
    ) as process:
        assert process.stdout
        assert process.stdin
        hidden = int(process.stdout.readline())
        process.stdin.close()
        process.stdin = None
        assert last_words(process) == b"seatrial-supervisor: not wanted any more"
    until(lambda: not alive(hidden))


def test_supervisor_ends_orphans_of_a_finished_command() -> None:
    with supervise(60, "sh", "-c", "setsid sleep 300 >/dev/null & echo $!") as process:
        out = first_line(process)
        assert process.wait() == 0
    assert not alive(int(out))
