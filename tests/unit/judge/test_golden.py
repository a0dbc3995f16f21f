"""The judge's numbers are as they were."""

import json
from typing import Any

import numpy as np
import pytest

from tests.unit.judge.golden import GOLDEN, cases

KEPT = json.loads(GOLDEN.read_text())


def test_no_other_case_is_kept() -> None:
    assert set(KEPT) == set(cases())


@pytest.mark.parametrize(("name", "case"), cases().items())
def test_references_limits_and_shifts_are_as_they_were(name: str, case: dict[str, Any]) -> None:
    assert case.pop("shifts") == KEPT[name].pop("shifts")
    assert case.keys() == KEPT[name].keys()
    for key, value in case.items():
        now, was = (np.array(each, dtype=float) for each in (value, KEPT[name][key]))
        np.testing.assert_allclose(now, was, rtol=1e-4, atol=1e-9, err_msg=key)
