"""Quiet clusters with a past: what a whole run is held against, and whether the reasons can be checked by hand."""

import numpy as np
import pytest

from seatrial.judge.assess import assess
from seatrial.judge.baselines.learned import learn
from seatrial.judge.knowledge import Knowledge
from seatrial.judge.fleet.drift import find_change
from seatrial.judge.number import judge_number as judge
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.result import Check
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from tests.stored_nights import nights_of

SETUP = Setup("cpu", 16, 0, 1)
NODES = 16


def devices(rng: np.random.Generator, losses: dict[int, float] | None = None, everybody: float = 0.0) -> Check:
    """700 TFLOP/s and a step of 10 ms on each node, with 3 % noise; what is slow was measured nine times."""
    measured = []
    for node in range(NODES):
        loss = everybody + (losses or {}).get(node, 0.0)
        for _ in range(9 if node in (losses or {}) else 2):
            noise = 0.0212 * rng.standard_t(4)
            subject = Subject("node", f"node-{node}")
            measured.append(Measurement("matmul", 700 * np.exp(noise) * (1 - loss), "TFLOP/s", subject))
            measured.append(Measurement("step_time", 10 * np.exp(-noise) / (1 - loss), "ms", subject, better="lower"))
    return Check("devices", Verdict.PASS, "16 nodes", 0.0, tuple(measured))


def one(check: Check, nights: list[Check], changed: str = "", references: int | None = None) -> Check:
    past = nights_of(nights, changed, references)
    (assessed,) = assess([check], Knowledge(SETUP, history=past.values(), nights=past)).checks
    return assessed


def a_past(count: int, seed: int = 1) -> tuple[np.random.Generator, list[Check]]:
    rng = np.random.default_rng(seed)
    return rng, [devices(rng) for _ in range(count)]


def test_ten_percent_are_seen_and_the_node_is_named() -> None:
    rng, nights = a_past(30)
    check = one(devices(rng, {5: 0.10}), nights)
    assert check.verdict is Verdict.DEGRADED
    assert {(s.kind, s.name, s.confidence) for s in check.suspects} == {("node", "node-5", 0.99)}
    bad = next(j for j in check.judgements if j.verdict is Verdict.DEGRADED and j.measurement.metric == "matmul")
    assert bad.source == "history"
    assert bad.expected.low is not None
    assert bad.measurement.value < bad.expected.low < 700
    assert bad.reason.startswith("matmul 6")
    assert "TFLOP/s to be expected from 20 passing runs and 15 other nodes (expected at least" in bad.reason
    assert "against chance" in bad.reason
    assert "the median of" in bad.reason


def test_a_healthy_run_passes_and_repeats_count_once() -> None:
    rng, nights = a_past(30)
    check = one(devices(rng), nights)
    assert check.verdict is Verdict.PASS
    assert check.reason == "16 nodes; as expected by history; 32 numbers were repeated"
    assert len(check.judgements) == 2 * NODES


def test_the_first_night_goes_by_peers() -> None:
    rng, _ = a_past(0)
    check = one(devices(rng, {5: 0.35}), [])
    assert {(s.kind, s.name) for s in check.suspects} == {("node", "node-5")}
    assert check.verdict is Verdict.DEGRADED
    assert "of 16 nodes in this run" in check.reason


def test_all_nodes_slower_is_one_judgement_and_no_suspect() -> None:
    rng, nights = a_past(30)
    for software in ("", "nccl 2.27 -> 2.28"):
        references = 30 if software else None
        check = one(devices(rng, everybody=0.3), nights, software, references)
        bad = [j for j in check.judgements if j.verdict is not Verdict.PASS]
        assert {j.measurement.subject.name for j in bad} == {"all 16 nodes"}
        assert not check.suspects
        assert ("changed with nccl 2.27 -> 2.28" in check.reason) == bool(software)


def test_a_fleet_that_is_proven_slower_never_passes() -> None:
    """A little slower for six nights, and tonight's repeats disagree: the odds and the interval must say the same."""
    lots = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        nights = [matmuls(rng, *([loss] * 2)) for loss in [0.0] * 20 + [0.05] * 6]
        losses = rng.choice([0, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3], size=rng.integers(1, 6))
        lots += learn(matmuls(rng, *losses).measurements, nights_of(nights, references=20)).together
    judged = [judge(m, [baseline]) for m, baseline in lots]
    assert len(judged) > 10
    assert all(j and j.verdict is not Verdict.PASS for j in judged)


def matmuls(rng: np.random.Generator, *losses: float) -> Check:
    """Eight nodes with 3 % noise, measured once for each of `losses`."""
    measured = [
        Measurement("matmul", float(700 * np.exp(0.02 * rng.standard_t(4)) * (1 - loss)), "TFLOP/s", subject)
        for subject in (Subject("node", f"node-{node}") for node in range(8))
        for loss in losses
    ]
    return Check("devices", Verdict.PASS, "8 nodes", 0.0, tuple(measured))


def test_a_step_tells_its_night() -> None:
    rng, nights = a_past(24)
    slow = [devices(rng, {5: 0.08}) for _ in range(4)]
    check = one(devices(rng, {5: 0.08}), [*nights, *slow], references=20)
    reason = next(j.reason for j in check.judgements if j.verdict is Verdict.DEGRADED)
    assert "a step of" in reason
    assert "lower on 2026-09-25" in reason


# Change points


@pytest.mark.parametrize("seed", range(5))
def test_a_step_and_a_decay_are_told_apart_with_the_night_they_began(seed: int) -> None:
    rng = np.random.default_rng(seed)
    noise, days = 0.01 * rng.standard_t(4, 40), np.arange(40.0)
    step = find_change(days, noise - 0.06 * (days >= 25), 0.01)
    assert step is not None
    assert (step.kind, round(step.size, 1)) == ("step", -0.1)
    assert abs(step.since - 25) <= 1
    decay = find_change(days, noise - 0.06 * np.maximum(days - 20, 0) / 7, 0.01)
    assert decay is not None
    assert decay.kind == "decay"
    assert abs(decay.since - 20) <= 4
    assert 7 * decay.size == pytest.approx(-0.06, abs=0.015)


def test_noise_is_no_change() -> None:
    changes = [
        find_change(np.arange(40.0), 0.03 * np.random.default_rng(n).standard_t(4, 40), 0.03) for n in range(200)
    ]
    assert sum(change is not None for change in changes) <= 4


def test_missing_nights_and_strays_do_not_move_the_night() -> None:
    days = np.arange(40.0)
    values = 0.01 * np.random.default_rng(3).standard_t(4, 40) - 0.06 * (days >= 25)
    values[[3, 24, 30]] = np.nan
    values[10] = -1.0
    change = find_change(days, values, 0.01)
    assert change is not None
    assert (change.kind, change.since) == ("step", 25)
    assert find_change(days[:4], values[:4], 0.01) is None
