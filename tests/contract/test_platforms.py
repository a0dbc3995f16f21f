"""What every platform promises, on the one that needs no cluster."""

from pathlib import Path

import pytest

from seatrial.config.run import Run
from seatrial.platforms import Platform, local_platform
from tests.contract.promises import Promises
from tests.quick_run import quick_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    if lacking := local_platform().missing():
        pytest.skip("; ".join(map(str, lacking)))
    return quick_run(tmp_path, nodes=3, platform={"kind": "local"})


class TestPromises(Promises):
    """On local nodes."""

    @pytest.fixture
    def stranger(self, platform: Platform) -> Platform:
        return type(platform)()
