"""The loss that a run says it would have found is found about as often as it says."""

from copy import deepcopy

import numpy as np
import pytest

from seatrial.judge.fleet.detectable import POWER, detectable
from seatrial.simulate.nights import Memory, one_night
from seatrial.simulate.noise import Draws, Noise

METRICS = 4
USUAL = Noise()


def a_fleet(nodes: int, nights: int, noise: Noise, seed: int) -> tuple[Draws, Memory]:
    """With so many nights behind it, in which everything was measured twice."""
    group = np.repeat(np.arange(METRICS), nodes)
    draws, memory = Draws(group.size, noise, np.random.default_rng(seed), group), Memory(group)
    everything = np.arange(group.size)
    for _ in range(nights):
        common = draws.night()
        memory.keep(draws.measure(common), (everything, draws.measure(common)), passed=True)
    return draws, memory


def found_and_size(nodes: int, nights: int, noise: Noise = USUAL, fleets: int = 10) -> tuple[float, float]:
    """The share that is found of losses of the size that a healthy run of the same night names, and that size."""
    detected, sizes = [], []
    for seed in range(fleets):
        draws, memory = a_fleet(nodes, nights, noise, seed)
        each = one_night(deepcopy(memory), deepcopy(draws))[0].each
        size = detectable(each, memory.group)
        for slow in draws.rng.choice(draws.series, 3, replace=False):
            losses = np.where(np.arange(draws.series) == slow, size, 0.0)
            verdicts, _ = one_night(deepcopy(memory), deepcopy(draws), losses)
            detected.append(bool(verdicts.each.guilty[slow]))
        sizes.append(float(1 - np.exp(-np.median(size))))
    return float(np.mean(detected)), float(np.median(sizes))


@pytest.mark.parametrize(
    ("nights", "noise"),
    [(0, USUAL), (4, USUAL), (8, USUAL), (30, USUAL), (30, Noise(shared=0.25)), (30, Noise(sd=0.01, spread=0.003))],
    ids=["first night", "fifth night", "ninth night", "a month", "noise of the night", "little noise"],
)
def test_of_64_nodes(nights: int, noise: Noise) -> None:
    share, _ = found_and_size(64, nights, noise)
    assert share >= POWER - 0.15


@pytest.mark.parametrize("nights", [0, 8, 30])
def test_of_eight_nodes(nights: int) -> None:
    """On their first night even the noise is told by eight numbers, and the loss is a guess."""
    share, _ = found_and_size(8, nights)
    assert (POWER - 0.15 if nights else 0.5) <= share


def test_half_of_the_loss_is_hardly_ever_found() -> None:
    draws, memory = a_fleet(64, 30, USUAL, seed=1)
    size = detectable(one_night(deepcopy(memory), deepcopy(draws))[0].each, memory.group)
    verdicts, _ = one_night(memory, draws, np.where(np.arange(draws.series) % 16 == 0, size / 2, 0.0))
    assert verdicts.each.guilty.sum() <= 2


def test_nights_and_peers_make_it_smaller_and_noise_larger() -> None:
    few, many = found_and_size(64, 0, fleets=4)[1], found_and_size(64, 30, fleets=4)[1]
    alone, loud = found_and_size(8, 30, fleets=4)[1], found_and_size(64, 30, Noise(sd=0.06), fleets=4)[1]
    assert many < alone < few
    assert many < few / 1.5
    assert loud == pytest.approx(2 * many, rel=0.2)


def test_what_nobody_can_judge_has_none() -> None:
    draws, memory = a_fleet(2, 1, USUAL, seed=1)
    assert np.isnan(detectable(one_night(memory, draws)[0].each, memory.group)).all()
