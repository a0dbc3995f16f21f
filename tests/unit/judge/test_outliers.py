"""Whom the judge blames over nights of a fleet, and whom it leaves alone."""

import math
from dataclasses import replace

import numpy as np
import pytest

from seatrial.detection.outliers import Outcome, judge
from seatrial.detection.readings import Floats, Past, ThisRun
from seatrial.detection.references import learn
from seatrial.detection.together import UNKNOWN_DAY
from seatrial.model.verdict import Verdict
from tests.unit.judge.readings import Fleet, Series, names, of_nodes, slow

BAD = (Verdict.DEGRADED, Verdict.FAIL)


def a_fleet(*kinds: Series, runs: int = 8, seed: int = 1) -> Fleet:
    """After so many healthy runs."""
    fleet = Fleet(seed)
    fleet.run(*kinds, times=runs)
    return fleet


# Healthy


@pytest.mark.parametrize("noise", [0.007, 0.03, 0.1])
@pytest.mark.parametrize("nodes", [1, 3, 16, 64])
def test_a_healthy_fleet_passes_every_night(nodes: int, noise: float) -> None:
    fleet = a_fleet(of_nodes(nodes, noise=noise), of_nodes(nodes, "copy", noise=noise), runs=15)
    assert {run.verdict for run in fleet.judged()} == {Verdict.PASS}


@pytest.mark.parametrize("share", [0.01, 0.02])
@pytest.mark.parametrize("depth", [0.2, 0.75])
def test_rare_outliers_among_quiet_readings_blame_nobody(share: float, depth: float) -> None:
    """Noise of 0.7 %, and a few readings far below the others."""
    nodes = replace(of_nodes(64, noise=0.007), strays=share, depth=depth)
    fleet = a_fleet(nodes, runs=20, seed=2)
    runs = fleet.judged()
    assert [run for run in runs if run.suspects] == []
    assert {run.verdict for run in runs} == {Verdict.PASS}


@pytest.mark.parametrize("seed", range(3))
def test_one_stray_in_eight_readings_hides_no_loss_of_five_percent(seed: int) -> None:
    nodes = replace(of_nodes(16), strays=0.13, depth=0.75)
    fleet = a_fleet(nodes, seed=seed)
    fleet.run(nodes, factor=slow("node-5", by=0.05), readings=24, times=3)
    runs = fleet.judged()
    assert {run.verdict for run in runs[:8]} == {Verdict.PASS}
    assert names(runs[-1]) == {("node", "node-5")}


@pytest.mark.parametrize("seed", range(3))
def test_occasional_half_rate_readings_hide_no_loss_of_ten_percent(seed: int) -> None:
    """As copies to a GPU of which one in twelve takes twice the time."""
    nodes = replace(of_nodes(8, noise=0.003), strays=0.08, depth=0.5)
    fleet = a_fleet(nodes, seed=seed)
    fleet.run(nodes, factor=slow("node-5", by=0.1), readings=24)
    assert names(fleet.tonight()) == {("node", "node-5")}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_single_reading_as_low_as_other_healthy_nodes_had_passes(seed: int) -> None:
    fleet = Fleet(seed)
    nodes = replace(of_nodes(8, noise=0.005), strays=0.07, depth=0.23)
    fleet.run(nodes, readings=1, times=30)
    runs = fleet.judged()
    assert [run for run in runs if run.suspects] == []
    assert Verdict.INCONCLUSIVE in {run.verdict for run in runs[:15]}
    assert {run.verdict for run in runs[15:]} == {Verdict.PASS}


def test_a_single_low_reading_of_the_same_node_never_passes() -> None:
    fleet = Fleet(1)
    nodes = of_nodes(8, noise=0.005)
    for _ in range(8):
        fleet.run(nodes, readings=1, times=3)
        fleet.run(nodes, factor=slow("node-5", by=0.23), readings=1)
    assert {run.verdict for run in fleet.judged()[3::4]} == {Verdict.INCONCLUSIVE}


