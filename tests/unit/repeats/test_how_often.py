"""What is in doubt is measured again before anybody is blamed: how often, and what counts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seatrial.checks.contract import Doubt, Repeated
from seatrial.history.store import Store
from seatrial.judge.assess import assess
from seatrial.judge.knowledge import Knowledge, RunContext
from seatrial.judge.outliers import MOST_READINGS
from seatrial.judge.references import AGREEING
from seatrial.model.measurement import Measurement, Subject, SubjectKind, once
from seatrial.model.result import Check, RunResult, Suspect, now
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from tasks.check import compare
from tests.stored_nights import knowing
from tests.unit.repeats.doubts import LAB, Nodes, collectives, plateau


def compared(store: Store, first: float, nodes: Nodes) -> Check:
    (check,) = compare([collectives(first)], LAB, store, RunContext("lab", "quick"), nodes)
    return check


@pytest.mark.parametrize(
    ("first", "then", "most", "verdict"),
    [
        (1.0, (), 0, Verdict.PASS),  # nothing is suspicious, so nothing is repeated
        (0.1, (1.1, 0.9, 1.0), 2, Verdict.PASS),  # a hiccup
        (0.1, (1.1, 0.9, 0.1), 2, Verdict.PASS),
        (0.1, (0.1,) * 24, 10, Verdict.FAIL),  # three runs say little about strays, so that many must agree
    ],
)
def test_repeats_end_as_soon_as_it_is_sure(
    store: Store, first: float, then: Sequence[float], most: int, verdict: Verdict
) -> None:
    nodes = Nodes(*then)
    check = compared(store, first, nodes)
    assert check.verdict is verdict
    assert nodes.asked <= most
    (judgement,) = check.judgements
    taken = [first, *then[: nodes.asked]]
    assert judgement.repeats == pytest.approx(taken if nodes.asked else [])
    assert judgement.measurement.value == pytest.approx(np.median(taken))
    assert [m.value for m in check.measurements] == taken  # all of them are kept
    assert (f"in {len(taken)} of {len(taken)} measurements" in judgement.reason) == (verdict is Verdict.FAIL)


@pytest.mark.parametrize(("slow", "asked"), [(30.0, AGREEING - 1), (980.0, MOST_READINGS - 1)])
def test_what_a_suspect_explains_is_not_measured_until_it_is_proven(store: Store, slow: float, asked: int) -> None:
    """The node's own numbers are repeated first; the number of all nodes goes on only if they clear it."""
    rates = [1000.0, 1010.0, 990.0, 1005.0, 995.0, slow]
    tcp = [Measurement("tcp_egress", rate, "MB/s", Subject("node", f"node-{i}")) for i, rate in enumerate(rates)]
    requests: list[Mapping[str, Sequence[Doubt]]] = []

    def again(doubts: Mapping[str, Sequence[Doubt]], until: float) -> dict[str, Repeated]:
        requests.append(doubts)
        return {name: Repeated([doubt.measurement for doubt in some]) for name, some in doubts.items()}

    checks = [Check("connectivity", Verdict.PASS, "", 1.0, tuple(tcp)), collectives(0.65)]
    judged = compare(checks, LAB, store, RunContext("lab", "quick"), again)
    suspects = [suspect.name for check in judged for suspect in check.suspects]
    assert suspects == (["node-5"] if slow < 900 else [])
    assert sum("collectives" in doubts for doubts in requests) == asked
    assert len(judged[1].measurements) == 1 + asked


def test_a_cleared_suspicion_is_told(store: Store) -> None:
    assert compared(store, 0.1, Nodes(1.0, 1.0)).reason == "1 sweep; as expected by history; 1 number was repeated"


def test_what_cannot_be_repeated_is_asked_for_once_and_judged_as_it_is(store: Store) -> None:
    """One reading blames nobody, and is no pass."""
    nodes = Nodes()
    check = compared(store, 0.1, nodes)
    assert (nodes.asked, check.suspects) == (1, ())
    assert check.verdict is not Verdict.PASS


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
    assert "its median of 1 in 4 runs" in judged.reason


@pytest.fixture
def known() -> Knowledge:
    """A number of the whole cluster, 20 runs of 2 % noise around 1."""
    rng = np.random.default_rng(4)
    return knowing(LAB, [collectives(float(np.exp(0.02 * rng.standard_normal()))) for _ in range(20)])


def taken_until_sure(known: Knowledge, *values: float) -> tuple[int, Verdict]:
    """How many of `values` are read before nothing is in doubt, and the verdict on them."""
    assessments = (assess([collectives(*values[:count])], known) for count in range(1, len(values) + 1))
    count, assessment = next((n, a) for n, a in enumerate(assessments, 1) if not a.doubts)
    return count, assessment.checks[0].verdict


def test_what_reads_low_is_measured_until_it_is_proven_or_cleared(known: Knowledge) -> None:
    assert taken_until_sure(known, 1.0) == (1, Verdict.PASS)
    assert taken_until_sure(known, *[0.8] * 24) == (AGREEING, Verdict.DEGRADED)
    assert taken_until_sure(known, 0.8, *[1.0] * 23) == (AGREEING, Verdict.PASS)
    (doubt,) = assess([collectives(0.8)], known).doubts["collectives"]
    assert (doubt.taken, doubt.most) == (1, MOST_READINGS)


@pytest.mark.parametrize("value", [0.8, 0.33, 0.01])
def test_one_reading_blames_nobody_however_deep_and_three_do(known: Knowledge, value: float) -> None:
    for count in (1, 2):
        assessment = assess([collectives(*[value] * count)], known)
        assert assessment.doubts
        assert assessment.checks[0].verdict not in (Verdict.DEGRADED, Verdict.FAIL)
    assert assess([collectives(*[value] * 3)], known).checks[0].verdict in (Verdict.DEGRADED, Verdict.FAIL)
    assert taken_until_sure(known, value, *[1.0] * 23)[1] is Verdict.PASS


def test_a_series_counts_once_by_its_median() -> None:
    (m,) = once([plateau(3.0), plateau(1.0), plateau(2.0)])
    assert m.value == 2.0


@pytest.mark.parametrize(("metric", "kind"), [("tcp_egress", "node"), ("matmul", "node"), ("matmul", "gpu")])
def test_a_coarse_number_that_looks_well_is_not_measured_again(metric: str, kind: SubjectKind) -> None:
    """A loss of 10 % is not looked for in half a second of TCP; a node that is slow by far is tried again."""
    rng = np.random.default_rng(5)
    rates = 1000 * np.exp(0.2 * rng.standard_normal(64))
    rates[3] = 30.0
    measured = tuple(Measurement(metric, rate, "", Subject(kind, f"node-{i}")) for i, rate in enumerate(rates))
    check = Check("connectivity", Verdict.PASS, "", 1.0, measured)
    doubts = assess([check], Knowledge(Setup("cpu", 64, 0, 1))).doubts.get("connectivity", [])
    names = {doubt.measurement.subject.name for doubt in doubts}
    assert "node-3" in names
    assert (len(names) == 64) == (kind == "gpu")
