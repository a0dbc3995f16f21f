import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from seatrial.history import open_store
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check, Judgement, RunResult, Suspect
from seatrial.model.verdict import Verdict
from seatrial.report import charts
from seatrial.report.context import EarlierRuns, ReportContext, context_of
from seatrial.report.html import report_html, script
from seatrial.runs.explanations import CATALOG
from seatrial.text.redact import redacted
from tests import sample_sweeps, samples
from tests.fleet_run import fleet_context, fleet_run

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Collects what a browser would see, and refuses tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def faulty() -> str:
    return report_html(samples.faulty_h100(), ReportContext(log_tail=("line one", "line two")))


def test_verdict_reason_and_suspects_come_first(faulty: str) -> None:
    text = Page(faulty).text
    order = [
        "fail: node-5 (97 % sure): every pair",
        "since",
        "next:",
        "Suspects",
        "97 % sure every",
        "Since the last good run",
        "Nodes by check",
        "Not as expected",
    ]
    places = [text.index(phrase, 300) for phrase in order]
    assert places == sorted(places)
    assert "End of the log" in text


def test_a_pass_shows_no_suspects_and_no_log() -> None:
    text = Page(report_html(samples.healthy_local(), ReportContext(log_tail=("line one",)))).text
    assert "pass: connectivity, collectives, training: all pass" in text
    assert "Suspects" not in text
    assert "line one" not in text


@pytest.mark.parametrize(
    "result", [samples.healthy_local(), samples.faulty_h100()], ids=["healthy", "faulty"]
)
def test_page_loads_nothing_from_outside(result: RunResult) -> None:
    html = report_html(result)
    page = Page(html)
    assert page.tags.count("script") == 1
    links = [
        value
        for name, value in page.attributes
        if name in ("href", "src", "action", "data", "xlink:href")
    ]
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", html)


def test_links_inside_the_page_have_a_target(faulty: str) -> None:
    page = Page(faulty)
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {
        v[1:] for n, v in page.attributes if n in ("href", "aria-labelledby") and v.startswith("#")
    } <= set(ids)


def test_every_text_from_outside_is_escaped() -> None:
    attack = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    page = Page(report_html(samples.hostile(attack), ReportContext(log_tail=(attack,))))
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count("<script>alert(1)") > 10


def test_no_escape_and_no_override_of_the_direction_is_in_the_page() -> None:
    crafted = replace(
        samples.faulty_h100(),
        reason=uncoded("node-1 \x1b[2J is \u202egniliaf\u2069"),
        notes=("a\x9bnote",),
    )
    shown = report_html(crafted)
    assert "node-1 [2J is gniliaf" in shown
    assert not {character for character in shown if not character.isprintable()} - {"\n"}


def test_notes_stand_below_the_checks_and_are_bounded() -> None:
    attack = "<b onclick=alert(1)>files are at x"
    page = Page(
        report_html(replace(samples.healthy_local(), notes=(attack,) * 25), ReportContext())
    )
    assert page.text.count(attack) == 20
    assert "and 5 more notes in run.json" in page.text


def test_an_empty_run_has_a_report() -> None:
    empty = replace(
        samples.healthy_local(),
        checks=(),
        nodes=(),
        fingerprint={},
        timings={},
        verdict=Verdict.NOT_RUN,
    )
    assert "not_run: connectivity" in Page(report_html(empty)).text


def test_a_huge_run_stays_short_and_says_what_it_left_out() -> None:
    html = report_html(_huge())
    text = Page(html).text
    assert len(html) < 300_000
    assert "960 suspects more in run.json" in text
    assert "872 nodes more in" in text
    assert "judgements more in" in text


