"""The whole chain on the fake platform: the flow's own functions, without Prefect and its
server.
"""

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.checks.contract import try_check
from seatrial.checks.localize.step import localize_run
from seatrial.checks.suites import load_suite
from seatrial.config.run import Run, Suite
from seatrial.flows import chain as steps_of_run
from seatrial.model.reason import Reason
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.tasks import image, launch, record, upload
from tests.fake_platform import FakePlatform

RUN_ID = "run-1"
# What Prefect makes a task of, and the function under it.
STEPS: dict[str, Callable[..., Any]] = {
    "image_task": image.image_task.fn,
    "launch_task": launch.launch,
    "check_task": try_check,
    "compare_task": lambda checks, judge, repeat, until: judge(checks, repeat, until),
}


@dataclass
class Chain:
    """Runs on `platform`.

    `lost` is why a run has lost its cluster's lease; `notified` are results that people get.
    """

    platform: FakePlatform
    out: Path
    lost: Reason | None = None
    suite: Suite = field(default_factory=lambda: load_suite("quick"))
    notified: list[RunResult] = field(default_factory=list)

    def run(self, **cluster: Any) -> RunResult:
        """What a run of `suite` comes to; `cluster` are fields of the cluster file."""
        run = Run(RUN_ID, self.platform.cluster(**cluster), self.suite, self.out)
        result = steps_of_run.run_chain(run, notify=True, rebuild=False, wait_s=0)
        assert list(_without_code(result)) == []
        return result

    def notify(self, result: RunResult, *_: object) -> SimpleNamespace:
        self.notified.append(result)
        return SimpleNamespace(failed=False)

    @contextmanager
    def turn(self, *_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(lost=self.lost)


def _without_code(result: RunResult) -> Iterator[Reason]:
    """The reasons of bad verdicts, and the evidence against suspects, that the runbook cannot
    explain.
    """
    reasons = [each.reason for each in result.checks if each.verdict is not Verdict.PASS]
    evidence = [suspect.evidence for each in result.checks for suspect in each.suspects]
    yield from (text for text in (*reasons, *evidence) if not text.code)


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, empty_history: Path) -> Iterator[Chain]:
    """Three healthy nodes; whatever a test does to them, none may be left up unless the run keeps
    them.
    """
    made = Chain(FakePlatform(nodes=3), tmp_path / "out")
    history = shutil.copy(empty_history, tmp_path)
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{history}")
    flow_run = SimpleNamespace(id="00000000-0000-0000-0000-000000000000")
    without_prefect = {
        **STEPS,
        "localize_task": localize_run,
        "cluster_lock": made.turn,
        "current": flow_run,
    }
    for name, function in without_prefect.items():
        monkeypatch.setattr(steps_of_run, name, function)
    monkeypatch.setattr("seatrial.flows.at_work.current", flow_run)
    monkeypatch.setattr(steps_of_run, "notify_task", made.notify)
    monkeypatch.setattr(steps_of_run, "record_task", record.record)
    monkeypatch.setattr(steps_of_run, "upload_task", upload.upload)
    # The faults that tests inject are its errors
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    yield made
    for run_id in [*made.platform.kept]:
        made.platform.teardown(run_id)
    assert not made.platform.up