def test_nodes_that_differ_for_ever_are_each_held_against_their_own_past() -> None:
    """By 2 %, and one that every run found 25 % lower, accepted: its own median counts, not that of
    its peers.
    """
    nodes, rng = of_nodes(16), np.random.default_rng(3)
    levels = dict(zip(nodes.subjects, np.exp(0.02 * rng.standard_normal(16)), strict=True))
    fleet = a_fleet(runs=0)
    fleet.run(nodes, factor=lambda subject: float(levels[subject]), times=20)
    assert {run.verdict for run in fleet.judged()} == {Verdict.PASS}


@pytest.mark.parametrize("drift", [0.01, -0.01])
def test_gradual_drift_of_the_whole_fleet_blames_no_node(drift: float) -> None:
    fleet = a_fleet(runs=0)
    for night in range(15):
        level = dict.fromkeys((f"node-{n}" for n in range(32)), 1 + drift * night)
        fleet.run(of_nodes(32), factor=level.__getitem__)
    assert [run.suspects for run in fleet.judged() if run.suspects] == []


# Slow nodes


def test_one_slow_reading_does_not_blame_and_three_that_agree_do() -> None:
    nodes = of_nodes(16)
    for count in range(4):
        fleet = a_fleet(nodes)
        fleet.run(of_nodes(15))
        fleet.read(
            nodes, "node-15", *[500.0] * count, *[700.0, 695.0, 705.0, 698.0, 703.0] * (count < 3)
        )
        run = fleet.tonight()
        assert names(run) == ({("node", "node-15")} if count == 3 else set())
        assert (run.verdict in BAD) is (count == 3)


@pytest.mark.parametrize("nodes", [4, 16])
def test_a_slow_node_whose_readings_scatter_is_found_in_the_first_run(nodes: int) -> None:
    """As of a node that got a third of its processor: far below, and no two readings alike."""
    quiet = of_nodes(nodes, noise=0.007)
    fleet = a_fleet(quiet, runs=30)
    fleet.run(of_nodes(nodes - 1, noise=0.007))
    readings = [0.0606, 0.0527, 0.0697, 0.0574, 0.0627, 0.0818, 0.0596]
    fleet.read(quiet, quiet.subjects[-1], *(700 / 0.197 * reading for reading in readings))
    assert names(fleet.tonight()) == {("node", quiet.subjects[-1])}


def test_node_is_blamed_once_single_readings_of_several_runs_agree() -> None:
    fleet = Fleet(4)
    fleet.run(of_nodes(16), readings=1, times=12)
    fleet.run(of_nodes(16), factor=slow("node-5", by=0.3), readings=1, times=5)
    first, _, *later = fleet.judged()[12:]
    assert first.suspects == ()
    assert [names(run) for run in later] == [{("node", "node-5")}] * 3


@pytest.mark.parametrize("nodes", [8, 64])
def test_loss_of_ten_percent_is_found_the_same_night(nodes: int) -> None:
    for seed in range(3):
        fleet = a_fleet(of_nodes(nodes), of_nodes(nodes, "copy"), seed=seed)
        fleet.run(
            of_nodes(nodes), of_nodes(nodes, "copy"), factor=slow("node-5", by=0.1), readings=24
        )
        assert names(fleet.tonight()) == {("node", "node-5")}


def test_loss_of_twenty_percent_is_found_on_the_first_night_of_a_large_fleet() -> None:
    for seed in range(3):
        fleet = a_fleet(runs=0, seed=seed)
        fleet.run(of_nodes(64), factor=slow("node-5", by=0.2))
        assert names(fleet.tonight()) == {("node", "node-5")}


@pytest.mark.parametrize("runs", [0, 3, 12])
def test_where_all_readings_are_equal_one_that_is_not_is_found(runs: int) -> None:
    """Rounded readings of quiet nodes: what is unlike all others makes no room for itself."""
    nodes = of_nodes(32, noise=0.0)
    fleet = a_fleet(nodes, runs=runs)
    fleet.run(nodes, factor=slow("node-5", by=0.3))
    assert names(fleet.tonight()) == {("node", "node-5")}


