"""Processes of this machine: which is ended, signals, and a command followed like one on a node."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import paramiko
import pytest
from paramiko.common import DEFAULT_WINDOW_SIZE

from seatrial.flows.serving.signals import first_signal_alone, uninterrupted
from seatrial.model.errors import FloodError
from seatrial.remote.command import LocalProcess, RemoteProcess
from seatrial.system.process import Process, children, kill_own, process

ARGUMENT = "/a/folder/of/a/run"


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", ARGUMENT]
    pipe = subprocess.PIPE
    own_session = getattr(request, "param", True)
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, start_new_session=own_session
    ) as started:
        assert started.stdout
        started.stdout.readline()
        yield started
        started.kill()


@pytest.mark.parametrize("kernel", ["new", "old"])
def test_kill_own_ends_the_process_that_was_started(
    child: "subprocess.Popen[bytes]", kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel == "old":
        monkeypatch.delattr(os, "pidfd_open")
    assert kill_own(process(child.pid), ARGUMENT)
    assert child.wait() == -9
    assert not kill_own(Process(child.pid, 1), ARGUMENT)


def test_kill_own_spares_a_later_process_with_the_same_id(child: "subprocess.Popen[bytes]") -> None:
    started = process(child.pid).started
    assert not kill_own(Process(child.pid, started - 1), ARGUMENT)
    assert child.poll() is None
    with pytest.raises(ProcessLookupError):
        process(2**22 + 1)


def test_kill_own_spares_a_process_with_other_arguments(child: "subprocess.Popen[bytes]") -> None:
    assert not kill_own(process(child.pid), "/a/folder/of/another")
    assert child.poll() is None


@pytest.mark.parametrize("child", [False], indirect=True)
def test_kill_own_spares_a_process_that_leads_no_session(child: "subprocess.Popen[bytes]") -> None:
    assert not kill_own(process(child.pid), ARGUMENT)
    assert child.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees what it may end of others")
def test_kill_own_spares_a_process_of_another_user() -> None:
    command = [
        "setpriv",
        "--reuid=61234",
        "--clear-groups",
        "sh",
        "-c",
        "echo; read line",
        "sh",
        ARGUMENT,
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as other:
        assert other.stdout
        other.stdout.readline()
        assert not kill_own(process(other.pid), ARGUMENT)
        assert other.poll() is None
        other.kill()


def test_children_leaves_out_zombies(child: "subprocess.Popen[bytes]") -> None:
    assert child.pid in children(os.getpid())
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie is left
    assert child.pid not in children(os.getpid())


def test_uninterrupted_ignores_signals_and_restores_their_handlers() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_only_the_first_termination_signal_interrupts_a_takedown() -> None:
    """As when systemd signals all processes of a unit and the runner signals its children too."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    taken_down = []
    try:
        with pytest.raises(SystemExit, match="terminated"), first_signal_alone():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGTERM)
                taken_down.append("nodes")
        with pytest.raises(SystemExit, match="terminated"):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert taken_down == ["nodes"]


def test_uninterrupted_does_nothing_in_other_threads() -> None:
    seen = []

    def work() -> None:
        with uninterrupted():
            seen.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["done"]


ORPHAN = """
import logging, sys
from seatrial.flows.serving.signals import end_with_parent
from prefect.logging.handlers import PrefectConsoleHandler

end_with_parent()
for name in ("flow", "task"):  # each has a console of its own
    PrefectConsoleHandler(stream=sys.stderr).emit(logging.makeLogRecord({"name": name, "msg": sys.stdin.readline()}))
print("taken down")
"""


def test_a_run_goes_on_when_nobody_reads_what_it_prints() -> None:
    """Its worker was killed, and it has nodes to take down and an end to tell."""
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHAN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr
        process.stderr.close()
        output, _ = process.communicate("one\ntwo\n")
    assert (output, process.returncode) == ("taken down\n", 0)


LATE = """
import sys
from seatrial.flows.serving.signals import end_with_parent
sys.stdin.readline()  # until its parent has gone
end_with_parent()
print("goes on")
"""


@pytest.mark.parametrize(
    ("starter", "output"), [("$$", ""), ("", "goes on\n")], ids=["by a runner", "by hand"]
)
def test_run_ends_if_its_runner_exited_before_it_began(starter: str, output: str) -> None:
    """All processes of `serve` got SIGTERM while it was importing."""
    script = f'exec 3<&0; SEATRIAL_STARTED_BY={starter} "$1" -c "$2" <&3 & exit'
    process = subprocess.Popen(
        ["sh", "-c", script, "sh", sys.executable, LATE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.wait()
    assert process.communicate("\n")[0] == output


def started(script: str) -> LocalProcess:
    return LocalProcess(["sh", "-c", script], dict(os.environ), Path("/"))


def all_lines(process: LocalProcess) -> list[str]:
    lines: list[str] = []
    while (batch := process.read_lines(60)) is not None:
        lines += batch
    return lines


def test_local_process_passes_input_output_and_status() -> None:
    process = started("cat; pwd >&2; exit 7")
    process.send(b"first\nhal")
    process.send(b"f")
    process.close_stdin()
    assert all_lines(process) == ["first", "half/"]
    assert (process.exit_status(), process.received_bytes) == (7, 12)
    process.close(1)


def test_read_returns_empty_bytes_after_its_timeout() -> None:
    process = started("read line")
    assert process.read(0.01) == b""
    process.close(5)  # closed input ends it
    assert process.exit_status() is not None


def test_a_process_that_does_not_end_is_killed() -> None:
    process = started("trap '' TERM; exec 0</dev/null; echo up; while :; do sleep 0.1; done")
    assert process.read_lines(60) == ["up"]
    process.close(0.2)
    assert process.exit_status() == -9


def test_missing_program_raises_file_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        LocalProcess(["/no/such/program"], {}, Path("/"))


def test_status_of_a_lost_connection_is_no_exit_status() -> None:
    process = LocalProcess(["sh", "-c", "exit 255"], dict(os.environ), Path("/"), lost_status=255)
    assert all_lines(process) == []
    assert process.exit_status() is None
    process.close(1)


# An SSH server that sends more than its window allows is cut off: paramiko itself would keep all of
# it.


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> paramiko.Channel:
    """Open, as far as it can be without a server."""
    channel = paramiko.Channel(1)
    monkeypatch.setattr(channel, "exec_command", Mock())
    channel.transport = Mock()
    channel.active = True
    return channel


def _feed(channel: paramiko.Channel, size: int) -> None:
    """As the transport does with what arrives."""
    message = paramiko.Message()
    message.add_string(bytes(size))
    message.rewind()
    vars(paramiko.Channel)["_feed"](channel, message)


def _process(channel: paramiko.Channel) -> RemoteProcess:
    return RemoteProcess(Mock(open_session=Mock(return_value=channel)), "true")


def test_full_ssh_channel_window_is_read(channel: paramiko.Channel) -> None:
    _feed(channel, DEFAULT_WINDOW_SIZE)
    assert _process(channel).read(1) == bytes(64 * 1024)


def test_more_data_than_the_ssh_channel_window_is_a_flood(channel: paramiko.Channel) -> None:
    for _ in range(3):
        _feed(channel, DEFAULT_WINDOW_SIZE)
    with pytest.raises(FloodError, match="sends more than the window allows"):
        _process(channel).read(1)
    assert channel.closed
