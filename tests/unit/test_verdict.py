"""How verdicts combine, and the three lines of a verdict: who and what against what, since when,
what to do.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from seatrial.history import open_store
from seatrial.history.rows import RunRow
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, join, placed, uncoded
from seatrial.model.result import Check, Judgement, RunResult, Suspect, merge_suspects
from seatrial.model.verdict import Verdict, worst
from seatrial.report.html import report_html
from seatrial.report.markdown import summary
from seatrial.report.terminal import closing_lines
from seatrial.runs.explanations import CATALOG
from seatrial.runs.load import load_result
from seatrial.tasks.record import write_run_json
from seatrial.text.headline import conclude, lines, next_steps, other_problems, own_reason, since
from tests import sample_sweeps, samples

PASS, FAIL, DEGRADED, INCONCLUSIVE = (
    Verdict.PASS,
    Verdict.FAIL,
    Verdict.DEGRADED,
    Verdict.INCONCLUSIVE,
)
SILENT = Reason.of("rank-silent", rank=0, device="")
REFUSED = Reason.of("ssh-refused", address="10.0.0.2", port=222)


def _slow(
    name: str, value: float, deviation: float, source: str = "peers", unit: str = "MB/s"
) -> Judgement:
    measured = Measurement("tcp_egress", value, unit, Subject("node", name))
    words = {
        "against": "the median",
        "limit": "9",
        "side": "below",
        "agreeing": 3,
        "readings": "3",
        "since": "",
    }
    reason = Reason.of("worse-than-peers", number=f"tcp_egress on {name}", percent="94", **words)
    return Judgement(measured, DEGRADED, reason, source, deviation=deviation)


def _connectivity(judgement: Judgement, *more: Suspect) -> Check:
    suspects = (Suspect("node", "node-2", 0.97, judgement.reason), *more)
    return Check(
        "connectivity", DEGRADED, judgement.reason, judgements=(judgement,), suspects=suspects
    )


def concluded(checks: Sequence[Check], nodes: int = 1) -> tuple[Verdict, str]:
    verdict, reason = conclude(checks, nodes)
    return verdict, reason.sentence


def test_reason_states_number_unit_baseline_and_difference() -> None:
    verdict, reason = conclude([_connectivity(_slow("node-2", 23.64, -0.937))], nodes=4)
    assert (verdict, reason.sentence) == (
        DEGRADED,
        "node-2 (97 % sure): tcp_egress 23.6 MB/s on node-2, peers 375 MB/s (94 % less)",
    )
    _, reason = conclude([_connectivity(_slow("node-2", 2.36, -0.997, "history", "GB/s"))], nodes=4)
    assert reason.sentence.endswith(
        "tcp_egress 2.36 GB/s on node-2, earlier runs 787 GB/s (99.7 % less)"
    )


def test_the_node_that_is_silent_is_the_subject_and_not_the_rank_that_noticed() -> None:
    noticed = uncoded("rank 1 on node-1 gave up")
    checks = [
        Check("collectives", FAIL, noticed, suspects=(Suspect("node", "node-0", 0.9, SILENT),)),
        Check("training", FAIL, uncoded("step_time of 4 of 4 nodes is longer")),
        Check(
            "connectivity",
            DEGRADED,
            uncoded("slow"),
            suspects=(Suspect("link", "node-2--node-3", 0.8, uncoded("slow")),),
        ),
    ]
    assert concluded(checks, nodes=4) == (
        FAIL,
        f"node-0 (90 % sure): {SILENT}; also link node-2--node-3",
    )
    assert own_reason(checks[0], merge_suspects(checks)) == noticed.sentence
    joined = replace(
        checks[0], reason=join((placed("node-0", SILENT), uncoded("TCP was not measured")))
    )
    assert own_reason(joined, merge_suspects(checks)) == "blames node-0; TCP was not measured"


def test_a_suspect_comes_before_a_worse_check_without_suspects() -> None:
    checks = [
        Check(
            "connectivity",
            DEGRADED,
            uncoded("slow"),
            suspects=(Suspect("node", "node-5", 0.9, uncoded("sends 24 MB/s")),),
        ),
        Check("collectives", FAIL, uncoded("all_reduce: no end within 61 s")),
    ]
    reason = "node-5 (90 % sure): sends 24 MB/s; also collectives: all_reduce: no end within 61 s"
    assert concluded(checks, nodes=16) == (FAIL, reason)


def test_number_shared_by_two_checks_is_stated_once_in_the_reason() -> None:
    judgement = replace(_slow("node-2", 23.64, -0.937), verdict=FAIL)
    checks = [
        Check(
            "connectivity",
            DEGRADED,
            uncoded("tcp_ingress is low"),
            suspects=(Suspect("node", "node-2", 0.97, judgement.reason),),
        ),
        Check("devices", FAIL, judgement.reason, judgements=(judgement,)),
    ]
    sentence = "node-2 (97 % sure): tcp_egress 23.6 MB/s on node-2, peers 375 MB/s (94 % less)"
    assert concluded(checks, nodes=4) == (FAIL, sentence)


def test_reason_names_a_shared_cause_once_and_says_if_no_node_explains_it() -> None:
    launch = Check("launch", INCONCLUSIVE, uncoded("the image cannot be pulled"))
    rest = [
        Check(name, Verdict.NOT_RUN, Reason.of("prerequisite-failed", step="launch"))
        for name in ("a", "b")
    ]
    assert concluded([launch, *rest]) == (INCONCLUSIVE, "launch: the image cannot be pulled")
    assert [str(check.reason) for check in rest] == ["launch did not work"] * 2
    unread = Reason.of("history-unavailable", problem="no such folder")
    assert conclude([Check(name, INCONCLUSIVE, unread) for name in ("launch", "teardown")])[
        1
    ] == placed("launch", unread)
    _, reason = conclude(
        [
            Check("collectives", FAIL, uncoded("no rows")),
            Check("training", FAIL, uncoded("no loss")),
        ],
        nodes=8,
    )
    assert reason.sentence == "no single node explains it: collectives: no rows; also training"


def test_other_problems_are_summarised_in_the_reason() -> None:
    nodes = [
        Measurement("matmul", 1.0, "TFLOP/s", Subject("node", f"node-{n}")) for n in range(900)
    ]
    assert (
        other_problems([*nodes, sample_sweeps.busbw(1.0)]).sentence
        == "also matmul on node-[0-899], all_reduce busbw"
    )
    assert not other_problems([])


@pytest.mark.parametrize(
    ("verdict", "earlier", "line"),
    [
        (FAIL, "", "since this run, the first of this suite here"),
        (FAIL, "p", "since 14 Mar 2026 02:00 UTC (run now), passed before"),
        (DEGRADED, "fiffp", "since 10 Mar 2026 02:00 UTC (run r4, 4 runs), passed before"),
        (FAIL, "ff", "since 12 Mar 2026 02:00 UTC (run r2, 3 runs), never different before"),
        (FAIL, "f" * 500, "since 30 Oct 2024 02:00 UTC (run r500, 501 runs), or longer"),
        (PASS, "ppf", "since 12 Mar 2026 02:00 UTC (run r2, 3 runs), fail before"),
        (INCONCLUSIVE, "ip", "since 13 Mar 2026 02:00 UTC (run r1, 2 runs), passed before"),
    ],
)
def test_since_line_states_when_the_verdict_began(
    verdict: Verdict, earlier: str, line: str
) -> None:
    kinds = {"p": PASS, "f": FAIL, "i": INCONCLUSIVE}
    start = samples.STARTED
    rows = [
        RunRow(f"r{n}", "east", "quick", at, at, kinds[kind], {}, "/gone")
        for n, kind in enumerate(earlier, 1)
        for at in [start - timedelta(days=n)]
    ]
    assert since(verdict, start, "now", rows) == line


@pytest.mark.parametrize(
    ("later", "runs"), [(1, "1 run of this suite here lies"), (4, "4 runs of this suite here lie")]
)
def test_since_line_mentions_runs_in_the_future(later: int, runs: str) -> None:
    """As after the clock of this machine was set back."""
    line = (
        f"{runs} in the future of this run and were not compared with it: check this "
        "machine's clock"
    )
    assert since(PASS, samples.STARTED, "now", [], later) == line


def _run() -> RunResult:
    check = Check(
        "connectivity", FAIL, REFUSED, suspects=(Suspect("node", "node-1", 1.0, REFUSED),)
    )
    verdict, reason = conclude([check], nodes=4)
    run = replace(
        samples.healthy_local(),
        verdict=verdict,
        reason=reason,
        checks=[check],
        suspects=check.suspects,
    )
    return replace(
        run, since="since 14 Mar 2026 02:00 UTC (run x), passed before", next_steps=next_steps(run)
    )


def test_all_outputs_show_the_same_summary_lines_and_run_json_keeps_them(tmp_path: Path) -> None:
    run = _run()
    step = (CATALOG["ssh-refused"].next_step or "").rstrip(".")
    expected = [
        f"fail: node-1 (100 % sure): {REFUSED}",
        run.since,
        f"next: node-1: {step}; seatrial explain ssh-refused",
    ]
    assert list(lines(run)) == run.to_dict()["summary"] == expected
    assert closing_lines(run, "utf-8").splitlines() == [expected[1], expected[2], expected[0]]
    page, text = re.sub("</?code>", "`", report_html(run)), summary(run).replace("\\", "")
    for line in expected:
        assert line in page.replace("&#39;", "'")
        assert line.replace("`", "") in text.replace("`", "")
    write_run_json(run, tmp_path)
    assert list(lines(load_result(tmp_path))) == expected


def test_history_marks_runs_without_a_baseline(tmp_path: Path) -> None:
    judged = sample_sweeps.judge(sample_sweeps.plateau(0.7), 0.7, 0.1, "history")
    nothing = replace(judged, source="sanity", expected=type(judged.expected)())
    with open_store(f"sqlite:///{tmp_path / 'h.sqlite'}") as store:
        for run_id, judgement in (("first", nothing), ("later", judged)):
            check = Check("collectives", PASS, uncoded("fine"), judgements=(judgement,))
            store.save(replace(samples.healthy_local(), run_id=run_id, checks=[check]), tmp_path)
        assert {row.run_id: row.lacks_baseline for row in store.runs()} == {
            "first": True,
            "later": False,
        }


WORST_FIRST = [
    Verdict.CORRUPT,
    Verdict.FAIL,
    Verdict.DEGRADED,
    Verdict.INCONCLUSIVE,
    Verdict.NOT_RUN,
    Verdict.PASS,
]


def test_verdict_of_no_checks_is_inconclusive() -> None:
    assert worst([]) is Verdict.INCONCLUSIVE
    assert concluded([]) == (Verdict.INCONCLUSIVE, "nothing was measured")


@pytest.mark.parametrize("index", range(len(WORST_FIRST)))
def test_worst_returns_the_worst_verdict(index: int) -> None:
    assert worst(WORST_FIRST[index:]) is WORST_FIRST[index]


def test_each_verdict_has_its_exit_status() -> None:
    assert [verdict.exit_status for verdict in WORST_FIRST] == [1, 1, 1, 3, 3, 0]


def test_reason_is_that_of_the_worst_check() -> None:
    checks = [
        Check("a", Verdict.PASS, uncoded("fine")),
        Check("b", Verdict.FAIL, uncoded("broken")),
        Check("c", Verdict.FAIL, uncoded("too")),
        Check("d", Verdict.NOT_RUN, uncoded("no")),
    ]
    assert concluded(checks) == (Verdict.FAIL, "b: broken; also c")


@pytest.mark.parametrize(
    ("reason", "verdict", "suspects", "evidence"),
    [
        ("41 GB/s, 40 % below", Verdict.FAIL, {"n1": 0.9}, "n1 (90 % sure): n1 is slow"),
        ("slow", Verdict.FAIL, {"n1": 0.4}, "no single node explains it: a: slow"),
        (
            "slow",
            Verdict.DEGRADED,
            {"n1": 0.9, "n2": 0.8, "n3": 0.7},
            "n1 (90 % sure): n1 is slow; also n[2-3]",
        ),
        ("no answer", Verdict.INCONCLUSIVE, {"n1": 0.9}, "a: no answer"),
    ],
)
def test_reason_of_a_fault_is_the_evidence_of_its_suspect(
    reason: str, verdict: Verdict, suspects: dict[str, float], evidence: str
) -> None:
    blamed = tuple(
        Suspect("node", name, confidence, uncoded(f"{name} is slow"))
        for name, confidence in suspects.items()
    )
    assert concluded([Check("a", verdict, uncoded(reason), suspects=blamed)], nodes=4) == (
        verdict,
        evidence,
    )


def test_same_suspect_of_several_checks_is_merged() -> None:
    checks = [
        Check("a", Verdict.FAIL, Reason(), suspects=(Suspect("node", "n1", 0.5, uncoded("slow")),)),
        Check(
            "b",
            Verdict.FAIL,
            Reason(),
            suspects=(
                Suspect("node", "n1", 0.9, uncoded("refused")),
                Suspect("link", "n1", 0.6, uncoded("x")),
            ),
        ),
    ]
    assert merge_suspects(checks) == [
        Suspect("node", "n1", 0.9, uncoded("slow; refused"), FAIL),
        Suspect("link", "n1", 0.6, uncoded("x"), FAIL),
    ]
    corrupt = Check(
        "c",
        Verdict.CORRUPT,
        Reason(),
        suspects=(
            Suspect("node", "n2", 0.6, uncoded("wrong")),
            Suspect("node", "n3", 0.2, uncoded("")),
        ),
    )
    assert [suspect.name for suspect in merge_suspects([*checks, corrupt])] == [
        "n2",
        "n1",
        "n1",
        "n3",
    ]
