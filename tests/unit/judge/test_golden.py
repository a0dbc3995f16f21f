"""The judge's numbers are as they were."""

import json

import numpy as np
import pytest

from tests.unit.judge.golden import GOLDEN, cases

KEPT = json.loads(GOLDEN.read_text())


def test_no_other_case_is_kept() -> None:
    assert set(KEPT) == set(cases())


@pytest.mark.parametrize("name", KEPT)
def test_references_limits_and_shifts_are_as_they_were(name: str) -> None:
    case, kept = cases()[name], KEPT[name]
    assert case["shifts"] == kept["shifts"]
    assert case.keys() == kept.keys()
    for key in case.keys() - {"shifts"}:
        now, was = (np.array(each[key], dtype=float) for each in (case, kept))
        np.testing.assert_allclose(now, was, rtol=1e-4, atol=1e-9, err_msg=key)
