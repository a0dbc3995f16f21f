import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.alerts.alert import ROWS, Alert, event, full_text, silent, subject, worst_judgements
from seatrial.alerts.alert import digest as plain_digest
from seatrial.alerts.slack import blocks, change, details, digest
from seatrial.history.incident import Receipt, RunOutcome, advance, outcome_of
from seatrial.model.curves import bad_judgements
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check, Expected, Judgement, RunResult, Suspect
from seatrial.model.verdict import Verdict
from seatrial.runs.difference import difference
from seatrial.runs.explanations import CATALOG
from tests import nights, samples
from tests.slack_server import block_problem, texts

nasty = st.text(st.sampled_from("ab<>&`*_~|\n\x1b✓名@!"), max_size=60).map(lambda text: text * 80)
anything = st.one_of(st.text(max_size=50), nasty)


@st.composite
def results(draw: st.DrawFn) -> RunResult:
    suspect = st.builds(
        Suspect,
        st.sampled_from(["node", "gpu", "link"]),
        anything,
        st.floats(0, 1),
        anything.map(uncoded),
    )
    measurement = Measurement(
        draw(anything),
        draw(st.floats()),
        draw(anything),
        Subject("node", draw(anything)),
        {"operation": draw(anything)},
    )
    bound = st.none() | st.floats()
    judgement = Judgement(
        measurement,
        Verdict.FAIL,
        uncoded(draw(anything)),
        draw(anything),
        Expected(draw(bound), draw(bound)),
        draw(bound),
    )
    return replace(
        samples.healthy_local(),
        verdict=draw(st.sampled_from(Verdict)),
        reason=uncoded(draw(anything)),
        cluster=draw(anything),
        run_id=draw(anything),
        suspects=draw(st.lists(suspect, max_size=3)) * draw(st.sampled_from([1, 400])),
        checks=[
            Check(
                "c",
                Verdict.FAIL,
                uncoded(draw(anything)),
                1.0,
                (),
                (judgement,) * draw(st.sampled_from([0, 1, 500])),
            )
        ],
        fingerprint={draw(anything): draw(anything) for _ in range(3)},
        notes=(draw(anything),),
    )


def alert_of(*runs: RunResult, before: RunResult | None = None, **fields: Any) -> Alert:
    """What is told after those nights."""
    known = advance([], runs[0].cluster, runs[0].suite, outcome_of(runs[0]), ["slack"])
    for run in runs[1:]:
        known = advance(known, run.cluster, run.suite, outcome_of(run), ["slack"])
    return Alert(known[0], runs[-1], difference(before, runs[-1]) if before else None, **fields)


@settings(max_examples=30)
@given(results(), results(), st.none() | anything)
def test_messages_stay_within_the_limits_of_slack(
    result: RunResult, before: RunResult, report: str | None
) -> None:
    bad = result if result.verdict is not Verdict.PASS else replace(result, verdict=Verdict.FAIL)
    alert = alert_of(
        bad, before=before, report_link=report if report and not report.startswith("http") else None
    )
    over = Alert(replace(alert.incident, closed=bad.finished), result)
    for text, layout in (blocks(alert), blocks(over), details(bad)):
        assert 0 < len(text) <= 3000
        assert block_problem(layout) is None
        for part in (
            part for block in layout if block["type"] != "header" for part in texts(block)
        ):
            assert not re.search(r"[<>]", part)
            assert not re.search(r"&(?!amp;|lt;|gt;)", part)
    for line in (change(alert, alert.incident.changes), digest(result)):
        assert 0 < len(line) <= 3000
        assert not re.search(r"[<>]", line)
    assert subject(alert)
    assert full_text(alert, alert.incident.changes)
    json.dumps(event(alert, alert.incident.changes), allow_nan=False)


def _text(layout: list[dict[str, Any]]) -> str:
    return json.dumps(layout, ensure_ascii=False)


def test_failure_message_names_suspect_changes_and_next_step() -> None:
    before = nights.good(0, checks=samples.faulty_h100().checks, fingerprint={"nccl": "2.26.0"})
    bad = nights.bad(1, fingerprint={"nccl": "2.27.1"})
    alert = alert_of(
        bad,
        before=before,
        report_link="/runs/1/report.html",
        run_link="https://prefect.example.com/r?a&b",
    )
    text, layout = blocks(alert, ("here", "U024BE7LH"))
    payload = _text(layout)
    assert text.startswith("h100-east fails: node-5 (97 % sure): every pair with node-5")
    assert "*node-5 (10.20.0.16)*, 97 % sure: every pair with node-5" in payload
    assert "*205 GB/s*, expected 364 – 410 GB/s (catalog), -47 %" in payload
    assert "nccl 2.26.0 → 2.27.1" in payload
    assert "report: /runs/1/report.html" in payload
    assert "<https://prefect.example.com/r?a&amp;b|The run>" in payload
    assert "*fail: node-5 (97 % sure): every pair" in payload
    assert "\\nnext: " in payload
    assert "<!here> <@U024BE7LH>" in payload


