"""Two groups of nodes by their numbers: found where they are clear, and not among healthy or broken nodes."""

import numpy as np
import pytest

from seatrial.judge.fleet.modes import find_modes, stays
from seatrial.judge.fleet.odds import Floats

NOISE = 0.03


def healthy(rng: np.random.Generator, nodes: int, freedom: float = 4.0) -> Floats:
    """The mean of two measurements with 3 % noise, on nodes that differ by 1 %."""
    taken = NOISE / np.sqrt(2) * rng.standard_t(freedom, (2, nodes))
    return np.asarray(taken.mean(axis=0) + 0.01 * rng.standard_normal(nodes), dtype=np.float64)


@pytest.mark.parametrize(("nodes", "slow"), [(16, 3), (64, 6), (64, 32), (232, 23), (232, 200)])
def test_nodes_that_are_thirty_percent_slower_together_are_a_group(nodes: int, slow: int) -> None:
    rng, detected = np.random.default_rng(nodes + slow), 0
    for _ in range(100):
        values = healthy(rng, nodes)
        values[:slow] += np.log(0.7)
        modes = find_modes(values)
        if modes is not None:
            detected += 1
            truth = np.arange(nodes) < slow
            assert (modes.slow != truth).sum() <= 2  # a stray measurement may lie between the groups
            assert modes.distance == pytest.approx(-np.log(0.7), abs=0.05)
    assert detected >= 90


@pytest.mark.parametrize("freedom", [3.0, 4.0, 1000.0])
@pytest.mark.parametrize("nodes", [6, 8, 16, 64, 232])
def test_a_healthy_fleet_is_one_group(nodes: int, freedom: float) -> None:
    rng = np.random.default_rng(7)
    assert sum(find_modes(healthy(rng, nodes, freedom)) is not None for _ in range(2000)) <= 2


@pytest.mark.parametrize("slow", [1, 2])
def test_one_or_two_slow_nodes_are_never_a_group(slow: int) -> None:
    values = healthy(np.random.default_rng(1), 20)
    values[:slow] -= 2
    assert find_modes(values) is None


def test_three_nodes_of_a_hundred_are_outliers() -> None:
    values = healthy(np.random.default_rng(1), 100)
    values[:3] -= 2
    assert find_modes(values) is None
    values[:5] = values[5:10] - 2
    assert find_modes(values) is not None


def test_nodes_that_are_slow_each_in_its_own_way_are_no_group() -> None:
    values = healthy(np.random.default_rng(1), 64)
    values[:6] -= [0.2, 0.4, 0.7, 1.1, 1.6, 2.3]
    assert find_modes(values) is None


def test_what_was_not_measured_is_in_no_slow_group() -> None:
    values = healthy(np.random.default_rng(1), 64)
    values[:6] -= 0.5
    values[[0, 40]] = np.nan
    modes = find_modes(values)
    assert modes is not None
    assert np.flatnonzero(modes.slow).tolist() == [1, 2, 3, 4, 5]
    assert find_modes(np.full(10, np.nan)) is None
    assert find_modes(np.empty(0)) is None
    assert find_modes(np.zeros(10)) is None


def nights_of(count: int, slow_since: int) -> Floats:
    rng = np.random.default_rng(2)
    nights = np.array([healthy(rng, 64) for _ in range(count)])
    nights[slow_since:, :6] += np.log(0.7)
    return nights


@pytest.mark.parametrize(
    ("count", "slow_since", "stay"), [(2, 0, False), (3, 0, True), (30, 0, True), (4, 1, False), (30, 20, False)]
)
def test_a_group_stays_if_three_nights_and_nearly_all_show_it(count: int, slow_since: int, stay: bool) -> None:
    tonight = nights_of(1, 0)[0]
    modes = find_modes(tonight)
    assert modes is not None
    assert stays(modes, nights_of(count, slow_since)) is stay