def test_reason_states_value_median_limit_and_number_of_measurements() -> None:
    fleet = a_fleet(of_nodes(8, noise=0.01), runs=20)
    fleet.run(of_nodes(7, noise=0.01))
    fleet.read(of_nodes(8), "node-7", 630.0, 631.0, 629.0)
    reason = fleet.tonight().reason
    assert reason.sentence.startswith("matmul 630 TFLOP/s on node-7: 10")
    assert "% below its median of 70" in reason.sentence
    assert " in 20 runs (limit " in reason.sentence
    assert reason.sentence.endswith("in 3 of 3 measurements")


def test_longer_times_are_worse_and_shorter_ones_are_not() -> None:
    steps = Series("step_time", "node", [f"node-{n}" for n in range(16)], 10.0, "ms")
    fleet = a_fleet(steps)
    fleet.run(
        steps,
        factor=lambda subject: 1.3 if subject == "node-2" else 0.7 if subject == "node-3" else 1.0,
    )
    run = fleet.tonight()
    assert names(run) == {("node", "node-2")}
    assert "% above its median" in run.reason.sentence


@pytest.mark.parametrize(("better", "factor"), [("higher", 1.5), ("lower", 0.6)])
@pytest.mark.parametrize("nodes", [1, 16])
def test_an_improvement_is_not_blamed(better: str, factor: float, nodes: int) -> None:
    kind = of_nodes(16)
    kind.conditions = {"better": better}
    fleet = a_fleet(kind)
    fleet.run(kind, factor=lambda subject: factor if int(subject[5:]) < nodes else 1.0)
    assert (fleet.tonight().verdict, fleet.tonight().suspects) == (Verdict.PASS, ())


# Faults that stay


@pytest.mark.parametrize("healthy", [0, 8])
def test_a_fault_gets_the_same_verdict_every_night_until_it_is_repaired(healthy: int) -> None:
    """Three of 16 nodes, 30 % slow: from the first night on, and later."""
    fleet = a_fleet(of_nodes(16), of_nodes(16, "copy"), runs=healthy)
    fleet.run(
        of_nodes(16),
        of_nodes(16, "copy"),
        factor=slow("node-3", "node-7", "node-11", by=0.3),
        times=9,
    )
    fleet.run(of_nodes(16), of_nodes(16, "copy"), times=3)
    runs = fleet.judged()[healthy:]
    assert [run.verdict for run in runs] == [Verdict.DEGRADED] * 9 + [Verdict.PASS] * 3
    assert all(names(run) == {("node", f"node-{n}") for n in (3, 7, 11)} for run in runs[:9])


def test_a_fleet_that_slows_down_together_is_one_finding_every_night() -> None:
    fleet = a_fleet(of_nodes(16))
    fleet.run(of_nodes(16), factor=lambda _: 0.7, times=4)
    fleet.run(of_nodes(16))
    runs = fleet.judged()[8:]
    assert [run.verdict for run in runs] == [Verdict.DEGRADED] * 4 + [Verdict.PASS]
    assert [run.suspects for run in runs] == [()] * 5
    assert "matmul of 16 of 16 nodes" in runs[0].reason.sentence


# Growth


@pytest.mark.parametrize(("known", "new"), [(2, 3), (8, 10), (16, 20)])
def test_new_nodes_at_half_speed_never_pass_and_none_is_named_alone(known: int, new: int) -> None:
    fleet = a_fleet(of_nodes(known))
    fleet.run(
        of_nodes(known),
        of_nodes(new, first=known),
        factor=slow(*_of(known, known + new), by=0.5),
        times=4,
    )
    for run in fleet.judged()[8:]:
        assert run.verdict in BAD
        assert run.suspects == ()


def test_new_nodes_that_are_ten_percent_slower_are_one_finding() -> None:
    fleet = a_fleet(of_nodes(16))
    fleet.run(of_nodes(16), of_nodes(16, first=16), factor=slow(*_of(16, 32), by=0.1), times=3)
    for run in fleet.judged()[8:]:
        assert (run.verdict, run.suspects) == (Verdict.DEGRADED, ())
        assert "of 16 of 32 nodes" in run.reason.sentence


def _of(first: int, end: int) -> list[str]:
    return [f"node-{n}" for n in range(first, end)]


