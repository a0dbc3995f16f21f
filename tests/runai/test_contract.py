"""What every platform promises, on RunAI: the tests of tests/contract, on nodes that the stand-in makes."""

from collections.abc import Iterator

import pytest

from seatrial.config.run import Run
from seatrial.model.testbed import Testbed
from seatrial.platforms import Platform, platform_for
from tests.contract.promises import Promises
from tests.runai.conftest import Project


@pytest.fixture
def platform(run: Run) -> Platform:
    return platform_for(run.cluster)


@pytest.fixture
def stranger(run: Run) -> Platform:
    return platform_for(run.cluster)


@pytest.fixture
def testbed(platform: Platform, run: Run, project: Project) -> Iterator[Testbed]:
    try:
        yield platform.launch(run)
    finally:
        platform.teardown(run.run_id)


class TestPromises(Promises):
    """What every platform promises."""
