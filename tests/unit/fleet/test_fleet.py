"""The judge of fleets: what it finds, whom it leaves alone, and what may not matter to it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.judge.fleet.grouped import Ints
from seatrial.judge.fleet.levels import SeriesHistory
from seatrial.judge.fleet.night import judge_night, lowest
from seatrial.judge.fleet.odds import Floats
from seatrial.judge.fleet.past import choose
from seatrial.judge.fleet.peer_groups import judge_fleet
from seatrial.judge.fleet.rules import RULES
from seatrial.judge.fleet.suspicion import worth_taking
from seatrial.simulate.nights import Memory, one_night
from seatrial.simulate.noise import Draws, Noise

NODES = 16
seeds = st.integers(0, 10_000)


def a_fleet(seed: int = 1, nodes: int = NODES, nights: int = 30, metrics: int = 2) -> tuple[Draws, Memory]:
    draws = Draws(nodes * metrics, Noise(), np.random.default_rng(seed))
    memory = Memory(np.repeat(np.arange(metrics), nodes))
    for _ in range(nights):
        night = draws.night()
        memory.keep(draws.measure(night), (np.arange(draws.series), draws.measure(night)), passed=True)
    return draws, memory


def slow(draws: Draws, series: int | slice, share: float) -> Floats:
    loss = np.zeros(draws.series)
    loss[series] = -np.log(1 - share)
    return loss


def test_a_healthy_night_blames_nobody_and_a_slow_node_is_found_the_same_night() -> None:
    draws, memory = a_fleet()
    assert not one_night(memory, draws)[0].alarm
    verdicts, _ = one_night(memory, draws, slow(draws, 5, 0.1))
    assert np.flatnonzero(verdicts.each.guilty).tolist() == [5]
    assert verdicts.each.size[5] == pytest.approx(0.105, abs=0.05)
    assert verdicts.each.repeats[5] > 2
    assert not verdicts.fleet.guilty.any()


def test_the_first_night_has_only_peers_to_go_by() -> None:
    draws, memory = a_fleet(nights=0)
    verdicts, _ = one_night(memory, draws, slow(draws, 3, 0.15))
    assert np.flatnonzero(verdicts.each.guilty).tolist() == [3]


def test_few_nodes_without_a_past_are_not_judged() -> None:
    draws, memory = a_fleet(nodes=4, nights=7)
    verdicts, _ = one_night(memory, draws, slow(draws, 3, 0.5))
    assert not verdicts.each.judged.any()
    assert not verdicts.alarm


@pytest.mark.parametrize("place", [0, 2])
def test_a_new_node_among_few_is_not_held_against_them_and_they_are_judged_as_ever(place: int) -> None:
    """Three nodes, two of which have a past: nobody can tell what the third should read."""
    rng = np.random.default_rng(1)
    good = 0.02 * rng.standard_normal((20, 3))
    good[:, place] = np.nan
    tonight = np.full(3, 0.0)
    tonight[[place, 1]] = -0.15, -0.5
    past = SeriesHistory(np.zeros(3, dtype=np.int64), good, np.empty((0, 3)))
    verdicts = judge_fleet(past, tonight, lambda which: tonight[which])
    assert np.flatnonzero(verdicts.each.guilty).tolist() == [1]
    assert np.flatnonzero(~verdicts.each.judged).tolist() == [place]
    assert not verdicts.each.doubtful[place]


def test_a_fleet_that_slows_down_together_is_no_nodes_fault() -> None:
    draws, memory = a_fleet()
    nights = [one_night(memory, draws, slow(draws, slice(0, NODES), 0.15))[0] for _ in range(2)]
    assert not any(night.each.guilty.any() for night in nights)
    verdicts = nights[-1]
    assert verdicts.fleet.guilty.tolist() == [True, False]
    assert verdicts.each.shift[0] == pytest.approx(np.log(0.85), abs=0.03)


def test_new_software_that_moves_everybody_blames_no_node_whichever_way_it_moves() -> None:
    for share in (0.08, -0.08):
        draws, memory = a_fleet()
        for _ in range(3):
            verdicts, _ = one_night(memory, draws, slow(draws, slice(0, NODES), share), software=1)
            assert not verdicts.each.guilty.any()
            assert memory.past(software=1).renewed


def test_what_was_repaired_is_not_blamed_for_yesterday() -> None:
    draws, memory = a_fleet()
    one_night(memory, draws, slow(draws, 5, 0.1))
    one_night(memory, draws, slow(draws, 5, 0.1))
    assert not one_night(memory, draws)[0].alarm


def test_evidence_adds_up_over_nights() -> None:
    """Without repeats: one night's 10 % may be chance, a week of it is not."""
    draws, memory = a_fleet(nights=20)
    caught = []
    for _ in range(7):
        first = draws.measure(draws.night(), loss=slow(draws, 5, 0.1))
        caught.append(judge_night(memory.past(), first).guilty)
        memory.keep(first, (np.empty(0, dtype=np.int64), np.empty(0)), passed=True)
    assert not caught[0].any()
    assert np.flatnonzero(caught[-1]).tolist() == [5]


