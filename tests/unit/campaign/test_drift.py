"""What drifts is named, and what only strays is not."""

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from seatrial.campaign.drift import LEAST_PHASES, PhaseNumbers, drift_check, mann_kendall
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.text.headline import conclude
from tests.suspects import suspect_names

NODES = 8
PHASES = 24


def _numbers(readings: NDArray[np.float64], better: str = "higher") -> PhaseNumbers:
    series = [
        Measurement(
            "matmul",
            0.0,
            "TFLOP/s",
            Subject("node", f"node-{i}"),
            better="higher" if better == "higher" else "lower",
        )
        for i in range(readings.shape[1])
    ]
    began_s = np.arange(len(readings), dtype=np.float64) * 600
    return PhaseNumbers("burn", began_s, series, readings)


def _healthy(seed: int = 1, noise: float = 0.03) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(700, 700 * noise, (PHASES, NODES)).astype(np.float64)


def _suspect_names(check: Check) -> list[str]:
    return suspect_names(check)


def test_a_node_that_slows_in_the_middle_is_named() -> None:
    readings = _healthy()
    readings[12:, 3] *= 0.85
    check = drift_check([_numbers(readings)], one_machine=False)
    assert (_suspect_names(check), check.verdict) == (["node-3"], Verdict.DEGRADED)
    assert check.suspects[0].evidence.code == "drift-found"
    sentence = conclude([check], NODES)[1].sentence
    assert re.fullmatch(
        r"node-3 \(90 % sure\): matmul on node-3 lost 1\d % from the beginning of the campaign to its "
        r"end, by chance 0\.\d+",
        sentence,
    )


def test_growing_duration_counts_as_a_loss() -> None:
    readings = _healthy()
    readings[:, 5] *= np.linspace(1, 4, PHASES)
    check = drift_check([_numbers(readings, better="lower")], one_machine=False)
    assert (_suspect_names(check), check.verdict) == (["node-5"], Verdict.FAIL)


def test_slowdown_of_all_nodes_blames_none() -> None:
    readings = np.asarray(_healthy() * np.linspace(1, 0.4, PHASES)[:, None], dtype=np.float64)
    assert drift_check([_numbers(readings)], one_machine=True).verdict is Verdict.PASS


def test_healthy_nodes_pass() -> None:
    checks = [
        drift_check([_numbers(_healthy(seed, 0.1))], one_machine=False) for seed in range(200)
    ]
    assert sum(check.verdict is not Verdict.PASS for check in checks) <= 4


def test_few_phases_are_not_judged() -> None:
    check = drift_check([_numbers(_healthy()[: LEAST_PHASES - 1])], one_machine=False)
    assert (check.verdict, check.reason.code) == (Verdict.NOT_RUN, "drift-too-few-phases")


def test_drift_is_not_run_on_minute_readings_alone() -> None:
    check = drift_check([], one_machine=False, minutes=[_numbers(_healthy())])
    assert check.verdict is Verdict.NOT_RUN


def test_a_node_without_readings_is_left_out() -> None:
    readings = _healthy()
    readings[3:, 2] = np.nan
    check = drift_check([_numbers(readings)], one_machine=False)
    assert check.verdict is Verdict.PASS
    assert len(check.judgements) == NODES - 1


def test_mann_kendall_p_value_matches_a_hand_calculation() -> None:
    readings = np.array([1.0, 3.0, 2.0, 4.0, np.nan, 6.0])
    p = mann_kendall(np.stack([readings, np.full(6, 2.0)], axis=1))
    assert p == pytest.approx([0.0864, 1.0], abs=1e-4)
