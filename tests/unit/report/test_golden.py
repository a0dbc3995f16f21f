"""What people read of a run is as it was."""

from tests.unit.report.golden import GOLDEN, files


def test_what_people_read_is_as_it_was() -> None:
    assert files() == {path.name: path.read_text() for path in GOLDEN.iterdir()}
