"""The first nights: no history tells noise from nodes, so tonight's repeats and peers do."""

import numpy as np
import pytest

from seatrial.judge.fleet.first_nights import levels_of_tonight
from seatrial.judge.fleet.grouped import Grouped
from seatrial.judge.fleet.levels import SeriesHistory, levels
from seatrial.judge.fleet.peer_groups import judge_fleet
from seatrial.judge.fleet.rules import RULES
from seatrial.simulate.nights import Memory, one_night
from seatrial.simulate.noise import Draws, Noise

METRICS = 4
USUAL = Noise()


def a_new_fleet(nodes: int, noise: Noise, seed: int) -> tuple[Draws, Memory]:
    group = np.repeat(np.arange(METRICS), nodes)
    return Draws(nodes * METRICS, noise, np.random.default_rng(seed), group), Memory(group)


def caught(nodes: int, loss: float, noise: Noise = USUAL, fleets: int = 10) -> int:
    """In how many new fleets a series that is so much slower is named the first night, and nothing else is."""
    count = 0
    for seed in range(fleets):
        draws, memory = a_new_fleet(nodes, noise, seed)
        losses = np.zeros(draws.series)
        losses[7] = -np.log(1 - loss)
        night, _ = one_night(memory, draws, losses)
        assert set(np.flatnonzero(night.each.guilty)) <= {7}
        count += bool(night.each.guilty[7])
    return count


@pytest.mark.parametrize(
    ("noise", "least"),
    [(USUAL, 10), (Noise(freedom=3.0), 10), (Noise(shared=0.25), 8), (Noise(spread=0.02), 8), (Noise(tick=0.05), 9)],
    ids=["usual", "heavy tails", "of the night", "unlike nodes", "rounded"],
)
def test_a_node_that_is_20_percent_slower_is_named_the_first_night(noise: Noise, least: int) -> None:
    """Before the repeats of the night were used: 0 to 5 of 10 with unlike nodes, noise of the night and heavy tails."""
    assert caught(64, 0.2, noise) >= least


def test_10_percent_is_named_on_two_of_three_first_nights() -> None:
    """While a slow node's own value widened what nodes may differ by: on 13 of 20."""
    assert caught(64, 0.1, fleets=20) >= 14


@pytest.mark.parametrize(("nodes", "earlier", "makes_room"), [(64, 0, False), (8, 0, True), (64, 3, True)])
def test_what_a_slow_node_reads_makes_no_room_for_itself(nodes: int, earlier: int, makes_room: bool) -> None:
    """Of few nodes, and where the past speaks too, it does: that saves alarms."""
    rng = np.random.default_rng(3)
    group, level = np.zeros(nodes, dtype=np.int64), 0.01 * rng.standard_normal(nodes)
    past = level + 0.01 * rng.standard_normal((earlier, nodes))
    first, second = level + 0.01 * rng.standard_normal((2, nodes))
    unsure = []
    for loss in (0.0, 0.1):
        lost = np.where(np.arange(nodes) == 7, loss, 0.0)
        known = levels(SeriesHistory(group, past, past[:0]), first - lost, RULES)
        unsure.append(levels_of_tonight(Grouped.of(group), known, first - lost, second - lost, RULES).unsure)
    healthy, slow = unsure
    assert (slow[7] > 1.05 * healthy[7]) == makes_room
    assert (slow > healthy)[:7].all()


def test_of_eight_nodes_one_that_is_30_percent_slower_is_named_the_first_night() -> None:
    assert caught(8, 0.3) >= 9


@pytest.mark.parametrize(
    "noise",
    [USUAL, Noise(freedom=3.0), Noise(shared=0.25), Noise(spread=0.02), Noise(tick=0.05), Noise(skew=0.5)],
    ids=["usual", "heavy tails", "of the night", "unlike nodes", "rounded", "one-sided"],
)
@pytest.mark.parametrize("nodes", [8, 64])
def test_healthy_first_nights_raise_no_alarm(nodes: int, noise: Noise) -> None:
    alarms = 0
    for seed in range(6):
        draws, memory = a_new_fleet(nodes, noise, seed)
        alarms += sum(one_night(memory, draws)[0].alarm for _ in range(5))
    assert alarms == 0


def test_noise_and_what_nodes_differ_by_are_told_apart() -> None:
    """4,000 nodes that differ by 2 %, measured with 3 % normal noise: t's scale of such noise is 0.84 of it."""
    rng = np.random.default_rng(4)
    level = 0.02 * rng.standard_normal(4000)
    first, second = (level + 0.03 * rng.standard_normal(4000) for _ in range(2))
    group, none = np.zeros(4000, dtype=np.int64), np.empty((0, 4000))
    known = levels(SeriesHistory(group, none, none), first, RULES)
    tonight = levels_of_tonight(Grouped.of(group), known, first, second, RULES)
    assert tonight.scale[0] == pytest.approx(0.84 * 0.03, rel=0.08)
    assert tonight.unsure[0] == pytest.approx(0.02, rel=0.1)
    assert not tonight.shared.any()


def test_nothing_is_learned_from_repeats_of_slow_looking_nodes_alone() -> None:
    rng = np.random.default_rng(4)
    first = 0.03 * rng.standard_normal(64)
    second = np.where(first < -0.03, first + 0.001, np.nan)
    group, none = np.zeros(64, dtype=np.int64), np.empty((0, 64))
    known = levels(SeriesHistory(group, none, none), first, RULES)
    assert np.isnan(levels_of_tonight(Grouped.of(group), known, first, second, RULES).scale).all()


def test_the_example_of_the_documentation() -> None:
    """docs/verdicts.md, the first nights: eight nodes, of which one reads 630 twice."""
    one, other = [700, 690, 706, 711, 700, 690, 706, 630], [702, 694, 704, 705, 702, 694, 704, 630]
    first, second = np.log([one, other])
    nobody = np.empty((0, 8))
    past = SeriesHistory(np.zeros(8, dtype=np.int64), nobody, nobody)
    night = judge_fleet(past, first, lambda which: second[which]).each
    assert np.flatnonzero(night.guilty).tolist() == [7]
    assert np.exp(night.expected[7]) == pytest.approx(701, rel=1e-4)
    assert np.exp(night.evidence[7]) == pytest.approx(150_000, rel=0.05)
    assert np.exp(night.needed) == pytest.approx(2 * 8 / 0.0003)
