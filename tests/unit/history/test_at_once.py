"""Many that write at once, and one that is killed while it does."""

import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

from seatrial.history import open_store
from tests.unit.history.stored import PROCESSES, open_and_save, wide


def test_processes_that_open_and_save_at_once_all_succeed(url: str) -> None:
    """Some of them the same run: the schema is made once, and each run is there once."""
    with ProcessPoolExecutor(3, PROCESSES) as pool:
        list(pool.map(open_and_save, [url] * 9, range(9)))
    with open_store(url) as store:
        assert len(store.runs()) == 6


def test_two_that_save_new_series_at_once_lose_nothing(made_url: str) -> None:
    def save(numbers: range) -> None:
        with open_store(made_url) as store:
            for number in numbers:
                store.save(wide(number), Path())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(save, [range(5), range(5, 10)]))
    with open_store(made_url) as store:
        runs = [row.run_id for row in store.runs()]
        names = [wide(0).checks[0].measurements[n].series() for n in (0, 299)]
        readings = store.readings(sorted(runs), names)
    assert len(runs) == 10
    assert readings.value.tolist() == [1.0 + number for number in range(10) for _ in range(2)]


_SAVE_FOR_EVER = """
import itertools, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from seatrial.history import open_store
from tests.unit.history.stored import wide
with open_store({url!r}) as store:
    for number in itertools.count(1):
        store.save(wide(number), Path())
        print(number, flush=True)
"""


def test_a_kill_in_the_middle_loses_at_most_the_run_that_was_being_saved(made_url: str) -> None:
    """Whatever was said to be saved is there and whole; what was being saved is there whole or not at all."""
    program = _SAVE_FOR_EVER.format(root=str(Path(__file__).parents[3]), url=made_url)
    acknowledged = 0
    for delay in (0.02, 0.05):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout
            for _ in range(3):
                acknowledged = max(acknowledged, int(process.stdout.readline()))
            time.sleep(delay)
        finally:
            process.kill()
            rest, _ = process.communicate()
        acknowledged = max([acknowledged, *(int(line) for line in rest.split("\n")[:-1])])
    with open_store(made_url) as store:
        runs = {row.run_id for row in store.runs(limit=10_000)}
        assert {f"run-{number:03}" for number in range(1, acknowledged + 1)} <= runs
        assert len(runs) <= acknowledged + 1
        for run_id in runs:
            names = [m.series() for m in wide(int(run_id[4:])).checks[0].measurements]
            assert store.readings([run_id], names).value.size == 301
        store.save(wide(0), Path())
