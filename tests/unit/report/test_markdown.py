"""A run as Markdown and as JUnit XML."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from seatrial.model.curves import bad_judgements
from seatrial.model.measurement import Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.report.junit import junit_xml
from seatrial.report.markdown import MAX_ROWS, judgement_rows, summary
from tests import samples


def test_the_summary_reads_from_verdict_to_software() -> None:
    text = summary(samples.faulty_h100())
    order = [
        "## ✕ h100-east\n",
        "**fail: node-5 (97 % sure)",
        "### Suspects",
        "### Checks",
        "### Not as expected",
        "nccl `2.26.2`",
    ]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert "more judgements in `run.json`" in text


def test_hostile_text_does_not_break_markdown_tables() -> None:
    text = summary(samples.hostile("a|b\nc `d` <b>&lt; [x](http://y) @all"))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    columns = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert columns == {5, 7}
    outside_code = re.sub(r"(?<!\\)`[^`]*`", "", text)  # what stands in code is literal
    assert "<b>" not in outside_code
    assert not re.search(r"(?<!\\)\[x", outside_code)


def test_notes_follow_the_checks() -> None:
    run = replace(
        samples.healthy_local(), notes=("collectives left out", *("kept\nuntil | noon",) * MAX_ROWS)
    )
    text = summary(run)
    assert "- collectives left out\n- kept until" in text
    assert "and 1 more notes in `run.json`" in text


def test_a_passing_run_has_no_bad_rows() -> None:
    text = summary(samples.healthy_local())
    assert "Not as expected" not in text
    assert "Suspects" not in text


def test_rows_are_flat_and_the_worst_come_first() -> None:
    rows = judgement_rows(samples.faulty_h100(), limit=MAX_ROWS)
    assert len(rows) == MAX_ROWS
    assert rows[0]["verdict"] == "fail"
    assert all(isinstance(cell, str) for row in rows for cell in row.values())
    assert judgement_rows(samples.faulty_h100())[-1]["verdict"] == "pass"


def test_bad_numbers_are_sorted_by_verdict_then_sweep_then_deviation() -> None:
    (check, bad), *_ = bad_judgements(samples.faulty_h100().checks)
    ordered = tuple(
        replace(
            bad,
            verdict=verdict,
            deviation=off,
            measurement=replace(bad.measurement, conditions=conditions),
        )
        for verdict, off, conditions in (
            (Verdict.FAIL, -0.2, {}),
            (Verdict.FAIL, -0.1, {}),
            (Verdict.FAIL, -0.8, {"message_bytes": 8}),
            (Verdict.DEGRADED, -0.9, {}),
        )
    )
    rows = bad_judgements([replace(check, judgements=ordered[::-1])])
    assert tuple(judgement for _, judgement in rows) == ordered


def test_a_row_names_its_node_or_the_cluster() -> None:
    run = samples.faulty_h100()
    (check, of_cluster), *_ = bad_judgements(run.checks)
    of_node = replace(
        of_cluster, measurement=replace(of_cluster.measurement, subject=Subject("node", "node-5"))
    )
    rows = judgement_rows(replace(run, checks=[replace(check, judgements=(of_cluster, of_node))]))
    assert [row["subject"] for row in rows] == ["cluster", "node-5"]


def test_missing_software_is_not_listed() -> None:
    run = replace(samples.healthy_local(), fingerprint={"driver": "", "nccl": "2.27.5"})
    assert "nccl `2.27.5`" in summary(run)
    assert "driver" not in summary(run)


@pytest.mark.parametrize("verdict", [each for each in Verdict if each is not Verdict.PASS])
def test_junit_counts_every_verdict_but_pass_as_failure_or_error(verdict: Verdict) -> None:
    good = samples.healthy_local()
    bad = Check("extra", verdict, uncoded('slow "node-1" <&>\x1b[2J'), 2.0)
    suite = ElementTree.fromstring(
        junit_xml(replace(good, verdict=verdict, checks=(*good.checks, bad)))
    )
    kind = "error" if verdict in (Verdict.INCONCLUSIVE, Verdict.NOT_RUN) else "failure"
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [*(check.name for check in good.checks), "extra"]
    assert [len(case) for case in cases] == [*(0 for _ in good.checks), 1]
    assert (cases[-1][0].tag, cases[-1][0].get("type")) == (kind, verdict.value)
    assert (cases[-1][0].get("message") or "").startswith('slow "node-1" <&>')
    assert (
        int(suite.get(f"{kind}s", ""))
        == int(suite.get("failures", "")) + int(suite.get("errors", ""))
        == 1
    )
