"""A store of an older version becomes one of today, whatever happens meanwhile."""

import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.history import open_store, records
from seatrial.history.incident import advance, outcome_of
from seatrial.history.incident_rows import incident_record
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import Reason, uncoded
from seatrial.model.verdict import Verdict
from tests.unit.history.stored import PROCESSES, a_pin, a_run, open_and_save


def _make_0009(url: str) -> None:
    """Make a store as revision 0009 did."""
    from alembic.command import stamp
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    from seatrial.history.engine import _config, _engine, parse_url
    from tests.unit.history.store_0009 import make

    engine = _engine(parse_url(url))
    with engine.execution_options(writes=True).begin() as connection:
        with Operations.context(MigrationContext.configure(connection)):
            make()
        stamp(_config(connection), "0009")
    engine.dispose()


def _differences(url: str) -> list[object]:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from seatrial.history.engine import _engine, parse_url
    from seatrial.history.schema import VERSION_TABLE, metadata

    engine = _engine(parse_url(url))
    with engine.begin() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        differences = list(compare_metadata(context, metadata))
    engine.dispose()
    return differences


def test_migrations_end_at_the_revision_of_the_schema() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    from seatrial.history.schema import HEAD

    config = Config()
    config.set_main_option("script_location", "seatrial:history/migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_the_migrated_schema_is_the_one_in_the_code(url: str) -> None:
    open_store(url).close()
    assert _differences(url) == []


def _insert_0009(url: str, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Insert rows by table as revision 0009 had them."""
    from sqlalchemy import MetaData, Table, insert

    from seatrial.history.engine import _engine, parse_url

    engine = _engine(parse_url(url))
    with engine.execution_options(writes=True).begin() as connection:
        for name, records_of in rows.items():
            table = Table(name, MetaData(), autoload_with=connection)
            connection.execute(insert(table), list(records_of))
    engine.dispose()


def _run_0009(number: int) -> dict[str, Any]:
    """A run as revision 0009 had it."""
    record = records.run_record(a_run(number), Path())
    del record["judged"]
    times = {name: record[name].replace(tzinfo=None) for name in ("started", "finished")}
    return {**record, **times, "verdict": "pass", "code": None, "reason": "because"}


def _an_older_store(url: str, runs_in_it: int) -> None:
    """A store as revision 0009 left it."""
    _make_0009(url)
    _insert_0009(url, {"runs": [_run_0009(number) for number in range(runs_in_it)]})


def test_an_older_store_is_upgraded_and_keeps_its_runs(url: str) -> None:
    _an_older_store(url, 1)
    assert _differences(url) != []
    with open_store(url) as store:
        assert [row.run_id for row in store.runs()] == ["run-000"]
        store.pin("lab", [a_pin()])
    assert _differences(url) == []


def test_suspects_of_an_open_incident_are_still_known_after_the_upgrade(url: str) -> None:
    bad = outcome_of(replace(a_run(1), verdict=Verdict.FAIL))
    old = replace(bad, suspects=("node node-2", "gpu node-1/gpu-3", "switch leaf-1"))
    (incident,) = advance([], "lab", "quick", old, ["slack"])
    record = incident_record(incident) | {"verdict": "fail", "worst": "fail", "reason": "because"}
    times = {name: record[name].replace(tzinfo=None) for name in ("opened", "seen")}
    _make_0009(url)
    _insert_0009(url, {"incidents": [record | times]})
    same = replace(bad, run_id="next", suspects=("node-2", "node-1/gpu-3", "switch leaf-1"))
    with open_store(url) as store:
        (kept,) = store.incidents("lab", "quick", same, ["slack"])
    assert (kept.run_count, kept.changes) == (2, incident.changes)


def test_upgrade_keeps_reasons_and_rows_that_refer_to_a_run(url: str) -> None:
    of_run = {"run_id": "run-000"}
    refused = {"code": "ssh-refused", "reason": "10.0.0.1: refused"}
    number = {"series_id": 1, "nth": 0, "value": 0.5, "verdict": "pass"}
    found = {"verdict": "fail", "reason": "dead", "suspects": []}
    old = {"kind": "node", "name": "node-2", "confidence": 0.9, "code": None, "evidence": "slow"}
    (series,) = records.series_records(records.keyed(a_run(0))).values()
    _make_0009(url)
    _insert_0009(
        url,
        {
            "runs": [_run_0009(0) | refused, _run_0009(1)],
            "checks": [
                {**of_run, **refused, "nth": n, "name": name, "verdict": "fail", "seconds": 1.0}
                | {"found": found}
                for n, name in enumerate(("collectives", "training"))
            ],
            "series": [series],
            "readings": [of_run | number],
            "suspects": [{**of_run, **old}, {**of_run, **old, "code": "tcp-node-slow"}],
        },
    )
    with open_store(url) as store:
        reasons = {row.run_id: row.reason for row in store.runs()}
        assert reasons["run-001"] == uncoded("because")
        run = store.result("run-000")
        assert run is not None
        reason = Reason("ssh-refused", {}, "10.0.0.1: refused")
        assert [run.reason, *(check.reason for check in run.checks)] == [reason] * 3
        assert [check.raw.reason for check in run.checks] == [uncoded("dead")] * 2
        assert [suspect.evidence.code for suspect in run.suspects] == [None, "tcp-node-slow"]
        assert [suspect.evidence.sentence for suspect in run.suspects] == ["slow", "slow"]
        assert [m.value for m in run.checks[0].measurements] == [0.5]
        assert store.remove_runs(["run-000"]) == 1  # with all that refers to it
        assert store.measurements("run-000") == []
    assert _differences(url) == []


def test_older_store_opened_by_several_processes_is_upgraded_once(url: str) -> None:
    _an_older_store(url, 3)
    with ProcessPoolExecutor(3, PROCESSES) as pool:
        list(pool.map(open_and_save, [url] * 3, [3, 4, 5]))
    with open_store(url) as store:
        assert len(store.runs()) == 6
    assert _differences(url) == []


_UPGRADE = """
import sys
sys.path.insert(0, {root!r})
from sqlalchemy import Engine, event
from seatrial.history import open_store

@event.listens_for(Engine, "before_cursor_execute")
def ask(connection, cursor, statement, *_):
    if not statement.lstrip().upper().startswith(("SELECT", "PRAGMA")):
        print("writes", flush=True)
        sys.stdin.readline()

open_store({url!r}).close()
print("done", flush=True)
"""


def test_a_killed_upgrade_is_repeated_without_loss(url: str) -> None:
    _an_older_store(url, 4)
    program = _UPGRADE.format(root=str(Path(__file__).parents[3]), url=url)
    for statements in (1, 2, 4, 13, 16):
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert process.stdin
        assert process.stdout
        try:
            for _ in range(statements - 1):
                assert process.stdout.readline() == "writes\n"
                process.stdin.write("go on\n")
            assert process.stdout.readline() == "writes\n"  # and waits
        finally:
            process.kill()
            process.communicate()
    with open_store(url) as store:
        assert len(store.runs()) == 4
    assert _differences(url) == []


def test_a_failed_upgrade_leaves_nothing_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembic import op

    _an_older_store(url, 1)
    monkeypatch.setattr(op, "create_index", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        open_store(url)
    monkeypatch.undo()
    with open_store(url) as store:
        assert [row.run_id for row in store.runs()] == ["run-000"]
    assert _differences(url) == []


def test_a_new_store_that_cannot_be_made_leaves_nothing_behind(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alembic.command.stamp", lambda *_: 1 / 0)  # after the tables
    with pytest.raises(ZeroDivisionError):
        open_store(url)
    monkeypatch.undo()
    with open_store(url) as store:
        assert store.runs() == []


@pytest.mark.parametrize(
    ("revision", "code"), [("9999", "history-too-new"), ("0003", "history-too-old")]
)
def test_a_store_of_a_version_that_is_too_new_or_too_old_is_left_alone(
    tmp_path: Path, revision: str, code: str
) -> None:
    url = f"sqlite:///{tmp_path}/history.sqlite"
    open_store(url).close()
    with closing(sqlite3.connect(tmp_path / "history.sqlite")) as connection, connection:
        connection.execute("UPDATE seatrial_version SET version_num = ?", (revision,))
    with pytest.raises(SeatrialError, match=r"history\.sqlite\?password=\*\*\*: ") as raised:
        open_store(f"{url}?password=s3cret")
    assert raised.value.reason.code == code
