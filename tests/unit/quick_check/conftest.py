"""The machine of each test."""

from pathlib import Path

import pytest

from tests.unit.quick_check.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