def test_a_chart_that_fails_does_not_lose_the_report(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> str:
        raise RuntimeError("no fonts here")

    monkeypatch.setattr(charts, "busbw_chart", broken)
    text = Page(report_html(samples.healthy_local())).text
    assert "a chart could not be drawn (RuntimeError: no fonts here); the numbers are below" in text
    assert "no fonts here" in caplog.text


def _huge() -> RunResult:
    judgements = [
        sample_sweeps.judge(
            Measurement(
                "busbw", 100.0 + n % 90, "GB/s", Subject("link", f"node-{n}--node-{n + 1}")
            ),
            180,
            0.1,
            "peers",
        )
        for n in range(5000)
    ]
    nan = Measurement("loss", float("nan"), "", Subject("cluster", "cluster"))
    bad = Judgement(nan, Verdict.CORRUPT, uncoded("the loss is not a number"), "sanity")
    check = Check("links", Verdict.CORRUPT, uncoded("r" * 3000), 5.0, (), (bad, *judgements))
    nodes = [
        {"name": f"node-{n}", "address": f"10.0.{n // 250}.{n % 250}", "gpus": 8}
        for n in range(1000)
    ]
    suspects = [Suspect("node", f"node-{n}", 0.5, uncoded("slow " * 40)) for n in range(1000)]
    return replace(
        samples.faulty_h100(),
        checks=[check],
        nodes=nodes,
        suspects=suspects,
        verdict=Verdict.CORRUPT,
    )


def test_plateaus_are_shown_with_their_share_of_the_link_rate() -> None:
    assert "Plateaus" not in report_html(samples.faulty_h100())
    page = report_html(samples.with_shares(samples.faulty_h100()))
    assert "Plateaus: all_reduce 205 GB/s, 51 % of the links; " in page


def test_page_has_only_its_own_script_which_the_csp_allows() -> None:
    page = report_html(samples.hostile("<script>alert(1)</script>"))
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert f"<script>{script()}</script>" in page
    # Else an uploaded page would not run it
    assert "".join(redacted(script().splitlines(keepends=True))) == script()


def test_numbers_stand_beside_the_last_good_run(tmp_path: Path) -> None:
    text = Page(report_html(*_with_a_past(tmp_path))).text
    assert (
        "all_reduce, 8G 205 GB/s · ✕ fail expected 356 – 418 GB/s (catalog) last good run 211 GB/s"
        in text
    )
    assert (
        "Since the last good run night-4, 13 Mar 2026 02:00 UTC. Software that changed: driver "
        in text
    )
    assert "busbw plateau of all_reduce 205 GB/s 364 – 410 GB/s 211 GB/s -2.7 %" in text
    assert "driver changed 570.124.06 565.57.01" in text
    assert "cuda 12.8 the same" in text


def test_an_unreadable_history_is_reported() -> None:
    result = samples.healthy_local()
    text = Page(
        report_html(result, ReportContext(past=EarlierRuns(problem="the disk is <gone>")))
    ).text
    assert "Earlier runs are not shown: the disk is <gone>." in text
    assert "No earlier run of this cluster and suite is known." in Page(report_html(result)).text


def test_a_thousand_nodes_fit_and_the_ill_ones_come_first() -> None:
    result = fleet_run()
    html = report_html(result, fleet_context(result))
    text = Page(html).text
    assert len(html) < 3_000_000
    lines = [
        text.index(name, text.index("Nodes by check"))
        for name in ("rack01-node01", "rack31-node04", "996 nodes")
    ]
    assert lines == sorted(lines)
    assert "changed: driver 565.57.01 -> 570.124.06" in text
    assert text.count("gpu-rack62-node06") == 2  # in the full table, and its log


def _with_a_past(folder: Path) -> tuple[RunResult, ReportContext]:
    """The faulty run after four nights, all good but the third; the software changed since."""
    result = samples.faulty_h100()
    with open_store(f"sqlite:///{folder}/history.sqlite") as store:
        for n in range(1, 5):
            store.save(
                samples.night(result, n, 1.02 + n / 500, Verdict.FAIL if n == 3 else Verdict.PASS),
                folder,
            )
        store.save(result, folder)
        return result, context_of(result, folder, store)


def test_a_blamed_node_is_marked_bad_wherever_it_is_shown() -> None:
    run = samples.broken_local()
    html = report_html(run)
    text = Page(html).text
    steps = [
        str(CATALOG[code].next_step).replace("`", "")[:30]
        for code in ("ssh-refused", "tcp-node-slow")
    ]
    places = [
        text.index(f"next: {node}: {step}")
        for node, step in zip(("node-1", "node-2"), steps, strict=True)
    ]
    assert places == sorted(places)
    assert "numbers 1 fail, 5 pass compared 1 of 6" in text
    assert "nodes 2 fail, 2 pass" in text
    assert (
        html.count(
            'class="fail" title="10.77.0.3 port 222: connection refused">✕ not measured</td>'
        )
        == 2
    )
    assert "✕ 23.6 MB/s</td>" in html
    assert (
        "node-2 23.6 MB/s ≥ 317 MB/s -98 % ✕ fail peers tcp_egress 23.6 MB/s on node-2: "
        "98.1 % below"
    ) in text
    assert (
        '<tr class="suspect fail"><td data-label="name">node-1 <span class="blamed">suspect: fail'
        in html
    )
    assert "5 numbers passed, 5 without a baseline yet" in text
    assert "next: " not in Page(report_html(samples.healthy_local())).text.replace(
        "next: nothing to do", ""
    )


def test_a_blamed_node_beyond_those_shown_has_all_of_its_facts() -> None:
    nodes = [*({"name": f"node-{n}"} for n in range(200)), {"name": "sick", "serial": "SN-4711"}]
    blamed = Suspect("node", "sick", 0.9, uncoded("slow"))
    text = Page(report_html(replace(samples.healthy_local(), nodes=nodes, suspects=[blamed]))).text
    assert "SN-4711" in text
