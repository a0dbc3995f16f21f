"""The simulated fleet: what is drawn is what was asked for, and `seatrial simulate` scores the judge against it."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.rivals import RULES
from seatrial.cli.app import app
from seatrial.simulate.faults import GPUS, KINDS, FleetLayout, make
from seatrial.simulate.noise import Draws, Noise
from seatrial.simulate.score import quiet, scores


def test_noise_and_spread_are_as_large_as_asked_for() -> None:
    draws = Draws(20_000, Noise(sd=0.03, spread=0.01, freedom=6.0, shared=0.25), np.random.default_rng(1))
    night = draws.night()
    once, again = draws.measure(night), draws.measure(night)
    assert draws.level.std() == pytest.approx(0.01, rel=0.03)
    assert (once - draws.level).std() == pytest.approx(0.03, rel=0.03)
    assert np.corrcoef(once - draws.level, again - draws.level)[0, 1] == pytest.approx(0.25, abs=0.03)


def test_strays_read_too_low_as_often_as_asked_for() -> None:
    draws = Draws(20_000, Noise(sd=0.001, spread=0.0, stray=0.05, stray_loss=0.2), np.random.default_rng(1))
    assert (draws.measure(draws.night()) < -0.15).mean() == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize(("kind", "hit"), [("slow node", GPUS + 4), ("slow GPU", 1), ("slow link", 1), ("upgrade", 16)])
def test_a_fault_lowers_what_it_should(kind: str, hit: int) -> None:
    layout = FleetLayout(16)
    fault = make(kind, KINDS[kind][-1], layout, np.random.default_rng(1))
    assert (fault.loss(0) > 0).sum() == hit
    assert fault.culprits.sum() == (0 if kind == "upgrade" else hit)


def test_a_decay_grows_and_a_flaky_node_comes_and_goes() -> None:
    layout, rng = FleetLayout(16), np.random.default_rng(1)
    decay = make("slow decay", "1 % per week", layout, rng)
    assert decay.loss(6).max() == pytest.approx(-np.log(0.99))
    flaky = make("flaky node", KINDS["flaky node"][0], layout, rng)
    assert [flaky.loss(night).max() > 0 for night in range(4)] == [False, False, True, False]


def test_gross_faults_are_found_and_nobody_else_is_blamed() -> None:
    rng = np.random.default_rng(5)
    assert quiet(16, 5, Noise(), rng).alarms == 0
    by_fault = {(s.kind, s.size): s for s in scores(16, 4, 1, Noise(), rng)}
    for fault in (
        ("slow node", "20 %"),
        ("TCP fallback", "a tenth is left"),
        ("slow link", "50 %"),
        ("upgrade", "15 %"),
    ):
        assert by_fault[fault].named == 1, fault
    assert sum(score.wrong for score in by_fault.values()) == 0


def test_the_command_prints_one_document_and_the_same_seed_the_same_numbers() -> None:
    arguments = [
        "simulate",
        "--nodes",
        "8",
        "--nights",
        "2",
        "--trials",
        "1",
        "--healthy",
        "2",
        "--seed",
        "3",
        "--json",
    ]
    once, again = (CliRunner().invoke(app, arguments).output for _ in range(2))
    assert once == again
    document = json.loads(once)
    assert document["healthy"] == {"nights": 2, "alarms": 0, "measurements_per_series": pytest.approx(2.2, abs=0.3)}
    assert {fault["fault"] for fault in document["faults"]} == set(KINDS)
    table = CliRunner().invoke(app, arguments[:-1]).output
    assert "0 of 2 healthy nights raised an alarm" in table


def test_rivals_rules_are_theirs() -> None:
    """4 % below the mean passes everywhere; 6 % is SuperBench's, 11 % ReFrame's, 21 % everybody's."""
    metric = np.zeros(4, dtype=np.int64)
    tonight = np.log([0.96, 0.94, 0.89, 0.79])
    bad = [rule(np.zeros((3, 4)), tonight, metric).tolist() for rule in RULES.values()]
    assert bad == [[False, False, False, True], [False, True, True, True], [False, False, True, True]]
