"""What series should read, and how far chance takes them, on arrays."""

import numpy as np
import pytest

from seatrial.detection.noise import PERSISTENCE, apart_from_mean, median_of, members, shared
from seatrial.detection.readings import Floats, Past, ThisRun
from seatrial.detection.references import Reference, learn
from seatrial.detection.together import UNKNOWN_DAY

NODES = 32


def learned(
    first: Floats,
    second: Floats | None = None,
    group: Floats | None = None,
    runs: int | None = None,
) -> Reference:
    """From rows of logs (T, M), the last of which is tonight's; the runs before are all
    accepted.
    """
    second = np.full(first.shape, np.nan) if second is None else second
    median = np.where(np.isnan(second), first, (first + second) / 2)
    count = np.isfinite(first).astype(np.int64) + np.isfinite(second)
    within = np.where(np.isnan(second), 0.0, (first - second) ** 2 / 2)
    days = np.full(len(first), UNKNOWN_DAY)
    past = Past(first[:-1], second[:-1], median[:-1], within[:-1], count[:-1], count[:-1] > 0, days)
    series = first.shape[1]
    places = np.zeros(series, dtype=np.int64) if group is None else group.astype(np.int64)
    return learn(
        past,
        ThisRun(
            np.vstack([first[-1], second[-1]]),
            places,
            np.full(series, 0.25),
            np.full(series, np.log(3)),
        ),
    )


def drawn(
    rng: np.random.Generator,
    runs: int,
    series: int = NODES,
    noise: float = 0.03,
    spread: float = 0.0,
) -> Floats:
    return np.asarray(
        spread * rng.standard_normal(series) + noise * rng.standard_normal((runs + 1, series))
    )


def test_the_median_of_columns_leaves_out_what_was_not_measured() -> None:
    rows = np.array(
        [[1.0, np.nan, np.nan], [3.0, 2.0, np.nan], [8.0, 4.0, np.nan], [2.0, np.nan, np.nan]]
    )
    np.testing.assert_allclose(median_of(rows), [2.5, 3.0, np.nan])
    assert np.isnan(median_of(np.empty((0, 2)))).all()


def test_members_returns_the_series_of_each_group() -> None:
    assert [at.tolist() for at in members(np.array([1, 0, 1, 2]))] == [[1], [0, 2], [3]]
    assert members(np.array([], dtype=np.int64)) == []


@pytest.mark.parametrize("noise", [0.007, 0.03, 0.1])
def test_the_noise_of_one_reading_is_learned(noise: float) -> None:
    reference = learned(drawn(np.random.default_rng(1), 30, noise=noise))
    assert np.median(reference.noise) == pytest.approx(noise, rel=0.15)


def test_slow_node_does_not_raise_the_noise_of_its_peers() -> None:
    rows = drawn(np.random.default_rng(1), 30)
    healthy = float(np.median(learned(rows).noise))
    rows[20:, 3] -= 0.5
    assert np.median(learned(rows).noise) == pytest.approx(healthy, rel=0.1)


def test_outlier_among_equal_readings_does_not_raise_the_noise() -> None:
    rows = np.zeros((13, NODES))
    rows[-1, 5] = -0.4
    assert np.median(learned(rows).noise) < 0.01


def test_noisier_series_than_its_peers_gets_its_own_noise() -> None:
    rng = np.random.default_rng(2)
    rows = drawn(rng, 30)
    rows[:, 5] *= 4
    reference = learned(rows)
    assert reference.noise[5] > 2 * np.median(reference.noise)


def test_noise_of_a_series_is_learned_from_its_runs_without_outliers() -> None:
    readings = 0.03 * np.random.default_rng(7).standard_normal((11, 6, NODES))
    readings[..., 5] *= 3
    readings[[1, 4, 8], 0, 6] -= 1.4
    rows, tonight = readings[:-1], readings[-1]
    count = np.full((10, NODES), 6)
    within = rows.var(axis=1) * 6
    days = np.full(11, UNKNOWN_DAY)
    past = Past(
        rows[:, 0],
        rows[:, 1:].mean(axis=1),
        np.median(rows, axis=1),
        within,
        count,
        count > 0,
        days,
    )
    group = np.zeros(NODES, dtype=np.int64)
    reference = learn(past, ThisRun(tonight, group, np.full(NODES, 0.25), np.full(NODES, 1.1)))
    assert reference.noise[5] == pytest.approx(0.09, rel=0.2)
    assert reference.noise[6] < 0.05


