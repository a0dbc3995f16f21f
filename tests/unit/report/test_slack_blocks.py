import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.measurement import Measurement, Subject
from seatrial.report.slack import blocks
from seatrial.result import Check, Expected, Judgement, RunResult, Suspect
from seatrial.verdict import Verdict
from tests import samples

nasty = st.text(st.sampled_from("ab<>&`*|\n\x1b✓名@!"), max_size=60).map(lambda text: text * 80)
texts = st.one_of(st.text(max_size=50), nasty)


@st.composite
def results(draw: st.DrawFn) -> RunResult:
    suspect = st.builds(Suspect, st.sampled_from(["node", "gpu", "link"]), texts, st.floats(0, 1), texts)
    measurement = Measurement(
        draw(texts), draw(st.floats()), draw(texts), Subject("node", draw(texts)), {"operation": draw(texts)}
    )
    bound = st.none() | st.floats()
    judgement = Judgement(
        measurement, Verdict.FAIL, draw(texts), draw(texts), Expected(draw(bound), draw(bound)), draw(bound)
    )
    return replace(
        samples.healthy_local(),
        verdict=draw(st.sampled_from(Verdict)),
        reason=draw(texts),
        cluster=draw(texts),
        run_id=draw(texts),
        suspects=draw(st.lists(suspect, max_size=3)) * draw(st.sampled_from([1, 400])),
        checks=[Check("c", Verdict.FAIL, "", 1.0, (), (judgement,) * draw(st.sampled_from([0, 1, 500])))],
        fingerprint={draw(texts): draw(texts) for _ in range(3)},
        notes=(draw(texts),),
    )


@settings(max_examples=60, deadline=None)
@given(results(), st.none() | st.sampled_from(Verdict), st.none() | texts)
def test_slacks_limits_hold(result: RunResult, previous: Verdict | None, report: str | None) -> None:
    text, found = blocks(result, previous, report)
    assert 0 < len(text) <= 3000
    assert 0 < len(found) <= 50
    assert len(json.dumps(found, ensure_ascii=False)) < 13_000
    for block in found:
        _check_block(block)


def _check_block(block: dict[str, Any]) -> None:
    if block["type"] == "header":
        assert block["text"]["type"] == "plain_text"
        assert 0 < len(block["text"]["text"]) <= 150
        return
    elements = [block["text"]] if block["type"] == "section" else block["elements"]
    assert len(elements) <= 10
    for element in elements:
        text = element["text"]
        assert 0 < len(text) <= 3000
        assert not re.search(r"[<>]", text)
        assert not re.search(r"&(?!amp;|lt;|gt;)", text)


def _text(found: list[dict[str, Any]]) -> str:
    return json.dumps(found, ensure_ascii=False)


def test_a_failure_says_what_who_and_what_next() -> None:
    text, found = blocks(samples.faulty_h100(), Verdict.PASS, "/runs/1/report.html")
    said = _text(found)
    assert text.startswith("h100-east fails (was pass): collectives:")
    assert "*node node-5* (97%): every pair with node-5" in said
    assert "*205 GB/s*, expected 364 – 410 GB/s (catalog), -47 %" in said
    assert "nccl 2.26.2" in said
    assert "report: /runs/1/report.html" in said
    assert "`seatrial history h100-east`" in said


@pytest.mark.parametrize("previous", [v for v in Verdict if v is not Verdict.PASS])
def test_a_pass_after_anything_else_is_a_recovery(previous: Verdict) -> None:
    text, found = blocks(samples.healthy_local(), previous)
    assert text.startswith(f"local recovered: pass again after {previous.value.replace('_', ' ')}")
    assert "*Next*" not in _text(found)


def test_a_lasting_failure_is_told_from_a_new_one() -> None:
    text, _ = blocks(samples.faulty_h100(), Verdict.FAIL)
    assert text.startswith("h100-east fails (as before)")
    text, _ = blocks(samples.faulty_h100(), None)
    assert text.startswith("h100-east fails: ")


def test_what_is_missing_leads_to_the_doctor() -> None:
    _, found = blocks(replace(samples.healthy_local(), verdict=Verdict.NOT_RUN, reason="mpirun is missing"), None)
    assert "`seatrial doctor`" in _text(found)


def test_where_the_files_are_and_what_is_kept_is_said() -> None:
    notes = ("nodes are kept until 17:00\n  to log in: seatrial ssh r1 head", "files: gs://bucket/logs/r1/")
    _, found = blocks(replace(samples.faulty_h100(), notes=notes), None)
    said = json.dumps(found)
    assert "seatrial ssh r1 head" in said
    assert "files: gs://bucket/logs/r1/" in said