def test_repeats_that_all_say_the_same_are_learned_to_say_little() -> None:
    """Where the whole noise is the night's, measuring again proves nothing."""
    rng = np.random.default_rng(3)
    draws = Draws(64, Noise(shared=0.9), rng)
    memory = Memory(np.zeros(64, dtype=np.int64))
    for _ in range(30):
        night = draws.night()
        memory.keep(draws.measure(night), (np.arange(64), draws.measure(night)), passed=True)
    verdicts, _ = one_night(memory, draws)
    assert verdicts.each.levels.shared[0] == pytest.approx(0.9, abs=0.1)
    assert not verdicts.alarm


@pytest.mark.parametrize(("shared", "most"), [(0.0, 24), (0.1, 24), (0.3, 10), (0.5, 5), (0.9, 2)])
def test_repeats_that_resemble_each_other_are_not_worth_their_time(shared: float, most: int) -> None:
    assert worth_taking(shared, RULES) == most


@pytest.mark.parametrize(("after", "alarm"), [(0.0, False), (0.15, True)])
def test_a_whole_fleet_is_measured_again_before_it_is_blamed(after: float, alarm: bool) -> None:
    """All 15 % slower at first: a hiccup that passes, or not."""
    draws, memory = a_fleet(metrics=1)
    night, asked = draws.night(), []

    def repeat(which: Ints) -> Floats:
        asked.append(which)
        return draws.measure(night, which, -np.log(1 - after))

    verdicts = judge_fleet(memory.past(), draws.measure(night, loss=-np.log(0.85)), repeat)
    assert any(len(which) == NODES for which in asked)
    assert verdicts.fleet.guilty.tolist() == [alarm]
    assert not verdicts.each.guilty.any()


def test_what_has_no_peers_is_measured_again_only_where_odds_are_against_it() -> None:
    """To repeat it takes the time of the whole cluster."""
    rng = np.random.default_rng(2)
    past = SeriesHistory(np.zeros(1, dtype=np.int64), 0.02 * rng.standard_normal((20, 1)), np.empty((0, 1)))
    assert not judge_night(past, np.array([0.0])).doubtful[0]
    assert judge_night(past, np.array([-0.15])).doubtful[0]
    draws, memory = a_fleet()
    assert judge_night(memory.past(), draws.measure(draws.night())).doubtful.all()  # 10 % is not ruled out by one value


def test_the_least_value_that_is_not_blamed_is_where_the_verdict_turns() -> None:
    draws, memory = a_fleet(metrics=1)
    tonight = draws.measure(draws.night())
    past, low = memory.past(), lowest(judge_night(memory.past(), tonight))
    for factor, guilty in ((1e-4, True), (-1e-4, False)):
        edge = tonight.copy()
        edge[5] = low[5] - factor
        assert judge_night(past, edge).guilty[5] == guilty


# What may not matter


def a_night(seed: int) -> tuple[SeriesHistory, Floats]:
    """A past, and a night with one slow node."""
    draws, memory = a_fleet(seed, nights=12)
    return memory.past(), draws.measure(draws.night(), loss=slow(draws, 7, 0.3))


