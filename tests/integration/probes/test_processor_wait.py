"""What others take of the processors is no part of a measurement where one machine plays all
nodes.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.integration.probes.conftest import Load

BUSY = "print(flush=True)\nwhile True: pass"


def work() -> None:
    """About 0.2 s of one processor, however long it takes."""
    ends = time.thread_time() + 0.2
    while time.thread_time() < ends:
        pass


@pytest.fixture
def one_processor_for_four() -> Iterator[None]:
    """This thread shares one processor with three that never rest."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})  # which those inherit
    others = [
        subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) for _ in range(3)
    ]
    try:
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()  # it has begun
        yield
    finally:
        for other in others:
            other.kill()
            other.communicate()
        os.sched_setaffinity(0, before)


def test_the_wait_for_a_processor_is_subtracted(load: Load, one_processor_for_four: None) -> None:
    probe = load("processor_wait")
    began = time.perf_counter()
    own = probe.own_seconds(work)
    assert time.perf_counter() - began > 0.4  # the work had less than half of the processor
    assert 0.15 < own < 0.3


def test_own_clock_does_not_advance_while_waiting_for_a_processor(
    load: Load, one_processor_for_four: None
) -> None:
    clock = load("processor_wait").own_clock_s
    first, began = clock(), time.perf_counter()
    work()
    assert time.perf_counter() - began > 0.4
    assert 0.15 < clock() - first < 0.3


def test_a_sleep_is_no_wait_for_a_processor(load: Load) -> None:
    assert load("processor_wait").own_seconds(lambda: time.sleep(0.2)) > 0.15


def test_cpu_throttling_by_a_cgroup_limit_is_not_subtracted(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = load("processor_wait")
    throttled = iter([0, 100_000])
    monkeypatch.setattr(probe, "throttled_us", lambda: next(throttled))
    waited = iter([{"1": 0.0}, {"1": 0.19}])
    monkeypatch.setattr(probe, "waited_s", lambda: next(waited, {}))
    assert probe.own_seconds(lambda: time.sleep(0.2)) >= 0.2


def test_a_process_that_has_ended_has_no_wait(load: Load) -> None:
    assert load("processor_wait").waited_s(2**22 + 1) == {}
