"""The rounds that are planned, and what they find, are as they were."""

import json

import pytest

from tests.unit.localize.golden import GOLDEN, cases

KEPT = json.loads(GOLDEN.read_text())


def test_no_other_case_is_kept() -> None:
    assert set(KEPT) == set(cases())


@pytest.mark.parametrize("name", KEPT)
def test_rounds_and_findings_are_as_they_were(name: str) -> None:
    assert cases()[name] == KEPT[name]
