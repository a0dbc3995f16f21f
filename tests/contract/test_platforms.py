"""What every platform promises, on each one that needs no settings."""

from pathlib import Path
from typing import Any

import pytest

from seatrial.config.run import Run
from seatrial.platforms import Platform, platforms
from tests.contract.promises import Promises
from tests.quick_run import quick_run

# What a cluster file of each platform needs beyond its name and nodes.
SETTINGS: dict[str, dict[str, Any]] = {"local": {"platform": {"kind": "local"}}}


@pytest.fixture(params=sorted(platforms()))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    if lacking := platforms()[request.param].missing():
        pytest.skip("; ".join(map(str, lacking)))
    return quick_run(tmp_path, nodes=3, **SETTINGS[request.param])


def test_every_platform_has_settings_here() -> None:
    assert set(SETTINGS) == set(platforms())


class TestPromises(Promises):
    """On local nodes."""

    @pytest.fixture
    def stranger(self, platform: Platform) -> Platform:
        return type(platform)()