@pytest.mark.parametrize("known", [4, 16, 64])
def test_a_healthy_fleet_that_doubles_passes(known: int) -> None:
    for seed in range(2):
        fleet = a_fleet(of_nodes(known), of_nodes(known, "copy"), seed=seed)
        fleet.run(of_nodes(2 * known), of_nodes(2 * known, "copy"), times=4)
        assert {run.verdict for run in fleet.judged()} == {Verdict.PASS}


def test_a_new_node_that_is_slow_is_found_among_known_ones() -> None:
    fleet = a_fleet(of_nodes(16))
    fleet.run(of_nodes(18), factor=slow("node-17", by=0.3))
    assert names(fleet.tonight()) == {("node", "node-17")}


def test_half_of_a_fleet_at_half_speed_from_the_first_night_never_passes() -> None:
    fleet = a_fleet(runs=0)
    fleet.run(of_nodes(16), factor=slow(*_of(0, 8), by=0.5), times=3)
    for run in fleet.judged():
        assert (run.verdict is Verdict.PASS, run.suspects) == (False, ())


@pytest.mark.parametrize("seed", range(6))
def test_loss_of_a_fifth_is_found_on_the_first_night_and_stays_found(seed: int) -> None:
    nodes = of_nodes(8, noise=0.01)
    fleet = a_fleet(runs=0, seed=seed)
    fleet.run(nodes, of_nodes(8, "copy"), factor=slow("node-5", by=0.2), times=4)
    for run in fleet.judged():
        assert names(run) == {("node", "node-5")}


@pytest.mark.parametrize(("nodes", "found"), [(8, False), (64, True)])
def test_seven_new_nodes_that_are_alike_blame_no_other_for_a_few_percent(
    nodes: int, found: bool
) -> None:
    """New nodes differ by some per cent; few may be alike by chance, many are so for a reason."""
    fleet = a_fleet(runs=0)
    fleet.run(of_nodes(nodes, noise=0.002), factor=slow("node-5", by=0.04))
    assert names(fleet.tonight()) == ({("node", "node-5")} if found else set())


def judged(tonight: Floats, *, lost_before: float = 0.0, one_machine: bool = False) -> Outcome:
    """After twelve healthy runs with 1 % noise and six readings; `tonight` (K, M) is on logs.

    All nodes have lost so much in the last two of them.
    """
    nodes = tonight.shape[1]
    runs = 0.01 * np.random.default_rng(4).standard_normal((12, 6, nodes))
    runs[-2:] -= lost_before
    mean, count = runs.mean(axis=1), np.full((12, nodes), 6)
    within, days = runs.var(axis=1) * 6, np.full(13, UNKNOWN_DAY)
    past = Past(runs[:, 0], runs[:, 1:].mean(axis=1), mean, within, count, count > 0, days)
    assumed, cap = np.full(nodes, 0.05), np.full(nodes, 1.0)
    group = np.zeros(nodes, dtype=np.int64)
    this_run = ThisRun(tonight, group, assumed, cap, one_machine)
    return judge(learn(past, this_run), tonight)


@pytest.mark.parametrize("one_machine", [False, True])
@pytest.mark.parametrize("nodes", [2, 3, 4, 16])
@pytest.mark.parametrize("lost_before", [0.0, 0.15])
def test_loss_common_to_all_nodes_of_one_machine_is_not_found(
    nodes: int, one_machine: bool, lost_before: float
) -> None:
    """Another program or virtual machine takes processor time from all nodes of the machine."""
    tonight = 0.01 * np.random.default_rng(6).standard_normal((6, nodes)) - 0.15
    outcome = judged(tonight, lost_before=lost_before, one_machine=one_machine)
    is_found = bool(outcome.bad.any()) or any(shift.bad for shift in outcome.shifts)
    assert is_found is not one_machine


