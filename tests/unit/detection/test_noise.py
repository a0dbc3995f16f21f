"""The location of readings, without gross errors."""

import numpy as np
import pytest

from seatrial.detection.noise import accepted_runs, hodges_lehmann, locations, scatters

SEED = 20261130


def walsh_median(values: np.ndarray) -> float:
    """The median of the means of all pairs."""
    pairs = [(values[i] + values[j]) / 2 for i in range(len(values)) for j in range(i, len(values))]
    return float(np.median(pairs))


@pytest.mark.parametrize("readings", [4, 6, 8, 24])
def test_no_reading_of_normal_noise_is_a_gross_error(readings: int) -> None:
    """Of six normal readings, one in a hundred lies ten standard deviations by their median
    distance from the others.
    """
    columns = np.random.default_rng(SEED).standard_normal((readings, 2000))
    plain = [walsh_median(column) for column in columns.T]
    found = hodges_lehmann(columns, np.ones(2000))
    assert found == pytest.approx(plain)


@pytest.mark.parametrize("known", [0.01, np.nan])
def test_two_outliers_of_six_readings_do_not_move_the_location(known: float) -> None:
    readings = np.array([[0.004], [-1.4], [-0.012], [0.009], [-1.3], [-0.002]])
    located = hodges_lehmann(readings, np.array([known]))
    assert located == pytest.approx([walsh_median(readings[[0, 2, 3, 5], 0])])


def test_readings_that_scatter_in_one_run_are_no_gross_errors() -> None:
    """A slow node whose readings are 65 to 75 % too low, with a noise of 0.7 % before."""
    readings = np.log([[0.35], [0.25], [0.31], [0.28], [0.33], [0.27]])
    located = hodges_lehmann(readings, np.array([0.007]))
    assert located == pytest.approx([walsh_median(readings[:, 0])])


def test_rounded_readings_that_are_mostly_equal_hold_no_gross_error() -> None:
    readings = np.array([[1.0], [1.0], [1.0], [1.05], [1.05]])
    assert hodges_lehmann(readings, np.array([np.nan])) == pytest.approx([1.025])


def test_locations_and_scatters_are_right_for_series_of_different_length() -> None:
    in_turn = np.array([1.0, 2.0, 9.0, 4.0, 1.0, 2.0, 3.0, 5.0])
    start, count = np.array([0, 3, 3, 3]), np.array([3, 1, 0, 5])
    located = locations(in_turn, start, count, np.full(4, np.nan))
    assert located == pytest.approx([2.0, 4.0, np.nan, 3.0], nan_ok=True)
    scatter = scatters(in_turn, start, count)
    assert scatter == pytest.approx([np.nan, np.nan, np.nan, 1.4826], nan_ok=True)


@pytest.mark.parametrize(
    "good, count, expected",
    [
        ([1, 0, 1], [1, 1, 1], [1, 1, 1]),
        ([1, 0, 1], [1, 2, 6], [1, 1, 1]),
        ([1, 0, 1], [1, 3, 1], [1, 0, 1]),
        ([1, 0, 0], [1, 1, 1], [1, 0, 0]),
        ([1, 0, 0, 1], [1, 1, 1, 1], [1, 0, 0, 1]),
        ([1, 0, 1], [1, 0, 1], [1, 0, 1]),
        ([0], [1], [0]),
        ([], [], []),
    ],
)
def test_low_runs_are_learned_from_only_between_good_ones(
    good: list[int], count: list[int], expected: list[int]
) -> None:
    accepted = accepted_runs(np.array([good], dtype=bool).T, np.array([count]).T)
    assert accepted[:, 0].tolist() == [bool(one) for one in expected]
