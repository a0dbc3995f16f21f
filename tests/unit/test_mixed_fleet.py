"""Fleets of two kinds of nodes: what passes, what is said, and which faults are still found."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from seatrial.history import open_store
from seatrial.history.past import RunContext
from seatrial.judge.knowledge import Knowledge, knowledge_of
from seatrial.judge.node_groups import group_nodes
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check, RunResult
from seatrial.model.setup import NodeHardware, Setup
from seatrial.model.verdict import Verdict
from seatrial.runs.rejudge import rejudge
from tests.stored_nights import knowing, settled
from tests.suspects import kinds_and_names

NODES = 64
SETUP = Setup("cpu", NODES, 0, 1)
OLD = range(58, 64)
H100, A100 = NodeHardware("H100", 1980, "Xeon", "570"), NodeHardware("A100", 1410, "EPYC", "570")
MIXED = group_nodes({f"node-{n}": A100 if n in OLD else H100 for n in range(NODES)})


class Fleet:
    """Rates of 100 TFLOP/s with 3 % noise; `slow` nodes reach `factor` of that, and each what its
    `loss` leaves.
    """

    def __init__(self, slow: Collection[int], factor: float = 0.7, seed: int = 1) -> None:
        self.rng, self.slow, self.factor = np.random.default_rng(seed), slow, factor
        self.loss: dict[int, float] = {}

    def measured(self, nodes: Collection[int] = range(NODES)) -> list[Measurement]:
        return [
            Measurement("throughput", self._rate(n), "TFLOP/s", Subject("node", f"node-{n}"))
            for n in sorted(nodes)
        ]

    def _rate(self, node: int) -> float:
        level = 100 * (self.factor if node in self.slow else 1) * (1 - self.loss.get(node, 0))
        return float(level * np.exp(0.0212 * self.rng.standard_t(4)))

    def night(self) -> Check:
        """Everything measured twice."""
        return Check(
            "devices", Verdict.PASS, uncoded("64 nodes"), 1.0, (*self.measured(), *self.measured())
        )

    def judged(self, knowledge: Knowledge) -> Check:
        """The check once all doubts are measured away, as a run does it."""
        check = Check("devices", Verdict.PASS, uncoded("64 nodes"), 1.0, tuple(self.measured()))
        return settled(check, knowledge, lambda m: self._rate(int(m.subject.name[5:])))


def suspects(check: Check) -> dict[str, float]:
    return {suspect.name: suspect.confidence for suspect in check.suspects}


@pytest.mark.parametrize(("better", "factor"), [("higher", 0.6), ("lower", 1.6)])
def test_deviation_of_a_slow_group_has_the_sign_of_its_loss(
    better: Literal["higher", "lower"], factor: float
) -> None:
    rng = np.random.default_rng(2)

    def measured(level: float) -> tuple[Measurement, ...]:
        rates = level * np.exp(0.01 * rng.standard_normal(NODES))
        return tuple(
            Measurement("step", float(rate), "ms", Subject("node", f"node-{n}"), better=better)
            for n, rate in enumerate(rates)
        )

    past = [Check("training", Verdict.PASS, Reason(), 1.0, measured(100)) for _ in range(8)]
    check = settled(
        Check("training", Verdict.PASS, Reason(), 1.0, measured(100 * factor)), knowing(SETUP, past)
    )
    (group,) = (j for j in check.judgements if j.measurement.subject.kind == "group")
    assert group.deviation == pytest.approx(factor - 1, abs=0.02)


# By facts


def test_an_older_model_passes_the_first_night_and_the_reason_says_so() -> None:
    check = Fleet(OLD).judged(Knowledge(SETUP, groups=MIXED))
    assert (check.verdict, check.suspects) == (Verdict.PASS, ())
    assert check.reason.sentence.endswith("2 groups by GPU model: 58 x H100, 6 x A100")


def test_a_slow_node_of_either_model_is_found_among_its_own() -> None:
    for node in (5, 60):
        fleet = Fleet(range(40, 64))
        fleet.loss = {node: 0.3}
        groups = group_nodes({f"node-{n}": A100 if n >= 40 else H100 for n in range(NODES)})
        check = fleet.judged(Knowledge(SETUP, groups=groups))
        assert check.verdict is not Verdict.PASS
        assert suspects(check).keys() == {f"node-{node}"}
        assert f"of {24 if node == 60 else 40} nodes" in check.reason.sentence


def test_models_with_a_past_are_each_held_against_their_own() -> None:
    fleet = Fleet(OLD)
    known = replace(knowing(SETUP, [fleet.night() for _ in range(20)]), groups=MIXED)
    assert fleet.judged(known).verdict is Verdict.PASS
    fleet.loss = {60: 0.15}
    check = fleet.judged(known)
    assert suspects(check).keys() == {"node-60"}
    assert re.search(
        r"on node-60: .* below its median of (6\d|7\d)\S* TFLOP/s in 20 runs", check.reason.sentence
    )


def test_a_model_that_slows_down_together_is_one_finding_about_that_model() -> None:
    fleet = Fleet(OLD)
    known = replace(knowing(SETUP, [fleet.night() for _ in range(20)]), groups=MIXED)
    fleet.loss = dict.fromkeys(OLD, 0.15)
    check = fleet.judged(known)
    assert check.verdict is Verdict.DEGRADED
    assert check.reason.sentence.startswith("throughput of 6 of 64 nodes (those with A100) is ")
    assert check.suspects == ()


# Many alike


@pytest.mark.parametrize(("factor", "verdict"), [(0.7, Verdict.DEGRADED), (0.4, Verdict.FAIL)])
@pytest.mark.parametrize("nights", [0, 20])
def test_a_few_slow_nodes_of_one_model_are_blamed_each(
    factor: float, verdict: Verdict, nights: int
) -> None:
    """On the first night, and when they become slow."""
    fleet = Fleet((), factor)
    known = knowing(SETUP, [fleet.night() for _ in range(nights)])
    fleet.slow = OLD
    check = fleet.judged(known)
    assert check.verdict is verdict
    assert suspects(check).keys() == {f"node-{n}" for n in OLD}


@pytest.mark.parametrize(("slow", "factor"), [(range(32), 0.5), (range(22), 0.7), (range(40), 0.7)])
def test_where_many_become_slow_nobody_is_blamed_and_nothing_passes(
    slow: range, factor: float
) -> None:
    fleet = Fleet((), factor)
    known = knowing(SETUP, [fleet.night() for _ in range(8)])
    fleet.slow = slow
    check = fleet.judged(known)
    assert check.verdict in (Verdict.DEGRADED, Verdict.FAIL)
    assert (check.reason.code, check.suspects) == ("many-alike", ())


@pytest.mark.parametrize(
    ("slow", "factor"), [(range(32), 0.1), (range(32), 0.7), (range(22), 0.5), (range(40), 0.5)]
)
def test_where_many_are_slow_from_the_first_night_no_node_is_named_alone(
    slow: range, factor: float
) -> None:
    check = Fleet(slow, factor).judged(Knowledge(SETUP))
    assert check.verdict is not Verdict.PASS
    assert check.suspects == ()


@pytest.mark.parametrize("slow", [[3], [3, 4, 5]])
def test_slow_gpus_of_a_node_are_one_suspect(slow: Collection[int]) -> None:
    rng = np.random.default_rng(5)

    def rate(m: Measurement) -> float:
        return float(
            100
            * (0.7 if int(m.subject.nodes[0][5:]) in slow else 1)
            * np.exp(0.01 * rng.standard_normal())
        )

    subjects = (Subject("gpu", f"node-{n}/gpu-{g}") for n in range(16) for g in range(8))
    blank = [Measurement("matmul", 1.0, "TFLOP/s", subject) for subject in subjects]
    measured = tuple(replace(m, value=rate(m)) for m in blank)
    check = settled(
        Check("devices", Verdict.PASS, Reason(), 1.0, measured),
        Knowledge(Setup("cpu", 16, 8, 8)),
        rate,
    )
    assert set(kinds_and_names(check)) == {("node", f"node-{n}") for n in slow}


def test_slow_node_of_each_speed_is_found_without_known_models() -> None:
    """Nodes without a known model are each judged by their own past."""
    fleet = Fleet(OLD)
    known = knowing(SETUP, [fleet.night() for _ in range(20)])
    assert fleet.judged(known).verdict is Verdict.PASS
    fleet.loss = {3: 0.15, 60: 0.15}
    assert suspects(fleet.judged(known)).keys() == {"node-3", "node-60"}


def judged_after(fleet: Fleet, good: int, slow: int, slow_nodes: Collection[int]) -> Check:
    """Judge a night after so many accepted ones and so many on which these nodes were slow."""
    nights = [fleet.night() for _ in range(good)]
    fleet.slow = slow_nodes
    nights += [fleet.night() for _ in range(slow)]
    return fleet.judged(knowing(SETUP, nights, [number < good for number in range(len(nights))]))


@pytest.mark.parametrize("nights_slow", [4, 10])
def test_nodes_that_become_slow_together_are_blamed_however_long_it_lasts(nights_slow: int) -> None:
    fleet = Fleet((), seed=3)
    check = judged_after(fleet, 20, nights_slow, OLD)
    assert check.verdict is not Verdict.PASS
    assert suspects(check).keys() == {f"node-{n}" for n in OLD}


@pytest.mark.parametrize(("good", "slow"), [(1, 0), (2, 4), (5, 3)])
def test_slow_half_of_a_fleet_with_little_history_does_not_pass(good: int, slow: int) -> None:
    fleet = Fleet((), factor=0.5, seed=4)
    check = judged_after(fleet, good, slow, range(32))
    assert (check.verdict is not Verdict.PASS, check.suspects) == (True, ())


def test_a_new_node_that_is_slow_is_held_against_the_known_ones() -> None:
    fleet = Fleet(())
    nights = [
        replace(night, measurements=_without(night, "node-0"))
        for night in (fleet.night() for _ in range(20))
    ]
    fleet.slow = (0,)
    assert suspects(fleet.judged(knowing(SETUP, nights))).keys() == {"node-0"}


def _without(check: Check, node: str) -> tuple[Measurement, ...]:
    return tuple(m for m in check.measurements if m.subject.name != node)


# With a store

START = datetime(2026, 11, 2, 1, tzinfo=UTC)


def a_run(number: int, check: Check, hardware: Mapping[str, NodeHardware] | None) -> RunResult:
    inventory = {} if hardware is None else hardware
    nodes = [
        {"name": name, "gpu_model": made.gpu_model, "driver": made.driver}
        for name, made in inventory.items()
    ]
    moment = START + timedelta(days=number)
    return RunResult(
        f"run-{number}",
        "lab",
        "quick",
        moment,
        moment,
        Verdict.PASS,
        Reason(),
        nodes,
        checks=[check],
        setup=SETUP,
    )


def hardware(**changed: NodeHardware) -> dict[str, NodeHardware]:
    return {f"node-{n}": H100 for n in range(NODES)} | {
        key.replace("_", "-"): made for key, made in changed.items()
    }


@pytest.mark.parametrize(
    ("before", "now", "numbers"),
    [
        (H100, A100, 0),
        (H100, H100, 3),
        (None, A100, 3),
        (H100, NodeHardware("H100", driver="580"), 3),
    ],
    ids=["another model", "the same", "runs that do not tell", "another driver"],
)
def test_node_whose_gpu_model_changes_has_no_past(
    before: NodeHardware | None, now: NodeHardware, numbers: int
) -> None:
    fleet = Fleet(())
    with open_store("sqlite://") as store:
        for number in range(3):
            then = None if before is None else hardware(node_7=before)
            store.save(a_run(number, fleet.night(), then), Path())
        tonight = a_run(3, fleet.night(), hardware(node_7=now))
        context = RunContext("lab", "quick", started=tonight.started, nodes=tonight.nodes)
        known = knowledge_of(tonight.checks, SETUP, store, context)
    assert known.past is not None
    runs = (known.past.count > 0).sum(axis=0)
    place = {m.subject.name: known.names.index(m.series()) for m in tonight.checks[0].measurements}
    assert (runs[place["node-7"]], runs[place["node-8"]]) == (numbers, 3)


def test_a_stored_run_is_judged_again_by_the_hardware_it_had() -> None:
    fleet = Fleet(OLD)
    nodes = {f"node-{n}": A100 if n in OLD else H100 for n in range(NODES)}
    with open_store("sqlite://") as store:
        store.save(a_run(1, fleet.judged(Knowledge(SETUP, groups=MIXED)), nodes), Path())
        stored = store.result("run-1")
        assert stored is not None
        assert {str(node["name"]): node.get("gpu_model") for node in stored.nodes} == {
            name: made.gpu_model for name, made in nodes.items()
        }
        again = rejudge(stored, store)
    assert again.verdict is Verdict.PASS
    assert "2 groups by GPU model: 58 x H100, 6 x A100" in again.checks[0].reason.sentence