def test_noise_of_coarsely_rounded_readings_is_not_underestimated() -> None:
    """Most differences are 0 if readings are rounded to 5 %, yet there is noise."""
    rows = np.round(drawn(np.random.default_rng(3), 30, noise=0.01) / 0.05) * 0.05
    rows += np.where(np.random.default_rng(4).random(rows.shape) < 0.1, -0.05, 0.0)
    assert learned(rows).noise.min() > 0.02


@pytest.mark.parametrize(("runs", "nearest"), [(3, 0.08), (30, 0.015)])
def test_own_past_outweighs_peers_only_after_many_runs(runs: int, nearest: float) -> None:
    """For a node 10 % off its peers, which differ by 1 %, the expectation is between both, and
    after 30 runs at its own median.
    """
    rows = drawn(np.random.default_rng(5), runs, noise=0.03, spread=0.01)
    rows[:, 7] -= 0.1
    reference = learned(rows)
    assert reference.own[7] < reference.expected[7] < reference.peers[7]
    assert reference.expected[7] - reference.own[7] < nearest


def test_a_new_series_is_expected_to_read_what_its_known_peers_do() -> None:
    rows = drawn(np.random.default_rng(6), 20, spread=0.01)
    rows[:-1, :3] = np.nan
    reference = learned(rows)
    assert reference.runs[:3].tolist() == [0, 0, 0]
    assert reference.expected[:3] == pytest.approx(np.zeros(3), abs=0.01)


@pytest.mark.parametrize(("runs", "known"), [(0, False), (1, False), (2, False), (3, True)])
def test_a_series_without_peers_has_a_reference_after_three_runs(runs: int, known: bool) -> None:
    reference = learned(drawn(np.random.default_rng(7), runs, series=1))
    assert np.isfinite(reference.expected[0]) == known


@pytest.mark.parametrize(("peers", "known"), [(3, False), (4, True)])
def test_on_the_first_night_four_peers_are_a_reference(peers: int, known: bool) -> None:
    reference = learned(drawn(np.random.default_rng(7), 0, series=peers))
    assert bool(np.isfinite(reference.expected).all()) == known


def test_peers_are_taken_from_the_same_group() -> None:
    rows = drawn(np.random.default_rng(8), 10)
    rows[:, 16:] += 1.0
    reference = learned(rows, group=np.repeat([0, 1], 16))
    assert reference.peers[:16] == pytest.approx(np.zeros(16), abs=0.03)
    assert reference.peers[16:] == pytest.approx(np.ones(16), abs=0.03)


def test_the_share_of_noise_that_all_readings_of_a_run_have_in_common_is_learned() -> None:
    """More readings tell nothing of it, so that it stays in the level."""
    levels = []
    for lasts in (0.0, 0.3, 0.9):
        rng = np.random.default_rng(9)
        of_run = 0.03 * np.sqrt(lasts) * rng.standard_normal((31, NODES))
        first, second = (
            of_run + 0.03 * np.sqrt(1 - lasts) * rng.standard_normal((31, NODES)) for _ in range(2)
        )
        reference = learned(first, second)
        levels.append(float(np.median(reference.forecast.variance[0])) / 0.03**2)
    none, some, most = levels
    assert none < 0.2 < some < most
    assert most > 0.8


def test_shift_common_to_all_peers_does_not_count_against_a_series() -> None:
    rng = np.random.default_rng(10)
    rows = drawn(rng, 30, noise=0.01)
    still = learned(rows)
    rows += 0.05 * rng.standard_normal((31, 1))
    moved = learned(rows)
    assert np.mean(moved.healthy[0] < -3) <= np.mean(still.healthy[0] < -3) + 0.01
    assert moved.together[0] > 3 * still.together[0]


