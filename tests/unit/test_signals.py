"""A second Ctrl-C does not cut a teardown in half, nor does a worker that was killed."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from flows.serving.signals import first_signal_alone, uninterrupted


def test_signals_are_ignored_meanwhile_and_heard_again_after() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_second_signal_is_the_same_wish() -> None:
    """As where a unit's processes and a runner's are told to end at once."""
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


def test_other_threads_just_go_on() -> None:
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
from flows.serving.signals import end_with_parent
from prefect.logging.handlers import PrefectConsoleHandler

end_with_parent()
for name in ("flow", "task"):  # each has a console of its own
    PrefectConsoleHandler(stream=sys.stderr).emit(logging.makeLogRecord({"name": name, "msg": sys.stdin.readline()}))
print("taken down")
"""


def test_a_run_goes_on_when_nobody_reads_what_it_prints() -> None:
    """Its worker was killed, and it has nodes to take down and an end to tell."""
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr
        process.stderr.close()
        output, _ = process.communicate("one\ntwo\n")
    assert (output, process.returncode) == ("taken down\n", 0)
