"""Numbers that some nodes lack, and rates of zero."""

from dataclasses import replace

import pytest

from seatrial.judge.assess import assess
from seatrial.judge.knowledge import Knowledge
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import code_of
from seatrial.model.result import Check, Suspect
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from tests.stored_nights import settled

NAMES = [f"node-{n}" for n in range(12)]
TWELVE = Knowledge(Setup("cpu", 12, 0, 12))


def rates(values: dict[str, float]) -> Check:
    measured = (Measurement("matmul", value, "TFLOP/s", Subject("node", name)) for name, value in values.items())
    return Check("devices", Verdict.PASS, "measured", 1.0, tuple(measured))


def judged(check: Check, knowledge: Knowledge = TWELVE, *before: Check) -> Check:
    measured = settled(check, knowledge)
    return assess([*before, replace(check, measurements=measured.measurements)], knowledge).checks[-1]


@pytest.mark.parametrize("names", [(), NAMES])
@pytest.mark.parametrize("count", [1, 11])
def test_nodes_without_a_number_that_others_have_are_inconclusive(count: int, names: list[str]) -> None:
    check = judged(rates(dict.fromkeys(NAMES[:count], 100.0)), Knowledge(TWELVE.setup, nodes=names))
    assert (check.verdict, code_of(check.reason)) == (Verdict.INCONCLUSIVE, "nodes-unmeasured")
    assert check.reason.startswith(f"matmul was measured on {count} of 12 nodes")
    assert ("node-11" in check.reason) is (bool(names) and count == 11)


def test_all_nodes_measured_pass() -> None:
    assert judged(rates(dict.fromkeys(NAMES, 100.0))).verdict is Verdict.PASS


def test_what_is_slow_stays_degraded_and_the_missing_nodes_are_named_too() -> None:
    check = judged(rates({**dict.fromkeys(NAMES[:10], 100.0), "node-10": 10.0}))
    assert check.verdict is Verdict.FAIL
    assert code_of(check.reason) == "worse-than-peers"
    assert "matmul was measured on 11 of 12 nodes (1 missing)" in check.reason


def test_a_node_that_a_check_has_taken_out_is_not_missing() -> None:
    dead = Check("connectivity", Verdict.FAIL, "node-11", suspects=(Suspect("node", "node-11", 1.0, "is down"),))
    assert judged(rates(dict.fromkeys(NAMES[:11], 100.0)), TWELVE, dead).verdict is Verdict.PASS


def test_a_check_that_says_itself_what_it_lacks_is_left_alone() -> None:
    busy = Check("devices", Verdict.INCONCLUSIVE, "busy", measurements=rates({"node-0": 100.0}).measurements)
    assert judged(busy).reason == "busy"


def test_what_only_the_cluster_has_is_not_missing_on_nodes() -> None:
    whole = Measurement("throughput", 5.0, "samples/s", Subject("cluster", "lab"))
    assert judged(Check("training", Verdict.PASS, "", measurements=(whole,))).verdict is Verdict.PASS


@pytest.mark.parametrize("count", [5, 12])
def test_a_node_that_reads_zero_is_a_suspect_and_its_peers_are_still_judged(count: int) -> None:
    values = dict.fromkeys(NAMES[:count], 100.0) | {"node-1": 0.0}
    check = judged(rates(values), Knowledge(Setup("cpu", count, 0, count)))
    assert (check.verdict, code_of(check.reason)) == (Verdict.FAIL, "zero-rate")
    assert [(s.kind, s.name) for s in check.suspects] == [("node", "node-1")]
    assert {j.measurement.subject.name for j in check.judgements if j.source == "peers"} == {
        name for name in values if name != "node-1"
    }


def test_where_every_node_reads_zero_none_is_a_suspect() -> None:
    check = judged(rates(dict.fromkeys(NAMES, 0.0)))
    assert (check.verdict, check.suspects) == (Verdict.FAIL, ())
