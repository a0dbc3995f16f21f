"""Forecasts of runs against generalised least squares, which knows the covariance of all runs."""

import numpy as np
import pytest

from seatrial.detection.forecast import LASTING_SHARES, STARTS, Forecast, forecast
from seatrial.detection.noise import PERSISTENCE
from seatrial.detection.readings import Floats

RUNS, SERIES = 12, 5
NOISE, LASTING, SPREAD = 0.02, 0.03, 0.05


def covariance(runs: int) -> Floats:
    days = np.arange(runs)
    return np.asarray(LASTING**2 * PERSISTENCE ** np.abs(days[:, None] - days))


def drawn(rng: np.random.Generator, lasting: Floats, series: int = SERIES) -> Floats:
    """Readings (T, M) with the covariance `lasting` beside that of chance."""
    shared = rng.multivariate_normal(np.zeros(RUNS), lasting, series, method="cholesky").T
    return np.asarray(shared + NOISE * rng.standard_normal((RUNS, series)))


def forecast_of(runs: Floats, hypotheses: int = len(LASTING_SHARES)) -> Forecast:
    known, series = np.isfinite(runs), runs.shape[1]
    variance = np.where(known, NOISE**2, np.inf)
    shared = np.full((hypotheses, series), LASTING**2)
    apart = np.ones(series, dtype=bool)
    return forecast(
        np.zeros(series), np.full(series, SPREAD**2), runs, runs, variance, shared, apart
    )


def least_squares(runs: Floats, start: int) -> tuple[float, float]:
    """The change since the last `start` of these runs, and its variance, by one solution for all
    runs together.
    """
    known = np.isfinite(runs)
    # The level is part of each run
    all_runs = covariance(len(runs)) + NOISE**2 * np.eye(len(runs)) + SPREAD**2
    inverse = np.linalg.inv(all_runs[np.ix_(known, known)])
    since = (np.arange(len(runs)) >= len(runs) - start)[known].astype(float)
    information = float(since @ inverse @ since)
    return float(since @ inverse @ runs[known]) / information, 1 / information


def test_estimated_change_equals_generalised_least_squares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seatrial.detection.forecast.LASTING_SHARES", (1.0,))
    monkeypatch.setattr("seatrial.detection.forecast._CLIPPED", np.inf)
    rng = np.random.default_rng(1)
    runs = drawn(rng, covariance(RUNS))
    runs[[2, 8], 1] = np.nan
    result = forecast_of(runs, hypotheses=1)
    for start in range(1, RUNS + 1):
        for i in range(SERIES):
            change, variance = least_squares(runs[:, i], start)
            assert result.score[start, i] / result.information[start, i] == pytest.approx(
                change, abs=1e-9
            )
            assert 1 / result.information[start, i] == pytest.approx(variance)


def test_the_forecast_of_this_run_follows_from_the_covariance_of_all_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seatrial.detection.forecast.LASTING_SHARES", (1.0,))
    runs = drawn(np.random.default_rng(2), covariance(RUNS))
    all_runs = covariance(RUNS + 1) + SPREAD**2
    weights = np.linalg.solve(
        all_runs[:RUNS, :RUNS] + NOISE**2 * np.eye(RUNS), all_runs[:RUNS, RUNS]
    )
    result = forecast_of(runs, hypotheses=1)
    assert result.reading[0] == pytest.approx(weights @ runs)
    assert result.before[0] == pytest.approx(weights @ runs)
    assert result.variance[0] == pytest.approx(
        all_runs[RUNS, RUNS] - weights @ all_runs[:RUNS, RUNS]
    )


@pytest.mark.parametrize(("lasts", "varies_by"), [(1.0, 0.5), (0.0, 1.0)])
def test_share_of_noise_that_persists_between_runs_is_learned(
    lasts: float, varies_by: float
) -> None:
    """Earlier runs predict the persistent part of the noise and nothing of the part of one run."""
    lasting = lasts * covariance(RUNS) + (1 - lasts) * LASTING**2 * np.eye(RUNS)
    result = forecast_of(drawn(np.random.default_rng(3), lasting, series=200))
    sd = np.sqrt(np.median(result.variance[0])) / LASTING
    assert sd == pytest.approx(varies_by, abs=0.15)


def test_persistence_of_noise_stays_at_its_prior_after_few_runs() -> None:
    result = forecast_of(np.zeros((3, 1)))
    lasting = LASTING_SHARES[0] * LASTING**2
    assert (
        result.variance[0] > (1 - LASTING_SHARES[0]) * LASTING**2 + (1 - PERSISTENCE**2) * lasting
    )


def test_single_run_of_outliers_is_no_change() -> None:
    runs = drawn(np.random.default_rng(4), covariance(RUNS))
    runs[-4] -= 1.0
    result = forecast_of(runs)
    since = result.score[7:10] / result.information[7:10]
    assert (np.abs(since) < 4 / np.sqrt(result.information[7:10])).all()


def test_change_starts_before_the_first_run_are_nan() -> None:
    result = forecast_of(np.zeros((2, SERIES)))
    assert np.isfinite(result.reading[:3]).all()
    assert np.isnan(result.reading[3:]).all()
    assert len(result.reading) == STARTS.size
