"""What is in doubt is measured again before anybody is blamed: how often, and what counts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seatrial.checks.repeated import Doubt, Repeated
from seatrial.history.store import Store
from seatrial.judge.assess import assess
from seatrial.judge.knowledge import Knowledge
from seatrial.judge.knowledge import RunContext
from seatrial.model.measurement import Measurement, Subject, once
from seatrial.model.result import Check, RunResult, Suspect, now
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from tasks.compare import compare
from tests.stored_nights import nights_of
from tests.unit.repeats.doubts import LAB, Nodes, collectives, plateau


def compared(store: Store, first: float, nodes: Nodes) -> Check:
    (check,) = compare([collectives(first)], LAB, store, RunContext("lab", "quick"), nodes)
    return check


@pytest.mark.parametrize(
    ("first", "then", "asked", "verdict"),
    [
        (1.0, (), 0, Verdict.PASS),  # nothing is suspicious, so nothing is repeated
        (0.1, (0.1, 1.0, 1.0), 1, Verdict.FAIL),  # two agree: it is as slow as it looked
        (0.1, (1.1, 0.9, 0.1), 2, Verdict.PASS),  # a hiccup
        (0.1, (1.0, 0.11, 1.0), 2, Verdict.FAIL),  # two of three
    ],
)
def test_repeats_end_as_soon_as_two_agree(
    store: Store, first: float, then: Sequence[float], asked: int, verdict: Verdict
) -> None:
    nodes = Nodes(*then)
    check = compared(store, first, nodes)
    assert (nodes.asked, check.verdict) == (asked, verdict)
    (judgement,) = check.judgements
    taken = [first, *then[:asked]]
    assert judgement.repeats == (tuple(taken) if asked else ())
    assert judgement.measurement.value == pytest.approx(np.median(taken))
    assert [m.value for m in check.measurements] == taken  # all of them are kept
    assert (f"the median of {len(taken)} measurements" in judgement.reason) == bool(asked)


def test_a_cleared_suspicion_is_told(store: Store) -> None:
    assert compared(store, 0.1, Nodes(1.0, 1.0)).reason == "1 sweep; as expected by history; 1 number was repeated"


def test_what_cannot_be_repeated_is_asked_for_once_and_judged_as_it_is(store: Store) -> None:
    nodes = Nodes()
    check = compared(store, 0.1, nodes)
    assert (nodes.asked, check.verdict) == (1, Verdict.FAIL)


def test_what_breaks_while_it_is_repeated_counts(store: Store) -> None:
    nodes = Nodes(1.0, 1.0, problem=(Verdict.CORRUPT, "when it was repeated: 7 wrong elements"))
    check = compared(store, 0.1, nodes)
    assert check.verdict is Verdict.CORRUPT
    assert "when it was repeated: 7 wrong elements" in check.reason


def test_what_a_check_takes_back_after_a_repeat_is_gone_and_what_broke_meanwhile_stays(store: Store) -> None:
    blamed = Suspect("link", "node-0--node-1", 0.8, "5 MB/s")
    first = replace(collectives(0.1), verdict=Verdict.DEGRADED, reason="a slow link", suspects=(blamed,))
    broke = (Verdict.CORRUPT, "when it was repeated: 7 wrong elements")
    rounds = [Repeated([plateau(1.0)], [broke]), Repeated([plateau(1.0)], check=collectives(0.1))]
    (check,) = compare(
        [first], LAB, store, RunContext("lab", "quick"), lambda doubts, until: {"collectives": rounds.pop(0)}
    )
    assert not rounds
    assert (check.verdict, check.suspects) == (Verdict.CORRUPT, ())
    assert "a slow link" not in check.reason
    assert "7 wrong elements" in check.reason
    assert [m.value for m in check.measurements] == [0.1, 1.0, 1.0]


def test_repeats_of_a_run_teach_as_one_run(store: Store) -> None:
    """A hiccup that was cleared does not drag the history down, nor make four runs of three."""
    check = compared(store, 0.1, Nodes(1.0, 1.0))
    at = now()
    store.save(RunResult("run-9", "lab", "quick", at, at, Verdict.PASS, "", checks=[check]), Path())
    judged = compared(store, 0.9, Nodes()).judgements[0]
    assert "the median 1 GB/s of 4 passing runs" in judged.reason


def test_where_enough_is_known_odds_decide_how_often() -> None:
    """A number of the whole cluster, 20 nights of 2 % noise: 15 % below is doubted until it is proven or cleared."""
    rng = np.random.default_rng(4)
    nights = nights_of([collectives(float(np.exp(0.02 * rng.standard_normal()))) for _ in range(20)])
    knowledge = Knowledge(Setup("cpu", 4, 0, 4), history=nights.values(), nights=nights)

    def doubted(*values: float) -> list[Doubt]:
        return assess([collectives(*values)], knowledge).doubts.get("collectives", [])

    assert not doubted(1.0)
    assert [(d.taken, d.most) for d in doubted(0.85)] == [(1, 12)]
    assert not doubted(0.85, 1.0, 1.01)
    taken = [0.85]
    while doubted(*taken):
        taken.append(0.85)
    assert 1 < len(taken) < 12
    assert assess([collectives(*taken)], knowledge).checks[0].verdict is Verdict.DEGRADED


def test_a_hiccup_however_deep_blames_nobody_by_itself() -> None:
    """A third of what it should be, with 1 % noise: no chance under heavy tails, and yet only a process that got in."""
    rng = np.random.default_rng(5)
    nights = nights_of([collectives(float(np.exp(0.01 * rng.standard_normal()))) for _ in range(20)])
    knowledge = Knowledge(Setup("cpu", 4, 0, 4), history=nights.values(), nights=nights)
    assert assess([collectives(0.33)], knowledge).checks[0].verdict is not Verdict.PASS  # if nothing can be repeated
    assert assess([collectives(0.33)], knowledge).doubts
    taken = [0.33]
    while assess([collectives(*taken)], knowledge).doubts:
        taken.append(1.0)
    assert 2 <= len(taken) <= 4
    assert assess([collectives(*taken)], knowledge).checks[0].verdict is Verdict.PASS
    assert assess([collectives(0.33, 0.33)], knowledge).checks[0].verdict is not Verdict.PASS
    assert not assess([collectives(0.33, 0.33)], knowledge).doubts


def test_a_series_counts_once_by_its_median() -> None:
    (m,) = once([plateau(3.0), plateau(1.0), plateau(2.0)])
    assert m.value == 2.0


@pytest.mark.parametrize(("metric", "unit"), [("tcp_egress", "MB/s"), ("matmul", "TFLOP/s")])
def test_a_coarse_number_that_looks_well_is_not_measured_again(metric: str, unit: str) -> None:
    """A loss of 10 % is not looked for in half a second of TCP; a node that is slow by far is tried again."""
    rng = np.random.default_rng(5)
    rates = 1000 * np.exp(0.2 * rng.standard_normal(64))
    rates[3] = 30.0
    measured = tuple(Measurement(metric, rate, unit, Subject("node", f"node-{i}")) for i, rate in enumerate(rates))
    check = Check("connectivity", Verdict.PASS, "", 1.0, measured)
    doubts = assess([check], Knowledge(Setup("cpu", 64, 0, 1))).doubts.get("connectivity", [])
    names = {doubt.measurement.subject.name for doubt in doubts}
    assert "node-3" in names
    assert (len(names) == 64) == (metric == "matmul")
