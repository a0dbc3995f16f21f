"""Noise that is not kind: it lasts for nights, is a node's own, moves all together, or is rounded away."""

import numpy as np
import pytest

from seatrial.judge.fleet.grouped import Grouped
from seatrial.judge.fleet.night_noise import louder_than_peers, noise_by_nights
from seatrial.judge.fleet.odds import Floats
from seatrial.judge.fleet.peer_groups import Verdicts
from seatrial.judge.fleet.rules import RULES
from seatrial.judge.fleet.slow_noise import slow_variance
from seatrial.simulate.nights import Memory, one_night
from seatrial.simulate.noise import Draws, Noise

NODES, METRICS = 64, 4
GROUP = np.repeat(np.arange(METRICS), NODES)
SD = 0.03


def a_fleet(noise: Noise, seed: int, nights: int = 30) -> tuple[Draws, Memory]:
    draws, memory = Draws(NODES * METRICS, noise, np.random.default_rng(seed), GROUP), Memory(GROUP)
    for _ in range(nights):
        night = draws.night()
        memory.keep(draws.measure(night), (np.arange(draws.series), draws.measure(night)), passed=True)
    return draws, memory


def healthy_nights(noise: Noise, fleets: int = 4, nights: int = 3) -> list[Verdicts]:
    verdicts = []
    for seed in range(fleets):
        draws, memory = a_fleet(noise, seed)
        verdicts += [one_night(memory, draws)[0] for _ in range(nights)]
    return verdicts


@pytest.mark.parametrize(
    "noise",
    [
        Noise(slow=0.1),
        Noise(slow=0.25),
        Noise(walk=0.002),
        Noise(common=0.01),
        Noise(loud=0.02),
        Noise(tick=0.05),
        Noise(sd=0.01, spread=0.005, tick=0.05),
    ],
    ids=["10 % lasts", "25 % lasts", "random walk", "all drift together", "loud nodes", "rounded", "rounded, quiet"],
)
def test_healthy_nights_of_unkind_noise_raise_no_alarm(noise: Noise) -> None:
    """Each of these blamed somebody in 8 to 100 of 100 nights while noise was taken from steps between nights alone."""
    assert sum(night.alarm for night in healthy_nights(noise)) == 0


@pytest.mark.parametrize(
    "noise", [Noise(slow=0.05), Noise(walk=0.002), Noise(common=0.01), Noise(loud=0.02), Noise(tick=0.01)]
)
def test_a_slow_node_is_still_found_the_same_night(noise: Noise) -> None:
    caught = []
    for seed in range(6):
        draws, memory = a_fleet(noise, 50 + seed)
        loss = np.zeros(draws.series)
        loss[5 + 64 * (seed % METRICS)] = -np.log(0.85)
        verdicts, _ = one_night(memory, draws, loss)
        caught.append(np.flatnonzero(verdicts.each.guilty).tolist() == np.flatnonzero(loss).tolist())
    assert all(caught)


def nights_of(noise: Noise, count: int, seed: int = 1) -> tuple[Floats, Floats, Draws]:
    """The first and the second measurement of some nights."""
    draws = Draws(NODES * METRICS, noise, np.random.default_rng(seed), GROUP)
    pairs = []
    for _ in range(count):
        night = draws.night()
        pairs.append((draws.measure(night), draws.measure(night)))
    return np.array([first for first, _ in pairs]), np.array([second for _, second in pairs]), draws


def slow_share(noise: Noise, seed: int = 1) -> float:
    """Of the variance of one measurement, what the judge takes to last."""
    first, second, _ = nights_of(noise, 30, seed)
    means, at = (first + second) / 2, Grouped.of(GROUP)
    own, scale = means[:20].mean(axis=0), noise_by_nights(first, at)[0]
    return float(np.median(slow_variance(means[:20], means[20:], own, scale, at, RULES))) / noise.sd**2


def test_the_share_that_lasts_is_learned() -> None:
    """Half as much again is assumed of tonight, which is farther from the reference than its blocks from each other."""
    none, tenth, quarter = (slow_share(Noise(slow=share)) for share in (0.0, 0.1, 0.25))
    assert none < 0.03
    assert 0.07 < tenth < 0.25
    assert 0.2 < quarter < 0.6


