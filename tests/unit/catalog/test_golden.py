"""What is expected without an earlier run is as it was."""

from tests.unit.catalog.golden import GOLDEN, lines


def test_expectations_match_the_golden_file() -> None:
    assert list(lines()) == GOLDEN.read_text().splitlines()
