"""A history of passing runs, and sweeps that are repeated on a fake mpirun."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seatrial.checks.collectives import sweep
from seatrial.checks.contract import CheckContext, Repeated
from seatrial.checks.metrics import Doubt
from seatrial.checks.table import repeat_checks
from seatrial.history import open_store
from seatrial.history.store import Store
from seatrial.model.reason import Reason
from seatrial.model.result import RunResult, now
from seatrial.model.verdict import Verdict
from tests.unit.collectives.fake_mpirun import FakeMpirun, make_run, make_testbed, result, table
from tests.unit.repeats.doubts import collectives


@pytest.fixture
def store(tmp_path: Path, empty_history: Path) -> Iterator[Store]:
    """Three passing runs of 1 GB/s."""
    with open_store(f"sqlite:///{shutil.copy(empty_history, tmp_path)}") as opened:
        for number in range(3):
            at = now()
            opened.save(
                RunResult(
                    f"run-{number}",
                    "lab",
                    "quick",
                    at,
                    at,
                    Verdict.PASS,
                    Reason(),
                    checks=[collectives(1.0)],
                ),
                Path(),
            )
        yield opened


@pytest.fixture
def again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[FakeMpirun, dict[str, Repeated]]]:
    def measured(*doubts: Doubt, wrong: int = 0) -> tuple[FakeMpirun, dict[str, Repeated]]:
        fake = FakeMpirun(lambda operation: result(table(sizes=(16384,), wrong=wrong)))
        monkeypatch.setattr(sweep, "mpirun", fake)
        run = make_run(tmp_path, operations=["all_reduce", "broadcast"])
        return fake, repeat_checks(CheckContext(run, make_testbed()), {"collectives": doubts})

    return measured
