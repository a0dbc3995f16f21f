"""The rounds that are planned, and what they find, are as they were."""

import json

from tests.unit.localize.golden import GOLDEN, cases


def test_rounds_and_findings_match_the_golden_file() -> None:
    assert cases() == json.loads(GOLDEN.read_text())
