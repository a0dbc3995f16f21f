"""What an alert says of an incident as it opens, changes and ends, and where it is cut."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seatrial.alerts import slack
from seatrial.alerts.alert import (
    PLAIN,
    ROWS,
    Alert,
    event,
    evidence,
    full_text,
    headline,
    hours,
    mentions_for,
    numbers,
    report_address,
    silent,
    span,
    subject,
    worst_judgements,
)
from seatrial.config.cluster import Cluster
from seatrial.config.notify import Notify
from seatrial.history.incident import Incident, advance, outcome_of
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.platforms.local import LocalPlatform
from seatrial.runs.difference import difference
from seatrial.tasks.notify import AlertContext, alert_of, files_of
from seatrial.tasks.sinks import Files, Sink
from tests import nights, sample_sweeps

CLUSTER = Cluster(name="h100-east", nodes=8, platform=LocalPlatform(kind="local"))


def incident(*runs: RunResult) -> Incident:
    known: list[Incident] = []
    for run in runs:
        known = advance(known, "h100-east", "nightly", outcome_of(run), ["mail"])
    return known[0]


def alert(*runs: RunResult) -> Alert:
    return Alert(
        incident(*runs), runs[-1], run_link="https://prefect/run", report_link="/srv/report.html"
    )


OPENED = alert(nights.bad(1))
CHANGED = alert(
    nights.bad(1), nights.bad(2, verdict=Verdict.DEGRADED, suspects=nights.suspected("n1"))
)
CLOSED = alert(nights.bad(1), nights.bad(2), nights.good(3))


def test_section_of_news_appears_only_when_the_headline_does_not_say_it() -> None:
    first = full_text(OPENED, OPENED.incident.changes)
    assert first.startswith("h100-east fails\n\nfail: ")
    later = full_text(CHANGED, CHANGED.incident.changes[-1:])
    assert later.startswith("h100-east is degraded (2 runs)\n\nWhat is new:\n- new suspect: n1\n\n")
    both = full_text(CHANGED, CHANGED.incident.changes)  # to a receiver that missed the opening
    assert "What is new:\n- fail: " in both
    over = full_text(CLOSED, CLOSED.incident.changes[-1:])
    assert over.startswith("h100-east recovered: pass again after 2 runs, worst fail\n\nIt was: ")
    assert over.endswith("run: https://prefect/run\nreport: /srv/report.html\n")
    assert "Suspects:" in later
    assert "Suspects:" not in over


@pytest.mark.parametrize(
    ("of", "news", "named"),
    [(OPENED, 1, "opened"), (CHANGED, 1, "changed"), (CHANGED, 2, "opened"), (CLOSED, 1, "closed")],
)
def test_an_event_names_its_kind_and_a_closed_one_has_no_suspects(
    of: Alert, news: int, named: str
) -> None:
    document = event(of, of.incident.changes[-news:])
    over = named == "closed"
    assert document["event"] == named
    assert (document["incident"]["closed"] is not None) == over
    assert (document["suspects"] == [], document["judgements"] == []) == (over, over)
    assert document["run_id"] == of.incident.last_run if not over else "run-3"
    assert event(replace(of, result=None), ())["judgements"] == []


def test_the_run_of_an_alert_is_named_even_if_it_can_no_longer_be_read() -> None:
    assert replace(CHANGED, result=None).run_id == "run-2"
    assert replace(CLOSED, result=None).run_id == ""
    silence = silent("it died", None, nights.bad(1).finished)
    (died,) = advance([], "h100-east", "nightly", replace(silence, run_id="run-0"), ["mail"])
    assert Alert(died).run_id == ""
    assert headline(died) == "h100-east: the check did not run"
    assert "next: " in full_text(Alert(died), died.changes)


@pytest.mark.parametrize(("deviation", "end"), [(-0.47, "(catalog), -47 %"), (None, "(catalog)")])
def test_deviation_is_shown_behind_the_source_when_known(deviation: float | None, end: str) -> None:
    (judgement, *_) = worst_judgements(nights.bad(1))
    run = nights.bad(
        1, checks=[replace(nights.CURE, judgements=(replace(judgement, deviation=deviation),))]
    )
    _, (_, (line,), more), _ = evidence(replace(OPENED, result=run), PLAIN, 3)
    assert line.endswith(end)
    assert more == 0


def test_the_worst_verdict_is_named_where_it_has_changed() -> None:
    assert ", worst fail" in span(CHANGED.incident)
    assert "worst" not in span(OPENED.incident)
    assert span(CLOSED.incident).startswith("from ")


@pytest.mark.parametrize(
    ("passed", "written"), [(1.4, "1 h"), (71, "71 h"), (72, "3 days"), (95, "3 days")]
)
def test_durations_of_three_days_or_more_are_shown_in_days(passed: float, written: str) -> None:
    assert hours(timedelta(hours=passed)) == written


@pytest.mark.parametrize(
    ("report_url", "upload", "address"),
    [
        ("https://r/{cluster}/{run_id}/", "gs://b", "https://r/east/run-1/"),
        (None, "gs://b/of", "https://storage.cloud.google.com/b/of/run-1/report.html"),
        (None, "s3://bucket/logs", "s3://bucket/logs/run-1/report.html"),
        (None, "file:///srv", "file:///srv/run-1/report.html"),
        (None, None, "/runs/report.html"),
    ],
)
def test_the_address_of_the_report_follows_from_the_cluster_file(
    report_url: str | None, upload: str | None, address: str
) -> None:
    assert (
        report_address(Notify(report_url=report_url), "run-1", "east", upload, "/runs/report.html")
        == address
    )


def test_alert_mentions_the_people_set_for_its_verdict() -> None:
    calls = {"fail": ["here", "S0614TZR7", "U024BE7LH"]}
    called = mentions_for(OPENED.incident, calls)
    assert [slack.mention(who) for who in called] == [
        "<!here>",
        "<!subteam^S0614TZR7>",
        "<@U024BE7LH>",
    ]
    assert mentions_for(CLOSED.incident, calls) == ()


def _number(name: str, value: float, metric: str = "busbw", **conditions: Any) -> Measurement:
    return Measurement(
        metric, value, "GB/s", Subject("node", name), {"operation": "all_reduce", **conditions}
    )


def test_worst_numbers_are_of_different_subjects_if_there_are_enough() -> None:
    def judged(*named: tuple[str, int]) -> RunResult:
        bad = [
            sample_sweeps.judge(_number(name, 10.0, message_bytes=size), 100.0, 0.1, "catalog")
            for name, size in named
        ]
        return nights.bad(1, checks=[replace(nights.CURE, judgements=tuple(bad))])

    def shown(run: RunResult) -> list[tuple[str, Any]]:
        return [
            (j.measurement.subject.name, j.measurement.conditions["message_bytes"])
            for j in worst_judgements(run)
        ]

    assert shown(judged(("a", 1), ("a", 2), ("b", 1), ("c", 1), ("d", 1))) == [
        ("a", 1),
        ("b", 1),
        ("c", 1),
    ]
    assert shown(judged(("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 1))) == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
    ]


def test_numbers_worse_beyond_noise_are_listed_with_sweeps_first() -> None:
    def run(*values: tuple[Measurement, float]) -> RunResult:
        measured = tuple(replace(m, value=m.value * factor) for m, factor in values)
        return nights.bad(1, checks=[replace(nights.CURE, measurements=measured, judgements=())])

    sizes = [_number("a", 100.0, message_bytes=2**i) for i in range(20, 24)]
    sweep, other = _number("a", 100.0, "busbw_plateau"), _number("b", 100.0, "busbw_plateau")
    before = run(*((m, 1.0) for m in (*sizes, sweep, other)))
    since = difference(before, run(*((m, 0.05) for m in sizes), (sweep, 0.1), (other, 0.99)))
    worse = numbers(since)
    assert [line.rpartition(" on a ")[2] for line in worse] == [
        "100 → 10 GB/s (-90 %)",
        *["100 → 5 GB/s (-95 %)"] * (ROWS - 1),
    ]
    assert numbers(difference(since.after, since.before)) == []


def test_failed_curve_is_left_out_and_only_the_report_of_this_run_attached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    report = tmp_path / "report.html"
    report.write_text("page")
    mail = cast(Sink, SimpleNamespace(name="mail"))
    site = AlertContext(CLUSTER, None, [mail], report=report)
    run = OPENED.result
    files = files_of(site, OPENED, run)
    assert files.report == b"page"
    assert (files.picture or b"").startswith(b"\x89PNG")
    assert files_of(site, OPENED, nights.bad(2)).report is None
    report.unlink()
    assert files_of(site, OPENED, run).report is None
    assert files_of(site, CLOSED, run) == Files()

    def broken(*_: object) -> bytes:
        raise ValueError("no font")

    monkeypatch.setattr("seatrial.tasks.notify.curve_png", broken)
    assert files_of(site, OPENED, run).picture is None
    assert "the curve could not be drawn: ValueError: no font" in caplog.text


def test_an_alert_links_the_run_that_shows_the_incident_and_no_other(tmp_path: Path) -> None:
    site = AlertContext(
        CLUSTER, None, [], run_link="https://prefect/run-1", report=tmp_path / "report.html"
    )
    shown = alert_of(site, OPENED.incident, nights.bad(1))
    assert (shown.run_link, shown.report_link) == (
        "https://prefect/run-1",
        str(tmp_path / "report.html"),
    )
    other = alert_of(site, OPENED.incident, nights.unmeasured(2))
    assert (other.result, other.run_link, other.report_link, other.run_id) == (
        None,
        None,
        None,
        "run-1",
    )


def test_texts_are_cut_at_slacks_limits_and_not_before() -> None:
    assert slack.escape('"<a> & b"') == '"&lt;a&gt; &amp; b"'
    assert slack.clip("x" * 30, 30) == "x" * 30
    assert slack.clip("ab&amp;cd", 6) == "ab…"
    assert slack.clip("abcdefg", 6) == "abcde…"
    assert slack.cut("abcdef", 6) == "abcdef"
    assert slack.cut("abcdefg", 6) == "abcde…"
    assert len(slack.context(str(i) for i in range(11))["elements"]) == 10
    half = "y" * (slack.TEXT_CHARS // 2)
    one, two = (slack.listed("t", [half, "z" * size]) for size in (1491, 1492))
    assert [len(block["text"]["text"]) for block in one] == [slack.TEXT_CHARS]
    assert len(two) == 2
    assert slack.listed("t", []) == []
    assert "more" not in slack.listed("t", ["a"], 0)[0]["text"]["text"]
    assert slack.listed("t", ["a"], 1)[0]["text"]["text"] == "*t*\n• a\nand 1 more in the report"
    blocks = [slack.section("a" * 10), slack.section("b" * 10), slack.section("c")]
    assert slack._within(20, blocks) == blocks[:2]
    assert slack._within(19, blocks) == blocks[:1]


def test_a_subject_is_one_line_of_150_characters() -> None:
    long = replace(OPENED, incident=replace(OPENED.incident, reason=uncoded("why\n" * 100)))
    assert len(subject(long)) == 150
    assert "\n" not in subject(long)
    assert subject(CLOSED) == f"seatrial: {headline(CLOSED.incident)}"
