"""What a run says while it works: no secrets, one line each, nothing that a terminal obeys."""

import io
import logging
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from rich.console import Console, RichCast

from seatrial.flows.serving.ui import forward_logs
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check, CheckResult, Judgement, Suspect
from seatrial.model.verdict import Verdict
from seatrial.runs.progress import TerminalHandler, log_file
from seatrial.runs.run_state import without_secrets
from seatrial.text.redact import Secrets
from tests import samples

SECRETS = Secrets(("s3cr3t-value",))
HOSTILE = (
    "node-1\x1b[2J\x9b31m s3cr3t-value\n2026-01-01 INFO seatrial: pass\r\u202etxt.exe "
    "hf_ABCDEFGHIJKLMNOPQRSTUV"
)


def assert_harmless(text: str) -> None:
    assert "s3cr3t" not in text
    assert "hf_ABC" not in text
    assert text.isprintable()


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord(
        "seatrial.launch", logging.WARNING, "x.py", 1, "said %s", (message,), None
    )


def test_log_record_on_the_terminal_is_one_line_without_control_characters() -> None:
    stream = io.StringIO()
    TerminalHandler(Console(file=stream, width=20), SECRETS).emit(record(HOSTILE))
    line, end = stream.getvalue().split("\n")
    assert end == ""
    assert line.startswith("    said node-1")
    assert_harmless(line)


def test_spaces_between_columns_are_kept_on_the_terminal() -> None:
    stream = io.StringIO()
    TerminalHandler(Console(file=stream), SECRETS).emit(record("all_reduce     8M    12.3 us"))
    assert stream.getvalue() == "    said all_reduce     8M    12.3 us\n"


def step(name: str, seconds: float | None = None) -> logging.LogRecord:
    record = logging.LogRecord("seatrial.step", logging.INFO, "x.py", 1, "%s ...", (name,), None)
    record.__dict__ |= {"step": name} | ({} if seconds is None else {"seconds": seconds})
    return record


def test_the_step_that_runs_says_its_place_what_it_waits_for_and_how_long_it_usually_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[RichCast] = []

    def status(_: Console, text: RichCast) -> mock.Mock:
        shown.append(text)
        return mock.Mock()

    monkeypatch.setattr(Console, "status", status)
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    stream = io.StringIO()
    handler = TerminalHandler(
        Console(file=stream, force_terminal=True, color_system=None),
        SECRETS,
        {"startup": "Prefect's server", "launch": "the nodes"},
    )
    handler.startup(4.2)
    assert str(shown[-1].__rich__()) == "startup (1 of 2), waiting for Prefect's server: 4 s"
    handler.usual_s = {"launch": 30.4}
    handler.emit(step("launch"))
    assert stream.getvalue() == "  startup      4.2 s\n"
    assert str(shown[-1].__rich__()) == "launch (2 of 2), waiting for the nodes: 0 s of about 30 s"
    handler.emit(record("2 of 3 are up"))  # says more than what it waits for
    assert str(shown[-1].__rich__()) == "launch (2 of 2): 0 s of about 30 s"


def test_hostile_text_cannot_forge_a_record_of_the_log(tmp_path: Path) -> None:
    with log_file(tmp_path / "run.log", SECRETS):
        log = logging.getLogger("seatrial.launch")
        log.warning("said %s", HOSTILE)
        log.error("broke", exc_info=ValueError(HOSTILE))
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert [line for line in lines if "pass" in line and not line.startswith("    ")] == lines[:1]
    assert all(line.startswith("    ") for line in lines[2:])
    for line in lines:
        assert_harmless(line)


def test_a_trace_that_another_handler_has_formatted_is_redacted_too(tmp_path: Path) -> None:
    """logging keeps the first formatter's text of an exception in the record."""
    first = logging.StreamHandler(io.StringIO())
    first.setFormatter(logging.Formatter())
    logger = logging.getLogger("seatrial")
    logger.addHandler(first)
    try:
        with log_file(tmp_path / "run.log", SECRETS):
            logger.error("broke", exc_info=ValueError("with s3cr3t-value"))
    finally:
        logger.removeHandler(first)
    assert "ValueError: with ***" in (tmp_path / "run.log").read_text()
    assert "s3cr3t" not in (tmp_path / "run.log").read_text()


def test_log_records_of_prefect_are_redacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, engine = io.StringIO(), logging.getLogger("prefect.flow_runs")
    # Prefect's own sends to a server
    monkeypatch.setattr(engine, "handlers", [logging.StreamHandler(stream)])
    monkeypatch.setattr(engine, "propagate", False)
    with forward_logs(SECRETS):
        engine.error("Encountered %s", "s3cr3t-value", exc_info=ValueError(HOSTILE))
    assert "Encountered ***\n    ValueError: node-1" in stream.getvalue()
    for line in stream.getvalue().splitlines():
        assert_harmless(line)
    engine.error("after it: s3cr3t-value")
    assert stream.getvalue().endswith("s3cr3t-value\n")


def test_every_text_of_a_result_is_redacted_and_has_no_control_characters() -> None:
    suspect = Suspect("node", HOSTILE, 1.0, uncoded(HOSTILE))
    measurement = Measurement(
        "busbw", 1.0, "GB/s", Subject("node", HOSTILE), {"log": HOSTILE, "ranks": 4}
    )
    judgements = tuple(
        Judgement(measurement, verdict, uncoded(HOSTILE), "peers")
        for verdict in (Verdict.PASS, Verdict.FAIL)
    )
    check = Check(
        HOSTILE,
        Verdict.FAIL,
        uncoded(HOSTILE),
        1.0,
        (measurement,),
        judgements,
        (suspect,),
        CheckResult(Verdict.FAIL, uncoded(HOSTILE)),
    )
    result = replace(
        samples.healthy_local(),
        suite=HOSTILE,
        reason=uncoded(HOSTILE),
        nodes=({"name": HOSTILE, "hostname": HOSTILE, "gpu_model": [HOSTILE], "cpus": 4},),
        fingerprint={"driver": HOSTILE},
        suspects=(suspect,),
        checks=(check,),
        notes=("first line\n  second line", HOSTILE),
    )
    clean = without_secrets(result, SECRETS)
    assert clean.notes[0] == "first line\n  second line"
    assert clean.nodes[0]["cpus"] == 4
    for text in (
        repr(clean.checks),
        repr(clean.suspects),
        repr(clean.nodes),
        repr(clean.fingerprint),
        clean.suite,
    ):
        assert "s3cr3t" not in text
        assert "hf_ABC" not in text
        assert not any(mark in text for mark in ("\x1b", "\\x1b", "\\x9b", "\\u202e", "\\r", "\\n"))


@pytest.mark.parametrize("verdict", list(Verdict))
def test_redaction_returns_clean_judgements_unchanged(verdict: Verdict) -> None:
    judgement = Judgement(
        Measurement("busbw", 1.0, "GB/s", Subject("node", "node-1")),
        verdict,
        uncoded("fast"),
        "peers",
    )
    result = replace(
        samples.healthy_local(),
        checks=(Check("x", verdict, uncoded("y"), judgements=(judgement,)),),
    )
    assert without_secrets(result, SECRETS).checks[0].judgements[0] is judgement
