"""The lane that runs containers by podman's Docker-compatible socket; only when it is asked for by
its path.
"""

from collections.abc import Iterator

import pytest

from tests.docker.engine import Engine, engine
from tests.e2e.conftest import console, prefect_server
from tests.images import lane

__all__ = ["console", "prefect_server"]


@pytest.fixture(scope="session")
def docker_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if reason := lane.lacking():
        pytest.skip(reason)
    with lane.alone():
        with engine(tmp_path_factory.mktemp("engine")) as started:
            yield started
        assert lane.leftovers() == []


@pytest.fixture(autouse=True)
def _nothing_left(docker_engine: Engine, nothing_left: None) -> Iterator[None]:
    """Whatever a test does, no container, network or key of a run is left."""
    yield
    left = docker_engine.objects()
    lane.clean()
    assert left == set()
