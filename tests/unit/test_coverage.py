"""A pass that was compared with nothing says so, and does not count where a baseline is
required.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.alerts import slack
from seatrial.flows.serving.ui import has_verdict, state_of
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check, Expected, Judgement, RunResult, coverage, exit_status
from seatrial.model.verdict import Verdict
from seatrial.report import markdown
from seatrial.report.html import report_html
from seatrial.report.metrics import headlines, registry
from seatrial.report.terminal import closing_lines
from seatrial.text.headline import lines
from tests import samples
from tests.command_line import command
from tests.unit.judge_traps.sweeplogs import HEALTHY, log_text

WHOLE = Subject("cluster", "local")


def judgement(
    source: str, metric: str = "busbw", verdict: Verdict = Verdict.PASS, **conditions: str | int
) -> Judgement:
    m = Measurement(metric, 0.3, "GB/s", WHOLE, conditions)
    bounds = Expected() if source == "sanity" else Expected(low=0.2)
    return Judgement(m, verdict, Reason(), source, bounds)


def check(name: str, *judgements: Judgement) -> Check:
    return Check(name, Verdict.PASS, uncoded("ok"), judgements=judgements)


def a_run(*checks: Check, verdict: Verdict = Verdict.PASS) -> RunResult:
    return replace(
        samples.healthy_local(), checks=checks, verdict=verdict, reason=uncoded("all pass")
    )


FIRST_NIGHT = a_run(
    check("connectivity", judgement("sanity", "tcp_egress"), judgement("peers", "tcp_egress")),
    check(
        "collectives",
        *(judgement("sanity", operation="all_reduce", message_bytes=size) for size in (4, 16)),
    ),
)
LATER = a_run(
    check(
        "collectives",
        judgement("sanity", operation="all_reduce", message_bytes=4),
        judgement("history", operation="all_reduce", message_bytes=16),
    )
)


def test_coverage_counts_a_number_once_and_an_operation_by_one_size() -> None:
    assert FIRST_NIGHT.coverage.to_dict() == {
        "judged": 1,
        "measured": 3,
        "without_baseline": ["collectives: all_reduce"],
    }
    assert (FIRST_NIGHT.coverage.extent, LATER.coverage.extent, LATER.coverage.judged) == (
        "some",
        "all",
        1,
    )
    assert coverage([]).extent is None


@pytest.mark.parametrize(
    ("result", "judged"),
    [
        (FIRST_NIGHT, "some"),
        (LATER, "all"),
        (a_run(FIRST_NIGHT.checks[1]), "none"),
        (a_run(), "none"),
        (replace(FIRST_NIGHT, verdict=Verdict.FAIL), "some"),
    ],
)
def test_run_json_says_how_much_was_judged(result: RunResult, judged: str) -> None:
    assert result.to_dict()["judged"] == judged


def test_check_without_numbers_has_no_baseline_count() -> None:
    assert Check("image", Verdict.PASS, uncoded("built")).to_dict()["judged"] is None


def test_number_judged_bad_by_sanity_counts_as_compared() -> None:
    assert judgement("sanity", verdict=Verdict.INCONCLUSIVE).compared


def test_headline_states_how_many_numbers_were_compared() -> None:
    line = "pass (no baseline yet: 1 of 3 numbers compared): all pass"
    assert closing_lines(FIRST_NIGHT).splitlines()[-1] == lines(FIRST_NIGHT)[0] == line
    assert lines(FIRST_NIGHT)[2].endswith("; seatrial explain no-baseline")
    assert (lines(LATER)[0], lines(LATER)[2]) == ("pass: all pass", "next: nothing to do")
    assert lines(replace(FIRST_NIGHT, verdict=Verdict.FAIL))[0] == "fail: all pass"


def test_html_markdown_and_slack_state_missing_baselines_beside_the_verdict() -> None:
    page, later = report_html(FIRST_NIGHT), report_html(LATER)
    assert (
        '<h1>pass<span class="soft"> (no baseline yet: 1 of 3 numbers compared)</span>: '
        "all pass</h1>"
    ) in page
    assert "<h1>pass: all pass</h1>" in later
    assert '<span class="chip pass open">' in page and '<span class="chip pass open">' not in later
    assert markdown.summary(FIRST_NIGHT).startswith("## ✓ local\n\n**pass (no baseline yet: 1 of 3")
    assert "no baseline yet: 1 of 3" in slack.digest(FIRST_NIGHT)


def test_metrics_have_the_verdict_and_how_much_was_compared() -> None:
    collected = registry(FIRST_NIGHT, None)
    own = {"cluster": "local", "suite": "quick"}
    values = {
        v: collected.get_sample_value("seatrial_verdict", {**own, "verdict": v.value})
        for v in Verdict
    }
    assert values == {v: float(v is Verdict.PASS) for v in Verdict}
    assert collected.get_sample_value("seatrial_judged_numbers", own) == 1
    assert headlines(FIRST_NIGHT)


@pytest.mark.parametrize(
    ("result", "required", "status", "kind"),
    [
        (FIRST_NIGHT, False, 0, "COMPLETED"),
        (FIRST_NIGHT, True, 3, "CRASHED"),
        (LATER, True, 0, "COMPLETED"),
        (replace(FIRST_NIGHT, verdict=Verdict.FAIL), True, 1, "FAILED"),
    ],
)
def test_a_required_baseline_decides_the_exit_status_and_the_flow_state(
    result: RunResult, required: bool, status: int, kind: str
) -> None:
    assert exit_status(result.verdict, result.coverage, required) == status
    state = state_of(result, required)
    assert state.type.value == kind
    assert has_verdict(state)


@pytest.mark.parametrize(
    ("hardware", "extra", "status", "first"),
    [
        ("H100-SXM", [], 0, "pass: "),
        ("H100-SXM", ["--require-baseline"], 0, "pass: "),
        ("other", [], 0, "pass (no baseline yet: 0 of 12 numbers compared): "),
        ("other", ["--require-baseline"], 3, "pass (no baseline yet: 0 of 12 numbers compared): "),
    ],
)
def test_a_log_of_unknown_hardware_passes_by_sanity_and_says_so(
    hardware: str,
    extra: list[str],
    status: int,
    first: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "sweep.log"
    log.write_text(log_text(HEALTHY))
    flags = (
        "judge",
        str(log),
        "--hardware",
        hardware,
        "--nodes",
        "1",
        "--gpus-per-node",
        "8",
        *extra,
    )
    assert command(*flags) == status
    assert capsys.readouterr().out.splitlines()[-1].startswith(first)
    assert command(*flags, "--json") == status
    assert json.loads(capsys.readouterr().out)["judged"] == (
        "all" if hardware == "H100-SXM" else "none"
    )
