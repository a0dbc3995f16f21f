"""What is in doubt is measured again before a part is blamed: which sweeps, how often, and what
counts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from seatrial.checks import table as step
from seatrial.checks.collectives import sweep
from seatrial.checks.collectives.check import COLLECTIVES
from seatrial.checks.contract import CheckContext, Problem, Repeated
from seatrial.checks.metrics import Doubt
from seatrial.checks.table import repeat_checks
from seatrial.detection.noise import AGREEING
from seatrial.detection.outliers import MOST_READINGS
from seatrial.history.past import RunContext
from seatrial.history.store import Store
from seatrial.judge.assess import Assessment, assess
from seatrial.judge.knowledge import Knowledge
from seatrial.model.measurement import Measurement, Subject, SubjectKind, once
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check, RunResult, Suspect, now
from seatrial.model.setup import Setup
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi_result import MpiResult
from seatrial.tasks.check import RepeatBudget, compare
from tests.stored_nights import knowing
from tests.unit.collectives.fake_mpirun import FakeMpirun, make_run, make_testbed, result, table
from tests.unit.repeats.doubts import LAB, Nodes, collectives, doubt, operation_and_sizes, plateau


def compared(store: Store, first: float, nodes: Nodes) -> Check:
    (check,) = compare([collectives(first)], LAB, store, RunContext("lab", "quick"), nodes)
    return check


@pytest.mark.parametrize(
    ("first", "then", "most", "verdict"),
    [
        (1.0, (), 0, Verdict.PASS),  # nothing is suspicious, so nothing is repeated
        (0.1, (1.1, 0.9, 1.0), 2, Verdict.PASS),  # a hiccup
        (0.1, (1.1, 0.9, 0.1), 2, Verdict.PASS),
        # Three runs say little about strays, so that many must agree
        (0.1, (0.1,) * 24, 10, Verdict.FAIL),
    ],
)
def test_repeats_end_as_soon_as_the_verdict_is_certain(
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
    assert (f"in {len(taken)} of {len(taken)} measurements" in judgement.reason.sentence) == (
        verdict is Verdict.FAIL
    )


@pytest.mark.parametrize(
    ("slow", "asked"),
    [(30.0, range(AGREEING - 1, AGREEING)), (980.0, range(AGREEING, MOST_READINGS))],
)
def test_slow_cluster_number_that_a_suspect_explains_is_not_repeated_to_proof(
    store: Store, slow: float, asked: range
) -> None:
    """The numbers of the node are repeated first; if they clear it, the cluster number is repeated
    until it is proven.
    """
    rates = [1000.0, 1010.0, 990.0, 1005.0, 995.0, slow]
    tcp = [
        Measurement("tcp_egress", rate, "MB/s", Subject("node", f"node-{i}"))
        for i, rate in enumerate(rates)
    ]
    requests: list[Mapping[str, Sequence[Doubt]]] = []

    def again(doubts: Mapping[str, Sequence[Doubt]], until: float) -> dict[str, Repeated]:
        requests.append(doubts)
        return {
            name: Repeated([doubt.measurement for doubt in some]) for name, some in doubts.items()
        }

    checks = [Check("connectivity", Verdict.PASS, Reason(), 1.0, tuple(tcp)), collectives(0.4)]
    judged = compare(checks, LAB, store, RunContext("lab", "quick"), again)
    suspects = [suspect.name for check in judged for suspect in check.suspects]
    assert suspects == (["node-5"] if slow < 900 else [])
    assert sum("collectives" in doubts for doubts in requests) in asked
    assert len(judged[1].measurements) - 1 in asked


class Clock:
    """Stands where time.monotonic is."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize(
    ("checks_s", "repeat_s", "asked"),
    [
        (1.0, 7.0, 4),  # LEAST_REPEATS_S
        (60.0, 7.0, 8),  # as long as the checks took
        (1.0, 31.0, 1),
    ],
)
def test_repeats_take_no_longer_than_the_checks(
    store: Store, monkeypatch: pytest.MonkeyPatch, checks_s: float, repeat_s: float, asked: int
) -> None:
    clock, nodes = Clock(), Nodes(*[0.4] * 24)
    monkeypatch.setattr("seatrial.tasks.check.time.monotonic", clock)

    def again(doubts: Mapping[str, Sequence[Doubt]], until: float) -> dict[str, Repeated]:
        clock.seconds += repeat_s
        return nodes(doubts, until)

    compare(
        [replace(collectives(0.4), seconds=checks_s)], LAB, store, RunContext("lab", "quick"), again
    )
    assert nodes.asked == asked


