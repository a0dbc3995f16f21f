"""What every platform promises, on bare metal: the tests of tests/contract, on hosts with sshd of their own."""

from collections.abc import Iterator

import pytest

from seatrial.config.run import Run
from seatrial.model.testbed import Testbed
from seatrial.platforms import Platform, platform_for
from tests.contract.promises import Promises


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