def test_the_three_worst_numbers_are_of_different_operations() -> None:
    chosen = worst_judgements(samples.faulty_h100())
    assert [j.measurement.conditions["operation"] for j in chosen] == [
        "all_reduce",
        "all_gather",
        "reduce_scatter",
    ]
    assert all(j.measurement.metric == "busbw_plateau" for j in chosen)
    only = replace(
        samples.faulty_h100(),
        checks=[
            replace(samples.faulty_h100().checks[1], judgements=(chosen[0], replace(chosen[0])))
        ],
    )
    assert worst_judgements(only) == [chosen[0]] * 2


def test_a_check_that_did_not_run_has_a_next_step_too() -> None:
    _, layout = blocks(alert_of(nights.unmeasured(1, Verdict.NOT_RUN)))
    assert "h100-east could not be checked" in _text(layout)
    (incident,) = advance(
        [], "h100-east", "nightly", silent("it died", None, nights.bad(1).finished), ["slack"]
    )
    payload = _text(blocks(Alert(incident))[1])
    assert "*not_run: it died*" in payload
    assert f"next: {CATALOG['run-overdue'].next_step}"[:40] in payload


def test_the_message_says_where_the_files_are_and_what_is_kept() -> None:
    notes = (
        "nodes are kept until 17:00\n  to log in: seatrial ssh r1 head",
        "files: gs://bucket/logs/r1/",
    )
    _, layout = blocks(alert_of(nights.bad(1, notes=notes)))
    payload = json.dumps(layout)
    assert "seatrial ssh r1 head" in payload
    assert "files: gs://bucket/logs/r1/" in payload


def test_mail_has_the_same_content_as_the_slack_message() -> None:
    alert = alert_of(nights.bad(1), nights.bad(2), before=nights.good(0))
    letter = full_text(alert, alert.incident.changes)
    assert subject(alert).startswith(
        "seatrial: h100-east fails (2 runs): node-5 (97 % sure): every pair"
    )
    for part in (
        "h100-east fails (2 runs)",
        "node-5 (10.20.0.16), 97 % sure",
        "205 GB/s, expected 364",
        "next: ",
    ):
        assert part in letter
    assert "What is new" not in letter
    assert "What is new:\n- more" in full_text(
        replace(alert, incident=_with_news(alert, "more")), ("more",)
    )


EVIL = "node-1 said: <!channel> @all ![p](http://evil.example/p.png) `x` *y* _z_ ~t~"


def test_text_of_a_log_makes_no_mention_or_link_in_any_receiver() -> None:
    night = nights.bad(
        1,
        reason=uncoded(EVIL),
        suspects=(Suspect("node", "node-1", 0.9, uncoded(EVIL)),),
        notes=("ssh me@[::1]",),
    )
    alert = alert_of(night, run_link="https://x.example.com/~ops")
    over = replace(alert.incident, closed=night.finished, changes=("fail", EVIL))
    payload, news = event(alert, alert.incident.changes), alert.incident.changes
    findings, _, ours = full_text(alert, news).partition("ssh me@[::1]")
    assert "run: https://x.example.com/~ops" in ours
    for message in (
        payload["text"],
        findings,
        plain_digest(night),
        subject(Alert(over)),
        full_text(Alert(over), news),
    ):
        assert "said: ‹!channel› @\u200ball !(p)(http://evil.example/p.png) 'x' " in message
        assert not re.search(r"[<>\[\]`*~]|@\w|\b_|_\b", message)
    assert (payload["incident"]["reason"], payload["suspects"][0]["evidence"]) == (EVIL, EVIL)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (outcome_of(nights.unmeasured(1)), "h100-east is measured again"),
        (silent("the check died", None, nights.bad(1).finished), "h100-east: the check runs again"),
        (outcome_of(nights.bad(1)), "h100-east recovered: pass again after 1 run, worst fail"),
    ],
)
def test_the_end_of_an_incident_is_stated_once(wrong: RunOutcome, text: str) -> None:
    (open_one,) = advance([], "h100-east", "nightly", wrong, ["webhook"])
    (over,) = advance([open_one], "h100-east", "nightly", outcome_of(nights.good(2)), ["webhook"])
    alert, news = Alert(over, nights.good(2)), over.changes[1:]
    assert event(alert, news)["text"] == text
    assert event(alert, news)["news"] == list(news)
    phrase = news[-1]
    assert full_text(alert, news).count(phrase) == 1
    assert _text(blocks(alert)[1]).count(phrase) == 1


def _with_news(alert: Alert, news: str) -> Any:
    incident = replace(alert.incident, changes=(*alert.incident.changes, news))
    return incident.with_receipt("slack", Receipt(1))


def test_each_suspect_has_its_next_step() -> None:
    payload = _text(blocks(alert_of(samples.broken_local()))[1])
    steps = [CATALOG[code].next_step or "" for code in ("ssh-refused", "tcp-node-slow")]
    first, second = (
        payload.index(f"next: {node}: {step[:20]}")
        for node, step in zip(("node-1", "node-2"), steps, strict=True)
    )
    assert first < second


def test_rows_that_are_not_shown_are_counted() -> None:
    result = samples.faulty_h100()
    _, shown = blocks(alert_of(result))
    assert f"and {len(bad_judgements(result.checks)) - ROWS:,} more in the report" in str(shown)
