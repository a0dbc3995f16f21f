"""What every platform promises, on Slurm: the tests of tests/contract, on the nodes of a job."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.testbed import Testbed
from seatrial.platforms import Platform, platform_for
from tests.conftest import RUN_PREFIX
from tests.contract.promises import Promises


@pytest.fixture
def run(settings: dict[str, Any], tmp_path: Path) -> Run:
    cluster = Cluster.model_validate({"name": "test", "nodes": 3, "platform": settings})
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
