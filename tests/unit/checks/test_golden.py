"""How long parts of suites take, and what streams between nodes show, is as it was."""

from pathlib import Path

import pytest

from tests.unit.checks.golden import GOLDEN, files


def test_no_other_file_is_kept() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(files())


@pytest.mark.parametrize("path", sorted(GOLDEN.iterdir()), ids=lambda path: path.name)
def test_times_and_streams_are_as_they_were(path: Path) -> None:
    assert files()[path.name] == path.read_text()
