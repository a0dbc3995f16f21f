"""A second Ctrl-C does not cut a teardown in half."""

import os
import signal
import threading

import pytest

from flows.signals import uninterrupted


def test_signals_are_ignored_meanwhile_and_heard_again_after() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_just_go_on() -> None:
    seen = []

    def work() -> None:
        with uninterrupted():
            seen.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["done"]
