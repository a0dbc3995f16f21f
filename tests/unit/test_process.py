"""Which process is ended, and which never."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from seatrial.system.process import Process, children, kill_own, process

ARGUMENT = "/a/folder/of/a/run"


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", ARGUMENT]
    pipe = subprocess.PIPE
    own_session = getattr(request, "param", True)
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=own_session) as started:
        assert started.stdout
        started.stdout.readline()
        yield started
        started.kill()


@pytest.mark.parametrize("kernel", ["new", "old"])
def test_the_process_that_was_started_is_ended(
    child: "subprocess.Popen[bytes]", kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel == "old":
        monkeypatch.delattr(os, "pidfd_open")
    assert kill_own(process(child.pid), ARGUMENT)
    assert child.wait() == -9
    assert not kill_own(Process(child.pid, 1), ARGUMENT)


def test_a_later_one_with_its_id_is_not(child: "subprocess.Popen[bytes]") -> None:
    started = process(child.pid).started
    assert not kill_own(Process(child.pid, started - 1), ARGUMENT)
    assert child.poll() is None
    with pytest.raises(ProcessLookupError):
        process(2**22 + 1)


def test_one_that_was_started_with_something_else_is_not(child: "subprocess.Popen[bytes]") -> None:
    assert not kill_own(process(child.pid), "/a/folder/of/another")
    assert child.poll() is None


@pytest.mark.parametrize("child", [False], indirect=True)
def test_one_in_a_session_of_others_is_not(child: "subprocess.Popen[bytes]") -> None:
    assert not kill_own(process(child.pid), ARGUMENT)
    assert child.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees what it may end of others")
def test_one_of_another_user_is_not() -> None:
    command = ["setpriv", "--reuid=61234", "--clear-groups", "sh", "-c", "echo; read line", "sh", ARGUMENT]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as other:
        assert other.stdout
        other.stdout.readline()
        assert not kill_own(process(other.pid), ARGUMENT)
        assert other.poll() is None
        other.kill()


def test_children_are_those_that_live(child: "subprocess.Popen[bytes]") -> None:
    assert child.pid in children(os.getpid())
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie is left
    assert child.pid not in children(os.getpid())
