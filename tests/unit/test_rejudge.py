"""Runs that are over: judged again by today's rules, and compared, from the history alone."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seatrial.cli.app import app
from seatrial.history import Pin, open_store
from seatrial.history.past import RunContext
from seatrial.history.store import Store
from seatrial.model.errors import InputError
from seatrial.model.reason import uncoded
from seatrial.model.result import Check, RunResult, Suspect, merge_suspects
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.runs.login import run_of
from seatrial.runs.rejudge import rejudge
from seatrial.tasks.check import compare
from seatrial.tasks.record import record
from seatrial.text.headline import conclude
from tests.sample_sweeps import plateau
from tests.stored_nights import as_before
from tests.unit.collectives.fake_mpirun import make_run

START = datetime(2026, 11, 2, 1, 30, tzinfo=UTC)
LAB = Setup("H100-SXM", 2, 8, 8, "IB-8x400G")


def judged(number: int, value: float, store: Store, *more: Check) -> RunResult:
    """A run as the flow makes it."""
    at = START + timedelta(days=number)
    swept = Check("collectives", Verdict.PASS, uncoded("1 sweep"), 1.0, (plateau(value, 16),))
    checks = compare(
        [*more, swept], LAB, store, RunContext("lab", "quick", {"nccl": "2.27"}, at), as_before
    )
    verdict, reason = conclude(checks)
    suspects = merge_suspects(checks)
    return RunResult(
        f"run-{number}",
        "lab",
        "quick",
        at,
        at,
        verdict,
        reason,
        (),
        checks,
        suspects,
        {"nccl": "2.27"},
        setup=LAB,
    )


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Four healthy runs, then one at a tenth; none of their folders is there any more."""
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{tmp_path}/history.sqlite")
    with open_store() as opened:
        for number, value in enumerate((360.0, 362.0, 358.0, 361.0, 36.0)):
            opened.save(judged(number, value, opened), tmp_path / "gone")
        yield opened


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def outcome(run: RunResult) -> tuple[object, ...]:
    shown = [(c.name, c.verdict, c.reason, [j.to_dict() for j in c.judgements]) for c in run.checks]
    return run.verdict, run.reason, shown, run.suspects


@pytest.mark.parametrize("number", [0, 3, 4])
def test_rejudging_without_new_rules_gives_the_same_result(store: Store, number: int) -> None:
    """Also for the first run, although the history holds later ones by now; reasons and intervals
    are compared too.
    """
    value = (360.0, 362.0, 358.0, 361.0, 36.0)[number]
    with open_store("sqlite://") as then:
        for earlier in range(number):
            then.save(judged(earlier, (360.0, 362.0, 358.0, 361.0)[earlier], then), Path())
        first = judged(number, value, then)
    stored = run_of(f"run-{number}")
    assert outcome(rejudge(stored, store)) == outcome(first)


def test_a_run_whose_folder_is_damaged_is_read_from_the_history(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "run.json").write_text("{ cut off")
    assert run_of("run-2").run_id == "run-2"
    assert "run.json" in caplog.text


def test_rejudging_uses_a_new_pin_and_leaves_the_stored_run(store: Store) -> None:
    pin = Pin(plateau(0, 16).series(), 370.0, 365.0, None, "GB/s", "ann", START)
    assert rejudge(run_of("run-2"), store).verdict is Verdict.PASS
    store.pin("lab", [pin])
    result = rejudge(run_of("run-2"), store)
    assert result.verdict is Verdict.DEGRADED
    assert result.checks[0].judgements[0].source == "pinned"
    stored = store.run("run-2")
    assert stored and stored.verdict is Verdict.PASS  # nothing is changed


def test_rejudging_keeps_problems_that_the_check_found_itself(store: Store) -> None:
    """A dead node stays a failure; a number that was too low is judged by the new rules."""
    dead = Suspect("node", "node-1", 1.0, uncoded("connection refused"))
    own = Check(
        "connectivity", Verdict.FAIL, uncoded("node-1: connection refused"), suspects=(dead,)
    )
    store.save(judged(9, 36.0, store, own), Path())
    store.pin("lab", [Pin(plateau(0, 16).series(), 36.0, 30.0, None, "GB/s", "ann", START)])
    result = rejudge(run_of("run-9"), store)
    assert (result.checks[0].verdict, result.checks[0].reason.sentence) == (
        Verdict.FAIL,
        "node-1: connection refused",
    )
    assert result.checks[1].verdict is Verdict.PASS
    assert result.suspects == [replace(dead, verdict=Verdict.FAIL)]


def test_a_run_whose_checks_were_lost_never_becomes_a_pass(store: Store, tmp_path: Path) -> None:
    store.save(replace(judged(9, 361.0, store), verdict=Verdict.FAIL), Path())
    with closing(sqlite3.connect(tmp_path / "history.sqlite")) as connection, connection:
        connection.execute("DELETE FROM checks WHERE run_id = 'run-9'")
        connection.execute("UPDATE runs SET setup = NULL WHERE run_id = 'run-9'")
    result = rejudge(run_of("run-9"), store)
    assert (result.verdict, result.reason.sentence) == (
        Verdict.INCONCLUSIVE,
        "nothing was measured",
    )


def test_a_runs_folder_is_judged_again_as_well(store: Store, tmp_path: Path) -> None:
    run = judged(7, 36.0, store)
    out = tmp_path / "out"
    record(run, replace(make_run(tmp_path), out=out))
    again = rejudge(run_of(str(out)), store)
    assert outcome(again) == outcome(run)


def test_rejudge_prints_the_former_and_the_new_verdict(store: Store) -> None:
    result = command("rejudge", "run-4")
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0].startswith("run-4 was fail: ")
    assert lines[-1].startswith(
        "fail: collectives: all_reduce busbw_plateau 36 GB/s, earlier runs 360 GB/s (90 % less)"
    )
    assert lines[-3] == "since 6 Nov 2026 01:30 UTC (run run-4), passed before"
    assert lines[-2].startswith("next: ")
    document = json.loads(command("rejudge", "run-4", "--json").output)
    assert document["verdict"] == "fail"
    assert document["setup"]["fabric"] == "IB-8x400G"
    store.pin("lab", [Pin(plateau(0, 16).series(), 36.0, 30.0, None, "GB/s", "ann", START)])
    result = command("rejudge", "run-4")
    assert (result.exit_code, "collectives: pass (was fail): " in result.output) == (0, True)
    assert "since 2 Nov 2026 01:30 UTC (run run-0, 5 runs), never different before" in result.output
    assert isinstance(command("rejudge", "nowhere").exception, InputError)


def test_log_text_cannot_forge_a_line_of_rejudge_output(store: Store, tmp_path: Path) -> None:
    evil = Check("launch", Verdict.NOT_RUN, uncoded("node-1 said:\n\x1b[2Kpass: fine"))
    at = START + timedelta(days=9)
    store.save(
        RunResult("run-9", "lab", "quick", at, at, evil.verdict, evil.reason, checks=[evil]),
        tmp_path,
    )
    output = command("rejudge", "run-9").output
    assert "launch: not_run: node-1 said: [2Kpass: fine\n" in output
    assert not {"\x1b", "pass: fine"} & {*output, *output.splitlines()}
