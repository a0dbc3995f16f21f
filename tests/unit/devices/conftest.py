"""Labs of each test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.devices.lab import Lab


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """Labs that are taken down after the test."""
    labs: list[Lab] = []

    def made(gpus: int = 0) -> Lab:
        labs.append(Lab(tmp_path, gpus))
        return labs[-1]

    yield made
    for lab in labs:
        lab.platform.teardown("run-1")


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab()