def test_one_faulty_node_does_not_make_the_noise_of_all() -> None:
    first, second, _ = nights_of(Noise(), 30)
    at, means = Grouped.of(GROUP), (first + second) / 2
    scale = noise_by_nights(first, at)[0]

    def of(nights: Floats) -> Floats:
        return slow_variance(nights[:20], nights[20:], means[:20].mean(axis=0), scale, at, RULES)

    faulty = means.copy()
    faulty[20:, [3, 70]] -= 0.3
    assert of(faulty) == pytest.approx(of(means), rel=0.25)


def test_what_all_peers_do_together_is_nobodys_own() -> None:
    first, second, _ = nights_of(Noise(common=0.05), 30)
    at, means = Grouped.of(GROUP), (first + second) / 2
    scale = noise_by_nights(first, at)[0]
    together = slow_variance(means[:20], means[20:], means[:20].mean(axis=0), scale, at, RULES)
    assert together.max() < 0.1 * 0.05**2


def drifting(nights: int, rng: np.random.Generator) -> Floats:
    """Four series without peers: an AR(1) with 0.9 and a standard deviation of 1 %."""
    rows = [0.01 * rng.standard_normal(4)]
    for _ in range(nights - 1):
        rows.append(0.9 * rows[-1] + 0.01 * np.sqrt(1 - 0.9**2) * rng.standard_normal(4))
    return np.array(rows)


def test_a_series_without_peers_is_given_the_distance_that_it_drifts() -> None:
    """Blocks of 20 nights show a third of it: half as much again, as among peers, is half of what it takes."""
    rng, at = np.random.default_rng(1), Grouped.of(np.arange(4))
    given, needed = [], []
    for _ in range(300):
        nights = drifting(31, rng) + 0.003 * rng.standard_normal((31, 4))
        good, recent, tonight = nights[:20], nights[20:30], nights[30]
        own = good.mean(axis=0)
        given.append(slow_variance(good, recent, own, np.full(4, 0.004), at, RULES))
        needed.append((tonight - own) ** 2)
    assert 1 < np.mean(given) / np.mean(needed) < 1.3


@pytest.mark.parametrize(("common", "seed"), [(0.01, 345), (0.01, 458), (0.02, 91)])
def test_fleets_that_drift_together_are_not_blamed_for_it(common: float, seed: int) -> None:
    """Each of these was, while a whole fleet was given no more than what its blocks of nights show."""
    draws, memory = a_fleet(Noise(common=common), seed)
    assert not any(one_night(memory, draws)[0].alarm for _ in range(5))


@pytest.mark.parametrize("common", [0.0, 0.01])
def test_a_fleet_that_slows_down_as_one_is_still_blamed(common: float) -> None:
    """5 % at once in a kind fleet; 15 % in one that drifts."""
    draws, memory = a_fleet(Noise(common=common), 7)
    loss = np.where(np.arange(draws.series) < NODES, -np.log(1 - (0.15 if common else 0.05)), 0.0)
    verdicts, _ = one_night(memory, draws, loss)
    assert verdicts.fleet.guilty.tolist() == [True, False, False, False]


def test_a_node_that_is_louder_than_its_peers_is_known_by_its_reference_nights() -> None:
    first, second, draws = nights_of(Noise(loud=0.03), 20)
    at = Grouped.of(GROUP)
    factor = louder_than_peers(first, second, noise_by_nights(first, at)[0], at)
    loud = draws.loudness > 1
    assert 2 < np.median(factor[loud]) < 3.5
    assert np.median(factor[~loud]) < 1.05
    assert factor.min() == 1.0


@pytest.mark.parametrize(("tick", "least"), [(0.05, 0.025), (0.1, 0.05)])
def test_rounded_readings_have_the_noise_of_their_unit(tick: float, least: float) -> None:
    """Most steps are 0 there, which is no reading without noise."""
    first, _, _ = nights_of(Noise(sd=0.005, spread=0.0, tick=tick), 20)
    first += np.log1p(np.random.default_rng(2).choice([0, -tick], first.shape, p=[0.8, 0.2]))
    scale, _ = noise_by_nights(first, Grouped.of(GROUP))
    assert least <= scale.min()
    assert scale.max() < 2 * tick


def test_a_group_of_very_many_series_is_sampled() -> None:
    group = np.repeat([0, 1], [10_000, 5])
    some = Grouped.of(group).sample(2000)
    assert len(some) <= 2005
    assert set(group[some]) == {0, 1}
    assert set(range(10_000, 10_005)) <= set(some.tolist())