@settings(max_examples=40, deadline=None)
@given(seeds, st.floats(-20, 20))
def test_the_unit_does_not_matter(seed: int, factor: float) -> None:
    past, tonight = a_night(seed)
    scaled = SeriesHistory(past.group, past.good + factor, past.recent + factor)
    plain, same = judge_night(replace(past, more=None), tonight), judge_night(scaled, tonight + factor)
    assert plain.evidence == pytest.approx(same.evidence, abs=1e-3)
    assert (plain.guilty == same.guilty).all()


@settings(max_examples=40, deadline=None)
@given(seeds, st.permutations(range(2 * NODES)))
def test_the_order_of_series_does_not_matter(seed: int, order: list[int]) -> None:
    past, tonight = a_night(seed)
    plain = judge_fleet(past, tonight)
    moved = judge_fleet(_in_order(past, np.array(order)), tonight[order])
    assert moved.each.evidence == pytest.approx(plain.each.evidence[order], abs=1e-3)
    assert (moved.each.guilty == plain.each.guilty[order]).all()
    assert moved.fleet.evidence == pytest.approx(plain.fleet.evidence, abs=1e-3)


def _in_order(past: SeriesHistory, order: Ints) -> SeriesHistory:
    night, series, value = past.more or (np.empty(0, int), np.empty(0, int), np.empty(0))
    return SeriesHistory(
        past.group[order], past.good[:, order], past.recent[:, order], (night, np.argsort(order)[series], value)
    )


@settings(max_examples=40, deadline=None)
@given(seeds, st.floats(0, 3))
def test_a_worse_value_is_never_judged_better(seed: int, worse: float) -> None:
    past, tonight = a_night(seed)
    before = judge_night(past, tonight)
    tonight[7] -= worse
    after = judge_night(past, tonight)
    assert after.evidence[7] >= before.evidence[7] - 1e-4
    assert after.guilty[7] >= before.guilty[7]


@settings(max_examples=40, deadline=None)
@given(seeds, st.floats(0, 3), st.integers(1, 24))
def test_a_worse_repeat_is_never_judged_better(seed: int, worse: float, nth: int) -> None:
    """Of a series alone, with every value of its repeats given."""
    rng = np.random.default_rng(seed)
    past = SeriesHistory(np.zeros(1, dtype=np.int64), 0.03 * rng.standard_normal((20, 1)), np.empty((0, 1)))
    values = -0.06 + 0.03 * rng.standard_normal(RULES.most_repeats)

    def evidence(read: Floats) -> float:
        rest = iter(read[1:])
        endless = replace(RULES, false_alarms=1e-99, doubtful_alone=-1e9)
        return float(judge_night(past, read[:1], lambda which: np.array([next(rest)]), endless).evidence[0])

    lower = values.copy()
    lower[nth - 1] -= worse
    assert evidence(lower) >= evidence(values) - 1e-4


# Which nights teach


def chosen(passed: list[bool], same: list[bool]) -> tuple[list[int], list[int], bool]:
    choice = choose(np.array(passed, dtype=bool), np.array(same, dtype=bool))
    return choice.reference.tolist(), choice.recent.tolist(), choice.renewed


def test_the_oldest_passing_nights_teach_and_the_newest_bear_witness() -> None:
    reference, recent, renewed = chosen([True] * 50, [True] * 50)
    assert reference == list(range(20))
    assert recent == list(range(40, 50))
    assert not renewed


def test_a_night_that_did_not_pass_never_teaches_but_bears_witness() -> None:
    passed = [True] * 12
    passed[3] = passed[11] = False
    reference, recent, _ = chosen(passed, [True] * 12)
    assert 3 not in reference
    assert 11 in recent
    assert not set(reference) & set(recent)


def test_new_software_is_held_against_the_nights_before_until_it_has_enough_of_its_own() -> None:
    reference, recent, renewed = chosen([True] * 33, [False] * 30 + [True] * 3)
    assert reference == list(range(10, 30))
    assert recent == [30, 31, 32]
    assert renewed
    reference, _, renewed = chosen([True] * 38, [False] * 30 + [True] * 8)
    assert reference == list(range(30, 38))
    assert not renewed


def test_no_nights_are_no_past() -> None:
    assert chosen([], []) == ([], [], False)
