"""What every platform promises, on a Docker host: the tests of tests/contract, on containers."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.testbed import Testbed
from seatrial.platforms import Platform, platform_for
from tests.conftest import RUN_PREFIX
from tests.contract.promises import Promises
from tests.docker.engine import Engine


@pytest.fixture
def run(docker_engine: Engine, tmp_path: Path) -> Run:
    described = {"name": "test", "nodes": 3, "platform": docker_engine.settings, "image": docker_engine.image}
    cluster = Cluster.model_validate(described)
    return Run(f"{RUN_PREFIX}{secrets.token_hex(4)}", cluster, load_suite("quick"), tmp_path)


@pytest.fixture
def platform(run: Run) -> Platform:
    return platform_for(run.cluster)


@pytest.fixture
def stranger(run: Run) -> Platform:
    return platform_for(run.cluster)


@pytest.fixture
def testbed(platform: Platform, run: Run) -> Iterator[Testbed]:
    try:
        yield platform.launch(run)
    finally:
        platform.teardown(run.run_id)


class TestPromises(Promises):
    """What every platform promises."""
