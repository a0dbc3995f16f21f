"""A store of an older version becomes one of today, whatever happens meanwhile."""

import sqlite3
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.history import open_store, records
from seatrial.history.incident import advance, outcome_of
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import code_of
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from tests.unit.history.stored import PROCESSES, a_pin, a_run, open_and_save, taught


def _at_revision(url: str, revision: str) -> None:
    from seatrial.history.engine import _engine, parse_url, upgrade

    engine = _engine(parse_url(url))
    with engine.execution_options(writes=True).begin() as connection:
        upgrade(connection, revision)
    engine.dispose()


def _differences(url: str) -> list[object]:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from seatrial.history.engine import _engine, parse_url
    from seatrial.history.schema import VERSION_TABLE, metadata

    engine = _engine(parse_url(url))
    with engine.begin() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
        differences = list(compare_metadata(context, metadata))
    engine.dispose()
    return differences


def test_the_migrations_end_where_the_code_expects() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    from seatrial.history.schema import HEAD

    config = Config()
    config.set_main_option("script_location", "seatrial:history/migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_the_migrated_schema_is_the_one_in_the_code(url: str) -> None:
    open_store(url).close()
    assert _differences(url) == []


def as_it_was(run: RunResult) -> dict[str, Any]:
    """A row of `runs` before migrations 0004 and 0006."""
    return {
        key: value for key, value in records.run_record(run, Path()).items() if key not in ("setup", "code", "judged")
    }


def test_an_older_store_is_upgraded_and_keeps_its_runs(url: str) -> None:
    from sqlalchemy import insert

    from seatrial.history.engine import _engine, parse_url
    from seatrial.history.schema import runs

    _at_revision(url, "0001")
    engine = _engine(parse_url(url))
    with engine.execution_options(writes=True).begin() as connection:
        connection.execute(insert(runs), as_it_was(a_run(1)))
    engine.dispose()
    assert _differences(url) != []
    with open_store(url) as store:
        assert [row.run_id for row in store.runs()] == ["run-001"]
        store.pin("lab", [a_pin()])
    assert _differences(url) == []


_OLD_MEASUREMENT = (
    "INSERT INTO measurements (run_id, check_name, metric, subject_kind, subject_name, conditions, series, series_key,"
    " value, unit, samples, better, verdict) VALUES (:run_id, 'collectives', 'busbw', 'node', 'node-0', '{}', :series,"
    " :key, :value, 'GB/s', :samples, 'higher', :verdict)"
)


def test_measurements_of_an_older_store_come_along_with_their_repeats_and_samples(url: str) -> None:
    from sqlalchemy import insert, text

    from seatrial.history.engine import _engine, parse_url
    from seatrial.history.schema import runs

    _at_revision(url, "0002")
    engine = _engine(parse_url(url))
    with engine.execution_options(writes=True).begin() as connection:
        for number in range(2):
            connection.execute(insert(runs), as_it_was(a_run(number)))
            for name, value, samples in (("a", 1.0, "[1.0, 2.0]"), ("b", 2.0, "[]"), ("a", 3.0, "[]")):
                row = {"run_id": f"run-00{number}", "series": name, "key": records.series_key(name), "value": value}
                connection.execute(text(_OLD_MEASUREMENT), {**row, "samples": samples, "verdict": "pass"})
    engine.dispose()
    with open_store(url) as store:
        readings = store.readings(["run-000", "run-001"], ["b|GB/s", "a|GB/s"])
        assert readings.value.tolist() == [1.0, 3.0, 2.0] * 2
        assert readings.series.tolist() == [1, 1, 0] * 2
        assert taught(store, "b|GB/s", "a|GB/s") == {"a|GB/s": [2.0, 2.0], "b|GB/s": [2.0, 2.0]}
        assert taught(store, "a|Gb/s") == {}
        older = store.result("run-000")
        assert older is not None
        assert [(check.name, check.verdict, len(check.measurements)) for check in older.checks] == [
            ("collectives", Verdict.PASS, 3)
        ]
        assert older.checks[0].measurements[0].samples == (1.0, 2.0)
    engine = _engine(parse_url(url))
    with engine.begin() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM series")).scalar() == 2
        assert connection.execute(text("SELECT COUNT(*) FROM samples")).scalar() == 2
    engine.dispose()


def test_the_upgrade_adds_the_unit_to_series_and_pins(url: str) -> None:
    from sqlalchemy import insert

    from seatrial.history.engine import _engine, parse_url
    from seatrial.history.schema import baselines

    today = a_pin()
    of_old = replace(today, series=today.series.rpartition("|")[0])
    _at_revision(url, "0006")
    engine = _engine(parse_url(url))
    with engine.execution_options(writes=True).begin() as connection:
        connection.execute(insert(baselines), records.pin_record("lab", of_old))
    engine.dispose()
    with open_store(url) as store:
        assert store.pinned("lab") == {today.series: today}
        store.pin("lab", [replace(today, centre=1.0)])  # the same pin, by the same key
        assert [pin.centre for pin in store.pinned("lab").values()] == [1.0]


def test_a_suspect_of_an_open_incident_is_no_news_after_the_upgrade(url: str) -> None:
    from sqlalchemy import insert

    from seatrial.history.engine import _engine, parse_url
    from seatrial.history.schema import incidents
    from seatrial.history.store import _record

    bad = outcome_of(replace(a_run(1), verdict=Verdict.FAIL))
    old = replace(bad, suspects=("node node-2", "gpu node-1/gpu-3", "switch leaf-1"))
    (incident,) = advance([], "lab", "quick", old, ["slack"])
    _at_revision(url, "0009")
    engine = _engine(parse_url(url))
    with engine.execution_options(writes=True).begin() as connection:
        connection.execute(insert(incidents), _record(incident))
    engine.dispose()
    same = replace(bad, run_id="next", suspects=("node-2", "node-1/gpu-3", "switch leaf-1"))
    with open_store(url) as store:
        (kept,) = store.incidents("lab", "quick", same, ["slack"])
    assert (kept.run_count, kept.changes) == (2, incident.changes)


def _an_older_store(url: str, runs_in_it: int, width: int) -> None:
    """A store as revision 0002 left it."""
    from sqlalchemy import insert, text

    from seatrial.history.engine import _engine, parse_url
    from seatrial.history.schema import runs

    _at_revision(url, "0002")
    names = [f"series {n}" for n in range(width)]
    keys = {name: records.series_key(name) for name in names}
    engine = _engine(parse_url(url))
    with engine.execution_options(writes=True).begin() as connection:
        for number in range(runs_in_it):
            connection.execute(insert(runs), as_it_was(a_run(number)))
            rows = [
                {"run_id": f"run-{number:03}", "series": name, "key": keys[name], "value": 1.0, "samples": "[1.0]"}
                for name in names
            ]
            connection.execute(text(_OLD_MEASUREMENT), [{**row, "verdict": "pass"} for row in rows])
    engine.dispose()


def test_an_older_store_that_several_open_at_once_is_upgraded_once(url: str) -> None:
    _an_older_store(url, 3, 200)
    with ProcessPoolExecutor(3, PROCESSES) as pool:
        list(pool.map(open_and_save, [url] * 3, [3, 4, 5]))
    with open_store(url) as store:
        assert len(store.runs()) == 6
        names = [f"series {n}|GB/s" for n in range(200)]
        assert store.readings([f"run-{n:03}" for n in range(3)], names).value.size == 600
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


def test_an_upgrade_that_is_killed_is_made_anew_and_loses_nothing(url: str) -> None:
    _an_older_store(url, 4, 50)
    program = _UPGRADE.format(root=str(Path(__file__).parents[3]), url=url)
    for statements in (1, 2, 4):
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
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
    names = [f"series {n}|GB/s" for n in range(50)]
    with open_store(url) as store:
        assert store.readings([f"run-{n:03}" for n in range(4)], names).value.size == 200
        whole = store.result("run-003")
    assert whole is not None
    assert {m.samples for m in whole.checks[0].measurements} == {(1.0,)}
    assert _differences(url) == []


def test_a_failed_upgrade_leaves_nothing_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembic import op

    monkeypatch.setattr(op, "create_index", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        open_store(url)
    monkeypatch.undo()
    with open_store(url) as store:
        assert store.runs() == []


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.sqlite"
    open_store(url).close()
    with closing(sqlite3.connect(tmp_path / "history.sqlite")) as connection, connection:
        connection.execute("UPDATE seatrial_version SET version_num = '9999'")
    with pytest.raises(SeatrialError, match=r"history\.sqlite\?password=\*\*\*: ") as raised:
        open_store(f"{url}?password=s3cret")
    assert code_of(raised.value.reason) == "history-too-new"
