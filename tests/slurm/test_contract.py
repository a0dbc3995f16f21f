"""What every platform promises, on Slurm: the tests of tests/contract, on the nodes of a job."""

from pathlib import Path
from typing import Any

import pytest

from seatrial.config.run import Run
from tests.contract.promises import Promises
from tests.quick_run import quick_run


@pytest.fixture
def run(settings: dict[str, Any], tmp_path: Path) -> Run:
    return quick_run(tmp_path, nodes=3, platform=settings)


class TestPromises(Promises):
    """What every platform promises."""
