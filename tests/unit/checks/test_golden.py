"""How long parts of suites take, and what streams between nodes show, is as it was."""

from tests.unit.checks.golden import GOLDEN, files


def test_files_of_times_and_streams_match_the_golden_files() -> None:
    assert files() == {path.name: path.read_text() for path in GOLDEN.iterdir()}
