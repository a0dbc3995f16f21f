"""The machine of each test."""

from pathlib import Path

import pytest

from tests.unit.quick_check.machine import Machine, Probes


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Probes:
    return Probes(tmp_path, monkeypatch)
