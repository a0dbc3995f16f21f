"""What people read of a run is as it was."""

from pathlib import Path

import pytest

from tests.unit.report.golden import GOLDEN, files


def test_no_other_file_is_kept() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(files())


@pytest.mark.parametrize("path", sorted(GOLDEN.iterdir()), ids=lambda path: path.name)
def test_what_people_read_is_as_it_was(path: Path) -> None:
    assert files()[path.name] == path.read_text()
