"""The judge's numbers are as they were."""

import json

import numpy as np

from tests.unit.judge.golden import GOLDEN, cases


def test_references_limits_and_shifts_match_the_golden_file() -> None:
    kept = json.loads(GOLDEN.read_text())
    for name, case in cases().items():
        was = kept.pop(name)
        assert case.pop("shifts") == was.pop("shifts"), name
        assert case.keys() == was.keys()
        for key, value in case.items():
            now, before = (np.array(each, dtype=float) for each in (value, was[key]))
            np.testing.assert_allclose(now, before, rtol=1e-4, atol=1e-9, err_msg=f"{name}: {key}")
    assert not kept
