"""Whatever breaks in a stage of a run, with whatever error: there is a verdict, a run.json, and
people are told.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.checks.contract import CheckContext, CheckType, StepResult
from seatrial.config.run import Run
from seatrial.flows import chain
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check, RunResult
from seatrial.model.verdict import Verdict
from seatrial.runs import run_state
from seatrial.tasks import record
from seatrial.tasks.image import Image
from tests.unit.collectives.fake_mpirun import make_run, make_testbed

MEASURING = ("image_task", "launch_task", "check_task", "compare_task")
LEAVING = ("collect", "teardown", "keep", "_reap", "cluster_lock")
TELLING = ("record_task", "show_files", "upload_task", "metrics_task")
RESULT_MAKING = ("without_secrets", "conclude", "merge_suspects", "setup_of")
WRITING = ("run_json", "measurements_csv", "_report")


@contextmanager
def free_lock(*_: object) -> Iterator[SimpleNamespace]:
    yield SimpleNamespace(lost=None)


@pytest.fixture
def alerts(monkeypatch: pytest.MonkeyPatch) -> list[RunResult]:
    """A run whose steps all pass at once, without Prefect; what people are told of it."""
    testbed, sent = make_testbed(), []
    size = Measurement("busbw", 1.0, "GB/s", Subject("cluster", "c"))

    def notify(result: RunResult, *_: object) -> SimpleNamespace:
        sent.append(result)
        return SimpleNamespace(failed=False)

    def passes(kind: CheckType, context: CheckContext) -> StepResult:
        return StepResult(
            Check(kind.name, Verdict.PASS, uncoded("fine"), measurements=(size,)), context.testbed
        )

    steps: dict[str, Any] = {
        "image_task": lambda *_: Image(),
        "launch_task": lambda *_: testbed,
        "check_task": passes,
        "compare_task": lambda checks, *_: checks,
        "is_due": lambda *_: False,
        "collect": lambda *_: None,
        "keep": lambda *_: None,
        "teardown": lambda *_: None,
        "_reap": lambda *_: None,
        "cluster_lock": free_lock,
        "current": SimpleNamespace(id="00000000-0000-0000-0000-000000000000"),
    }
    for name, step in steps.items():
        monkeypatch.setattr(chain, name, step)
    monkeypatch.setattr(chain, "notify_task", notify)
    monkeypatch.setattr(chain, "record_task", record.record)
    monkeypatch.setattr(record, "_report", lambda *_: "")
    monkeypatch.setattr(chain, "upload_task", lambda *_: None)
    monkeypatch.setattr(chain, "metrics_task", lambda *_: None)
    monkeypatch.setenv("SEATRIAL_METRICS", "textfile:/nowhere")
    return sent


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = make_run(tmp_path)
    return replace(made, cluster=made.cluster.model_copy(update={"upload": "file:///nowhere"}))


def went_through(run: Run) -> tuple[RunResult, dict[str, Any]]:
    result = chain.run_chain(run, notify=True, rebuild=False, wait_s=0)
    return result, json.loads((run.out / "run.json").read_text())


def test_a_run_in_which_nothing_breaks_passes(run: Run, alerts: list[RunResult]) -> None:
    result, document = went_through(run)
    assert (result.verdict, document["verdict"]) == (Verdict.PASS, "pass")
    assert [one.verdict for one in alerts] == [Verdict.PASS]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *((chain, name) for name in (*MEASURING, *LEAVING)),
        *((chain, name) for name in TELLING),
        *((run_state, name) for name in RESULT_MAKING),
        *((record, name) for name in WRITING),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_exception_in_any_stage_loses_no_verdict_result_or_alert(
    run: Run, alerts: list[RunResult], monkeypatch: pytest.MonkeyPatch, module: object, name: str
) -> None:
    error = RecursionError("too deep")

    def breaks(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(
        module, name, once(error, record.run_json) if name == "run_json" else breaks
    )
    result, document = went_through(run)
    assert document["verdict"] == result.verdict.value
    assert len(alerts) == 1
    if name in (*MEASURING, *RESULT_MAKING, "cluster_lock"):
        assert alerts[0].verdict is result.verdict is not Verdict.PASS


def once(error: Exception, otherwise: Callable[[RunResult], str]) -> Callable[[RunResult], str]:
    """Fails for results with details, as one that holds what JSON cannot."""

    def run_json(result: RunResult) -> str:
        if any(check.measurements for check in result.checks):
            raise error
        return otherwise(result)

    return run_json


def test_result_that_cannot_be_redacted_shows_no_text_of_nodes(
    run: Run, alerts: list[RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = Check("collectives", Verdict.CORRUPT, uncoded("node-1 said: hunter2"))

    def checked(kind: CheckType, context: CheckContext) -> StepResult:
        return StepResult(
            bad if kind.name == bad.name else Check(kind.name, Verdict.PASS, uncoded("fine")),
            context.testbed,
        )

    monkeypatch.setattr(chain, "check_task", checked)
    monkeypatch.setattr(run_state, "without_secrets", lambda *_: 1 / 0)
    result, document = went_through(run)
    assert (result.verdict, document["verdict"]) == (Verdict.CORRUPT, "corrupt")
    assert result.reason.sentence.startswith(
        "collectives corrupt; no details: the result could not be put together (ZeroDivision"
    )
    assert "hunter2" not in (run.out / "run.json").read_text()
    assert "hunter2" not in str(alerts)
