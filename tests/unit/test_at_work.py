"""Records of runs at work: who has a record, and which runs were killed."""

import json
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from seatrial.flows.serving import killed
from seatrial.flows.serving.killed import close_killed_runs
from seatrial.history import open_store
from seatrial.model.verdict import Verdict
from seatrial.runs.at_work import killed_runs, recorded, runs_at_work
from seatrial.runs.load import load_result
from tests.samples import healthy_local

FLOW_RUN = UUID(int=7)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{tmp_path}/history.sqlite")
    monkeypatch.setattr(killed, "provide_prefect_server", lambda: None)
    return tmp_path


def prepared() -> str:
    return json.dumps(
        {**healthy_local().to_dict(), "verdict": "inconclusive", "reason": "the run was killed"}
    )


def kill_a_run(home: Path, out: Path) -> None:
    """Have a process that dies with its record."""
    script = f"""
import os, signal
from pathlib import Path
from uuid import UUID
from seatrial.runs.at_work import recorded
with recorded("run-1", Path({str(home / "prepared")!r}).read_text(), Path({str(out)!r}), UUID(int=7)):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    (home / "prepared").write_text(prepared())
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9


def test_a_run_at_work_has_a_record_until_its_end(home: Path) -> None:
    with recorded("run-1", prepared(), home / "out", FLOW_RUN):
        (run,) = runs_at_work()
        assert (run.run_id, run.out, run.flow_run, run.was_killed) == (
            "run-1",
            home / "out",
            FLOW_RUN,
            False,
        )
        assert killed_runs() == []
        assert run.folder.stat().st_mode & 0o777 == 0o700
    assert runs_at_work() == []


def test_a_killed_run_is_closed_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed_flow_runs: list[UUID] = []
    monkeypatch.setattr(
        killed, "_close_flow_run", lambda flow_run, result: closed_flow_runs.append(flow_run)
    )
    out = home / "out"
    (out / "logs").mkdir(parents=True)
    kill_a_run(home, out)
    (result,) = close_killed_runs()
    assert (result.verdict, result.reason.sentence) == (Verdict.INCONCLUSIVE, "the run was killed")
    assert load_result(out).verdict is Verdict.INCONCLUSIVE
    assert closed_flow_runs == [FLOW_RUN]
    with open_store() as store:
        assert [(row.verdict, row.out) for row in store.runs()] == [
            (Verdict.INCONCLUSIVE, str(out))
        ]
    assert close_killed_runs() == []


def test_a_killed_run_that_has_a_verdict_keeps_it(home: Path) -> None:
    out = home / "out"
    out.mkdir()
    kill_a_run(home, out)
    (out / "run.json").write_text(json.dumps(healthy_local().to_dict()))
    assert close_killed_runs() == []
    assert load_result(out).verdict is Verdict.PASS
    assert runs_at_work() == []


@pytest.mark.parametrize("text", ["", "{}", "[" * 10_000, '{"pid": 0}', "\x00"])
def test_a_broken_record_is_left_out(home: Path, text: str) -> None:
    kill_a_run(home, home / "out")
    (run,) = killed_runs()
    (run.folder / "record.json").write_text(text)
    assert runs_at_work() == []