@pytest.mark.parametrize("nodes", [2, 3, 4, 16])
@pytest.mark.parametrize("lost_by_all", [0.0, 0.15])
def test_node_of_one_machine_that_lost_more_than_the_others_is_found(
    nodes: int, lost_by_all: float
) -> None:
    tonight = 0.01 * np.random.default_rng(7).standard_normal((6, nodes)) - lost_by_all
    tonight[:, 1] -= 0.15
    outcome = judged(tonight, one_machine=True)
    assert np.flatnonzero(outcome.bad).tolist() == [1]


@pytest.mark.parametrize("nodes, with_peers", [(8, True), (64, False)])
def test_peers_are_repeated_with_a_doubtful_node_only_when_they_are_few(
    nodes: int, with_peers: bool
) -> None:
    """The common loss of all nodes is known better from many peers read once than the loss of one
    node.
    """
    tonight = np.full((4, nodes), np.nan)
    tonight[0] = 0.0
    tonight[:, 0] = -0.012
    outcome = judged(tonight)
    assert outcome.doubtful[0] and not outcome.doubtful.all()
    assert (outcome.supporting[~outcome.doubtful] == with_peers).all()


@pytest.mark.parametrize("one_machine", [False, True])
def test_other_node_is_repeated_with_a_doubtful_one_on_the_same_machine(one_machine: bool) -> None:
    """Between two separate machines more readings cannot tell which is odd; one shared machine may
    be busy at the moment.
    """
    tonight = np.full((4, 2), np.nan)
    tonight[0] = 0.0
    tonight[:, 0] = -0.015
    outcome = judged(tonight, one_machine=one_machine)
    assert (outcome.doubtful.tolist(), bool(outcome.supporting[1])) == ([True, False], one_machine)


@pytest.mark.parametrize("nodes", [8, 64])
def test_a_clear_loss_is_decided_by_three_readings_of_its_own(nodes: int) -> None:
    tonight = np.full((3, nodes), np.nan)
    tonight[0] = 0.01
    tonight[:, 0] = -0.35
    outcome = judged(tonight)
    assert np.flatnonzero(outcome.bad).tolist() == [0]
    assert not outcome.doubtful[0] and not outcome.supporting.any()


def test_ordinary_reading_counts_though_the_others_lie_close_together() -> None:
    """Five of six readings are within 0.02 % by chance, the last is three standard deviations
    lower.
    """
    tonight = 0.01 * np.random.default_rng(7).standard_normal((6, 8))
    tonight[:, 0] = [0.0, 0.0001, -0.0001, 0.0002, -0.0002, -0.03]
    one, other = np.triu_indices(6)
    plain = np.median((tonight[one] + tonight[other]) / 2, axis=0)
    moved = judged(tonight).location - plain
    assert moved == pytest.approx(moved[1])


def test_a_stray_among_low_readings_does_not_hide_the_loss() -> None:
    """One of eight readings is far below the seven that agree on a loss of 10 %."""
    tonight = 0.01 * np.random.default_rng(5).standard_normal((8, 8))
    tonight[:, 3] -= 0.105
    tonight[5, 3] = -1.4
    outcome = judged(tonight)
    assert np.flatnonzero(outcome.bad).tolist() == [3]
    assert outcome.confidence[3] > 0.95


@pytest.mark.parametrize("sigma, doubtful", [(0.5, False), (0.05, True)])
def test_node_is_not_read_again_when_more_readings_cannot_decide(
    sigma: float, doubtful: bool
) -> None:
    """One of four new nodes reaches a third of the others: only how much such nodes usually differ
    decides, not more readings.
    """
    first = np.log([24.0, 24.0, 8.0, 23.7])
    again = np.array([[np.nan, np.nan, first[2], np.nan]])
    none = np.empty((0, 4))
    past = Past(
        none,
        none,
        none,
        none,
        none.astype(np.int64),
        none.astype(np.bool_),
        np.array([UNKNOWN_DAY]),
    )
    this_run = ThisRun(
        np.vstack([first, again]),
        np.zeros(4, dtype=np.int64),
        np.full(4, sigma),
        np.full(4, math.log(8)),
    )
    readings = np.vstack([first, *[again] * (1 if doubtful else 15)])
    outcome = judge(learn(past, this_run), readings)
    assert (bool(outcome.doubtful[2]), bool(outcome.bad[2])) == (doubtful, False)