def test_check_that_spent_least_time_on_repeats_is_repeated_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seatrial.tasks.check.time.monotonic", Clock())
    checks = [
        Check("training", Verdict.PASS, Reason(), 10.0),
        Check("collectives", Verdict.PASS, Reason(), 8.0),
    ]
    budget, order = RepeatBudget(checks, math.inf), []
    for _ in range(6):
        order.append(budget.next_of({"training": [doubt()], "collectives": [doubt()]}))
        budget.spend(order[-1], 3.0 if order[-1] == "collectives" else 10.0)
    assert order == [
        "collectives",
        "collectives",
        "collectives",
        "training",
        "collectives",
        "collectives",
    ]


def test_check_that_may_name_a_node_is_repeated_before_one_that_cannot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a run that spent its time for repeats on training, while two readings of a node were 70
    % too low.
    """
    monkeypatch.setattr("seatrial.tasks.check.time.monotonic", Clock())
    checks = [Check(name, Verdict.PASS, Reason(), 9.0) for name in ("devices", "training")]
    budget, order = RepeatBudget(checks, math.inf), list[str]()
    of_node = Measurement("matmul", 0.05, "TFLOP/s", Subject("node", "node-2"))
    for _ in range(4):
        doubts = {"devices": [Doubt(of_node, 1 + len(order), 24)], "training": [doubt()]}
        order.append(budget.next_of(doubts))
        budget.spend(order[-1], 7.0)
    assert order == ["devices", "devices", "training", "training"]


def test_a_whole_check_is_not_begun_again_without_the_time_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr("seatrial.tasks.check.time.monotonic", clock)
    budget = RepeatBudget([Check("training", Verdict.PASS, Reason(), 20.0)], math.inf)
    assert budget.affordable({"training": [doubt()]})
    clock.seconds += 15.0
    assert not budget.affordable({"training": [doubt()]})


def test_a_cleared_suspicion_is_reported(store: Store) -> None:
    assert (
        compared(store, 0.1, Nodes(1.0, 1.0)).reason.sentence
        == "1 sweep; as expected by history; 1 number was repeated"
    )


def test_failed_repeat_is_asked_for_once_and_the_run_does_not_pass(store: Store) -> None:
    """One low reading blames nobody and is no pass."""
    nodes = Nodes()
    check = compared(store, 0.1, nodes)
    assert (nodes.asked, check.suspects) == (1, ())
    assert check.verdict is not Verdict.PASS


def test_problem_found_during_a_repeat_decides_the_verdict(store: Store) -> None:
    nodes = Nodes(
        1.0,
        1.0,
        problem=Problem(Verdict.CORRUPT, uncoded("when it was repeated: 7 wrong elements")),
    )
    check = compared(store, 0.1, nodes)
    assert check.verdict is Verdict.CORRUPT
    assert "when it was repeated: 7 wrong elements" in check.reason.sentence


def test_suspect_withdrawn_after_a_repeat_is_dropped_and_problems_stay(
    store: Store,
) -> None:
    blamed = Suspect("link", "node-0--node-1", 0.8, uncoded("5 MB/s"))
    first = replace(
        collectives(0.1),
        verdict=Verdict.DEGRADED,
        reason=uncoded("a slow link"),
        suspects=(blamed,),
    )
    broke = Problem(Verdict.CORRUPT, uncoded("when it was repeated: 7 wrong elements"))
    rounds = [Repeated([plateau(1.0)], [broke]), Repeated([plateau(1.0)], check=collectives(0.1))]
    (check,) = compare(
        [first],
        LAB,
        store,
        RunContext("lab", "quick"),
        lambda doubts, until: {"collectives": rounds.pop(0)},
    )
    assert not rounds
    assert (check.verdict, check.suspects) == (Verdict.CORRUPT, ())
    assert "a slow link" not in check.reason.sentence
    assert "7 wrong elements" in check.reason.sentence
    assert [m.value for m in check.measurements] == [0.1, 1.0, 1.0]


def test_repeats_count_as_one_run_in_the_history(store: Store) -> None:
    """A low reading that repeats cleared does not lower the median of the history."""
    check = compared(store, 0.1, Nodes(1.0, 1.0))
    at = now()
    store.save(
        RunResult("run-9", "lab", "quick", at, at, Verdict.PASS, Reason(), checks=[check]), Path()
    )
    judged = compared(store, 0.9, Nodes()).judgements[0]
    assert "its median of 1 GB/s in 4 runs" in judged.reason.sentence


@pytest.fixture
def known() -> Knowledge:
    """A number of the whole cluster, 20 runs of 2 % noise around 1."""
    rng = np.random.default_rng(4)
    return knowing(
        LAB, [collectives(float(np.exp(0.02 * rng.standard_normal()))) for _ in range(20)]
    )


def taken_until_sure(known: Knowledge, *values: float) -> tuple[int, Verdict]:
    """How many of `values` are read before nothing is in doubt, and the verdict on them."""
    assessments = (
        assess([collectives(*values[:count])], known) for count in range(1, len(values) + 1)
    )
    count, assessment = next((n, a) for n, a in enumerate(assessments, 1) if not a.doubts)
    return count, assessment.checks[0].verdict


def test_low_reading_is_repeated_until_it_is_proven_or_cleared(known: Knowledge) -> None:
    assert taken_until_sure(known, 1.0) == (1, Verdict.PASS)
    assert taken_until_sure(known, *[0.8] * 24) == (AGREEING, Verdict.DEGRADED)
    assert taken_until_sure(known, 0.8, *[1.0] * 23) == (AGREEING, Verdict.PASS)
    (doubt,) = assess([collectives(0.8)], known).doubts["collectives"]
    assert (doubt.taken, doubt.most) == (1, MOST_READINGS)


@pytest.mark.parametrize("value", [0.8, 0.33, 0.01])
def test_one_low_reading_never_blames_and_three_do(known: Knowledge, value: float) -> None:
    for count in (1, 2):
        assessment = assess([collectives(*[value] * count)], known)
        assert assessment.doubts
        assert assessment.checks[0].verdict not in (Verdict.DEGRADED, Verdict.FAIL)
    assert assess([collectives(*[value] * 3)], known).checks[0].verdict in (
        Verdict.DEGRADED,
        Verdict.FAIL,
    )
    assert taken_until_sure(known, value, *[1.0] * 23)[1] is Verdict.PASS


def test_once_replaces_repeated_measurements_by_their_median() -> None:
    (m,) = once([plateau(3.0), plateau(1.0), plateau(2.0)])
    assert m.value == 2.0


@pytest.mark.parametrize(
    ("metric", "kind"), [("tcp_egress", "node"), ("matmul", "node"), ("matmul", "gpu")]
)
def test_coarse_metric_is_repeated_only_for_nodes_that_read_low(
    metric: str, kind: SubjectKind
) -> None:
    """Half a second of TCP is too short to find a loss of 10 %; only far slower nodes are measured
    again.
    """
    rng = np.random.default_rng(5)
    rates = 1000 * np.exp(0.2 * rng.standard_normal(64))
    rates[3] = 30.0
    measured = tuple(
        Measurement(metric, rate, "", Subject(kind, f"node-{i}")) for i, rate in enumerate(rates)
    )
    check = Check("connectivity", Verdict.PASS, Reason(), 1.0, measured)
    doubts = assess([check], Knowledge(Setup("cpu", 64, 0, 1))).doubts.get("connectivity", [])
    names = {doubt.measurement.subject.name for doubt in doubts}
    assert "node-3" in names
    assert (len(names) == 64) == (kind == "gpu")


@pytest.mark.parametrize(("share", "again"), [(0.25, False), (0.45, True)])
def test_coarse_metric_is_repeated_below_a_third_of_its_limit(share: float, again: bool) -> None:
    ranks = (np.arange(64) + 0.5) / 64
    rates = 1000 * np.exp([0.02 * NormalDist().inv_cdf(rank) for rank in ranks])

    def assessed(node: float) -> Assessment:
        measured = (
            Measurement("tcp_egress", rate, "MB/s", Subject("node", f"node-{i}"))
            for i, rate in enumerate([*rates, node])
        )
        check = Check("connectivity", Verdict.PASS, Reason(), 1.0, tuple(measured))
        return assess([check], Knowledge(Setup("cpu", 65, 0, 1)))

    low = assessed(1000.0).checks[0].judgements[-1].expected.low
    assert low is not None
    doubts = assessed(1000 * (low / 1000) ** share).doubts.get("connectivity", [])
    assert ("node-64" in {doubt.measurement.subject.name for doubt in doubts}) is again


def test_only_the_doubtful_operation_and_sizes_are_swept_again(
    again: Callable[..., tuple[FakeMpirun, dict[str, Repeated]]],
) -> None:
    fake, by_check = again(doubt(message_bytes=16384, placement="out_of_place"))
    assert [operation_and_sizes(argv) for argv in fake.argvs] == [("all_reduce", "16384", "16384")]
    # Not the latency or the plateau of that one size
    (m,) = by_check["collectives"].measurements
    assert (m.metric, m.conditions["message_bytes"], m.conditions["placement"]) == (
        "busbw",
        16384,
        "out_of_place",
    )


def test_a_plateau_is_repeated_by_the_sizes_that_make_it(
    again: Callable[..., tuple[FakeMpirun, dict[str, Repeated]]],
) -> None:
    fake, _ = again(doubt(max_bytes=65536))
    assert [operation_and_sizes(argv) for argv in fake.argvs] == [("all_reduce", "4096", "65536")]


def test_wrong_elements_in_a_repeat_are_a_problem_of_the_cluster(
    again: Callable[..., tuple[FakeMpirun, dict[str, Repeated]]],
) -> None:
    _, by_check = again(doubt(message_bytes=16384, placement="out_of_place"), wrong=5)
    (problem,) = by_check["collectives"].problems
    assert problem.verdict is Verdict.CORRUPT
    assert "wrong elements" in problem.reason.sentence


def test_check_without_a_repeat_function_returns_an_empty_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "CHECKS", [replace(COLLECTIVES, repeat=None)])
    assert repeat_checks(
        CheckContext(make_run(tmp_path), make_testbed()), {"collectives": [doubt()]}
    ) == {"collectives": Repeated()}


def test_numbers_of_other_ranks_than_there_are_now_are_not_asked_for(
    again: Callable[..., tuple[FakeMpirun, dict[str, Repeated]]],
) -> None:
    fake, by_check = again(doubt(max_bytes=65536, ranks=8))
    assert (fake.argvs, by_check["collectives"].measurements) == ([], [])


def test_no_log_of_a_repeat_is_overwritten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two rounds whose doubts were taken once each, of other sizes."""
    logs = []

    def logged(testbed: Testbed, argv: Sequence[str], **options: Any) -> MpiResult:
        options["log_file"].parent.mkdir(parents=True, exist_ok=True)
        options["log_file"].write_text("")
        logs.append(options["log_file"].name)
        return result(table())

    monkeypatch.setattr(sweep, "mpirun", logged)
    for size in (4096, 16384):
        again = {"collectives": [doubt(message_bytes=size, placement="in_place")]}
        repeat_checks(CheckContext(make_run(tmp_path), make_testbed()), again)
    assert logs == ["all_reduce-again-1.log", "all_reduce-again-2.log"]