def test_runs_that_were_not_accepted_are_not_learned_from() -> None:
    rows = drawn(np.random.default_rng(11), 20)
    rows[10:-1] -= 0.4
    count = np.ones(rows[:-1].shape, dtype=np.int64)
    good = np.repeat([True, False], 10)[:, None] & (count > 0)
    none = np.full(rows.shape, np.nan)
    past = Past(
        rows[:-1],
        none[:-1],
        rows[:-1],
        np.zeros(count.shape),
        count,
        good,
        np.full(len(rows), UNKNOWN_DAY),
    )
    group = np.zeros(NODES, dtype=np.int64)
    reference = learn(
        past,
        ThisRun(np.vstack([rows[-1], none[-1]]), group, np.full(NODES, 0.25), np.full(NODES, 1.1)),
    )
    assert reference.runs.tolist() == [10] * NODES
    assert np.abs(reference.expected).max() < 0.03


def test_nan_reading_that_was_not_accepted_is_ignored() -> None:
    rows = drawn(np.random.default_rng(12), 12)
    count = np.ones(rows[:-1].shape, dtype=np.int64)
    rows[10, 3] = np.nan
    none = np.full(rows.shape, np.nan)
    days = np.full(len(rows), UNKNOWN_DAY)
    past = Past(
        rows[:-1], none[:-1], rows[:-1], np.zeros(count.shape), count, np.isfinite(rows[:-1]), days
    )
    group = np.zeros(NODES, dtype=np.int64)
    reference = learn(
        past,
        ThisRun(np.vstack([rows[-1], none[-1]]), group, np.full(NODES, 0.25), np.full(NODES, 1.1)),
    )
    assert np.isfinite(reference.forecast.reading[:13]).all()


def test_lasting_loss_does_not_raise_the_persistent_noise() -> None:
    """Both readings of one series are low in each run since the loss; other series are not."""
    rng = np.random.default_rng(5)
    first, second = drawn(rng, 20), drawn(rng, 20)
    healthy = learned(first, second).forecast.variance[0]
    for rows in (first, second):
        rows[12:, 3] -= 0.06
    assert (learned(first, second).forecast.variance[0] < 1.2 * healthy).all()


def test_repeating_only_low_readings_does_not_bias_persistent_noise() -> None:
    rng = np.random.default_rng(6)
    first, rest = rng.standard_normal((400, NODES)), rng.standard_normal((400, NODES))
    count = np.where(first < -0.5, 1, 0)
    rest = np.where(count, rest, np.nan)
    within = np.where(count, (first - rest) ** 2 / 2, 0.0)
    # The mean of so many runs hardly moves
    apart, readings = np.ones(count.shape), np.full(NODES, 800)
    share, error = shared(first, rest, within, count, readings, apart, [np.arange(NODES)])
    assert np.abs(share).max() < 3 * error.max()
    lasting = np.sqrt(0.2) * rng.standard_normal((400, NODES))
    first, rest = (
        lasting + np.sqrt(0.8) * rows for rows in (first, rng.standard_normal((400, NODES)))
    )
    share, error = shared(
        first,
        rest,
        (first - rest) ** 2 / 2,
        np.ones_like(count),
        readings,
        apart,
        [np.arange(NODES)],
    )
    assert np.median(share) == pytest.approx(0.2, abs=3 * error.max())


def test_persistent_noise_is_learned_though_some_runs_have_more_readings() -> None:
    """The mean of all readings is near to the runs that were read more often."""
    rng = np.random.default_rng(7)
    runs, series, share = 16, 4000, 0.2
    lasting = np.empty((runs, series))
    lasting[0] = rng.standard_normal(series)
    for run in range(1, runs):
        lasting[run] = PERSISTENCE * lasting[run - 1] + np.sqrt(
            1 - PERSISTENCE**2
        ) * rng.standard_normal(series)
    count = np.where(np.arange(runs)[:, None] >= 12, np.full((runs, series), 12), 2)
    readings = np.sqrt(share) * lasting + np.sqrt(1 - share) * rng.standard_normal(
        (12, runs, series)
    )
    readings = np.where(np.arange(12)[:, None, None] < count, readings, np.nan)
    readings = readings - np.nanmean(readings, axis=(0, 1))
    within, rest = np.nanvar(readings, axis=0) * count, np.nanmean(readings[1:], axis=0)
    apart = apart_from_mean(count, lasts=1.0)
    every = [np.arange(series)]
    learned_share, _ = shared(
        readings[0], rest, within, count - 1, count.sum(axis=0), apart[:-1], every
    )
    assert np.median(learned_share) == pytest.approx(share, rel=0.1)
