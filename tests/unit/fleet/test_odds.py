"""The odds that one measurement gives: bounded, monotone, and never more than fair on average."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge.baselines.history import from_history
from seatrial.judge.fleet.levels import SeriesHistory, levels
from seatrial.judge.fleet.odds import (
    FREEDOM,
    SCALE_PER_MAD,
    SCALE_PER_STEP,
    VARIANCE_OF_MEDIAN,
    VARIANCE_OF_MIDMEAN,
    VARIANCE_OF_PAIRS,
    Odds,
    Slowdowns,
    below,
)
from seatrial.judge.fleet.rules import RULES
from seatrial.model.measurement import Measurement, Subject

deltas = st.floats(0.5, 80)
zs = st.floats(-1e4, 1e4)


def odds(z: float, delta: float) -> float:
    return float(Slowdowns.of(np.array([delta])).log_odds(np.array([z]))[0])


def test_the_distribution_function_is_students() -> None:
    """Against tabulated quantiles of t with four degrees of freedom."""
    for t, share in ((-4.604, 0.005), (-2.776, 0.025), (0.0, 0.5), (0.741, 0.75), (2.132, 0.95), (7.173, 0.999)):
        assert below(np.array(t)) == pytest.approx(share, abs=2e-4)


def test_the_constants_are_those_of_t_noise() -> None:
    """What the code learns a scale and its uncertainty by, against drawn noise of scale 1: 20 nights, one by one or in
    means of two."""
    rng = np.random.default_rng(20261121)
    once, again = (rng.standard_t(FREEDOM, (20, 10_000)) for _ in range(2))
    night = np.zeros((1, 10_000))
    assert np.median(np.abs(once)) * SCALE_PER_MAD == pytest.approx(1, rel=0.01)
    assert np.median(np.abs(np.diff(once, axis=0))) * SCALE_PER_STEP == pytest.approx(1, rel=0.01)
    assert 20 * np.median(once, axis=0).var() == pytest.approx(VARIANCE_OF_MEDIAN, rel=0.05)
    more = (np.repeat(np.arange(20), 10_000), np.tile(np.arange(10_000), 20), again.ravel())
    alone = np.arange(10_000)
    single = levels(SeriesHistory(alone, once, night[:0]), night[0], RULES).centre.var()
    paired = levels(SeriesHistory(alone, once, night[:0], more), night[0], RULES).centre.var()
    assert 20 * single == pytest.approx(VARIANCE_OF_MIDMEAN, rel=0.05)
    assert paired / single == pytest.approx(VARIANCE_OF_PAIRS, rel=0.05)


@given(zs, st.floats(0, 100), deltas)
def test_a_worse_value_never_weighs_less(z: float, worse: float, delta: float) -> None:
    assert odds(z - worse, delta) >= odds(z, delta) - 1e-5


@pytest.mark.parametrize("delta", [0.8, 1.6, 3.0, 5.0, 10.0, 60.0])
@pytest.mark.parametrize("noise", ["t", "normal"])
def test_healthy_noise_never_gains_on_average(delta: float, noise: str) -> None:
    """The mean of the ratio is at most 1 under the noise assumed, and less under lighter tails of the same width."""
    rng = np.random.default_rng(20261121)
    z = rng.standard_t(FREEDOM, 400_000) if noise == "t" else 0.7407 / 0.6745 * rng.standard_normal(400_000)
    ratio = np.exp(Slowdowns.of(np.full(z.size, delta)).log_odds(z))
    assert ratio.mean() <= 1 + 4 * ratio.std() / np.sqrt(z.size)


def test_one_value_that_is_ten_times_too_low_is_not_proof_among_thousands() -> None:
    assert odds(-10.0, 10.0) < np.log(4000 / 0.001)
    assert 2 * odds(-10.0, 10.0) > np.log(4000 / 0.001)


def test_what_was_not_measured_says_nothing() -> None:
    assert odds(float("nan"), 5.0) == 0.0


def test_the_example_in_the_documentation_is_what_the_code_computes() -> None:
    text = (Path(__file__).parents[3] / "docs/verdicts.md").read_text()
    example = text[text.index("### Worked examples") : text.index("### Pinned")]
    sizes = Slowdowns.of(np.array(RULES.sizes) / RULES.sizes[0] * max(RULES.sizes[0] / 0.02, 1.6))

    def log_odds(value: float) -> Odds:
        return sizes.log_odds(np.full(7, np.log(value / 700) / 0.02))

    assert sizes.delta[2] == 5.25
    slow, well = float(np.exp(log_odds(630)[2])), float(np.exp(log_odds(700)[2]))
    needed = 2 * len(RULES.sizes) * 64 / RULES.false_alarms
    assert f"= 178, times {np.exp(-sizes.debt[2]):.3f} = {slow:.0f} to 1" in example
    assert f"{well:.4f} to 1" in example
    assert f"{needed / 1e6:.1f} million" in example
    assert f"= {slow**3 / 1e6:.1f} million" in example
    assert slow**2 < needed < slow**3
    cleared = log_odds(630) + 2 * log_odds(700)
    assert int(np.argmax(cleared)) == 0
    assert f"3.5 %, at {np.exp(cleared.max()):.2f} to 1" in example
    assert cleared.max() < RULES.doubtful_alone < (log_odds(630) + log_odds(700)).max()
    few = from_history(Measurement("busbw_plateau", 0.11, "GB/s", Subject("cluster", "lab")), [0.50, 0.52, 0.48])
    assert few is not None
    assert few.low == pytest.approx(0.198, abs=5e-4)
    assert few.floor == pytest.approx(0.099, abs=5e-4)
