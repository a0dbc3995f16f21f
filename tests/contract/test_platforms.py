"""What every platform promises, on each one that needs no settings."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.testbed import Testbed
from seatrial.platforms import Platform, platforms
from tests.conftest import RUN_PREFIX
from tests.contract.promises import Promises

# What a cluster file of each platform needs beyond its name and nodes.
SETTINGS: dict[str, dict[str, Any]] = {"local": {"platform": {"kind": "local"}}}


@pytest.fixture(params=sorted(platforms()))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def platform(kind: str) -> Platform:
    platform = platforms()[kind]
    if lacking := platform.missing():
        pytest.skip("; ".join(lacking))
    return platform


@pytest.fixture
def stranger(platform: Platform) -> Platform:
    """The same platform, as another process sees it: with nothing in memory."""
    return type(platform)()


@pytest.fixture
def run(kind: str, tmp_path: Path) -> Run:
    cluster = Cluster.model_validate({"name": "test", "nodes": 3, **SETTINGS[kind]})
    return Run(f"{RUN_PREFIX}{secrets.token_hex(4)}", cluster, load_suite("quick"), tmp_path)


@pytest.fixture
def testbed(platform: Platform, run: Run, nothing_left: None) -> Iterator[Testbed]:
    try:
        yield platform.launch(run)
    finally:
        platform.teardown(run.run_id)


def test_every_platform_has_settings_here() -> None:
    assert set(SETTINGS) == set(platforms())


class TestPromises(Promises):
    """On local nodes."""
