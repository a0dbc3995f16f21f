"""What people read of a run is as it was."""

from tests.unit.report.golden import GOLDEN, files


def test_rendered_reports_match_the_golden_files() -> None:
    assert files() == {path.name: path.read_text() for path in GOLDEN.iterdir()}
