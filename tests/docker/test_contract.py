"""What every platform promises, on a Docker host: the tests of tests/contract, on containers."""

from pathlib import Path

import pytest

from seatrial.config.run import Run
from tests.contract.promises import Promises
from tests.docker.engine import Engine
from tests.quick_run import quick_run


@pytest.fixture
def run(docker_engine: Engine, tmp_path: Path) -> Run:
    return quick_run(tmp_path, nodes=3, platform=docker_engine.settings, image=docker_engine.image)


class TestPromises(Promises):
    """What every platform promises."""
