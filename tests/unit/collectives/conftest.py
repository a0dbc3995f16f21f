"""The step `collectives` on a fake mpirun."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.collectives import check as step
from seatrial.checks.collectives import sweep
from seatrial.checks.connectivity.stages import RollCall
from seatrial.checks.contract import CheckContext, try_check
from seatrial.config.run import Run
from seatrial.model.result import Check
from seatrial.model.testbed import Testbed
from seatrial.remote.mpi_result import MpiResult
from tests.unit.collectives.fake_mpirun import Answer, FakeMpirun, make_run, make_testbed


def everybody_is_there(run: Run, testbed: Testbed) -> RollCall:
    return RollCall(testbed, (), ())


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Check]:
    """Runs the step on a fake mpirun that prints `played` for every operation."""

    def run(played: MpiResult | Answer, bed: Testbed | None = None, **asked: Any) -> Check:
        fake = FakeMpirun(played if callable(played) else lambda operation: played)
        monkeypatch.setattr(sweep, "mpirun", fake)
        monkeypatch.setattr(step, "roll_call", everybody_is_there)
        return try_check(
            step.COLLECTIVES, CheckContext(make_run(tmp_path, **asked), bed or make_testbed())
        ).check

    return run
