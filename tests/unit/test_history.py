"""The store: what goes in comes out, on SQLite and on PostgreSQL, with many writers and with every kind of breakage."""

import io
import math
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from seatrial.baselines.nights import nights_before
from seatrial.baselines.setup import Setup
from seatrial.errors import InputError, MissingError, SeatrialError
from seatrial.history import Pin, open_store, records
from seatrial.history.numbers import Number
from seatrial.history.store import Store
from seatrial.measurement import ConditionValue, Measurement, Subject
from seatrial.report.earlier_runs import history_json, history_table, show_history
from seatrial.report.past import headlines
from seatrial.result import Check, Found, Judgement, RunResult, Suspect
from seatrial.verdict import Verdict
from tests.postgres import postgres_server

START = datetime(2026, 11, 2, 1, 30, tzinfo=UTC)
CLUSTER = Subject("cluster", "lab")


def plateau(value: float, samples: tuple[float, ...] = ()) -> Measurement:
    conditions: dict[str, ConditionValue] = {"operation": "all_reduce", "dtype": "float32", "ranks": 4}
    return Measurement("busbw_plateau", value, "GB/s", CLUSTER, conditions, samples)


def a_run(number: int, value: float = 0.5, verdict: Verdict = Verdict.PASS, **fields: object) -> RunResult:
    check = Check("collectives", verdict, "because", 1.0, (plateau(value, (value, value)),))
    given = {
        "run_id": f"run-{number:03}",
        "cluster": "lab",
        "suite": "quick",
        "started": START + timedelta(days=number),
        "finished": START + timedelta(days=number, minutes=1),
        "verdict": verdict,
        "reason": "because",
        "checks": [check],
        "suspects": [Suspect("node", "node-2", 0.9, "slow")],
        "fingerprint": {"nccl": "2.27"},
    }
    return RunResult(**{**given, **fields})  # type: ignore[arg-type]


def a_pin(value: float = 0.5) -> Pin:
    return Pin(plateau(value).series(), value, 0.4, None, "GB/s", "ann", START, "run-001", "after the upgrade")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_server() as folder:
        yield f"postgresql://postgres@/postgres?host={folder}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/history.sqlite"
    pytest.importorskip("psycopg")
    found: str = request.getfixturevalue("postgres_url")
    _empty(found)
    return found


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


def _empty(url: str) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


def taught(store: Store, *series: str, cluster: str = "lab") -> dict[str, list[float]]:
    """What a run of today would learn from the store."""
    return nights_before(store, cluster, "quick", {"nccl": "2.27"}, series, START + timedelta(days=80)).values()


def test_a_saved_run_comes_back(store: Store) -> None:
    store.save(a_run(1), Path("/runs/1"))
    (row,) = store.runs("lab")
    assert (row.run_id, row.verdict, row.started, row.out) == (
        "run-001",
        Verdict.PASS,
        START + timedelta(days=1),
        "/runs/1",
    )
    assert row.fingerprint == {"nccl": "2.27"}
    assert store.run("run-001") == row
    assert store.run("run-999") is None


def test_repeats_are_shown_by_the_median_that_was_judged(store: Store) -> None:
    values = (60.0, 101.0, 100.0)
    check = Check("collectives", Verdict.PASS, "because", 1.0, tuple(plateau(value) for value in values))
    run = a_run(1, checks=[check])
    store.save(run, Path())
    series = plateau(0).series()
    assert store.numbers(["run-001"], [series]) == {series: {"run-001": Number(100.0, None)}}
    assert [m.value for m in headlines(run)] == [100.0]


def test_saving_twice_keeps_one_run_and_the_later_word(store: Store) -> None:
    store.save(a_run(1, 0.5), Path())
    store.save(a_run(1, 0.6, reason="again"), Path())
    assert [row.reason for row in store.runs()] == ["again"]
    assert taught(store, plateau(0).series()) == {plateau(0).series(): [0.6]}


def test_runs_are_newest_first_and_limited(store: Store) -> None:
    for number in (2, 1, 3):
        store.save(a_run(number), Path())
    store.save(a_run(9, cluster="other"), Path())
    assert [row.run_id for row in store.runs("lab", limit=2)] == ["run-003", "run-002"]
    assert [row.run_id for row in store.runs()] == ["run-009", "run-003", "run-002", "run-001"]


def test_last_verdict_is_of_the_run_before(store: Store) -> None:
    store.save(a_run(1, verdict=Verdict.FAIL), Path())
    store.save(a_run(2, verdict=Verdict.DEGRADED, suite="nightly"), Path())
    store.save(a_run(3), Path())
    assert store.last_verdict("lab") is Verdict.PASS
    assert store.last_verdict("lab", before="run-003") is Verdict.DEGRADED
    assert store.last_verdict("lab", "quick", before="run-003") is Verdict.FAIL
    assert store.last_verdict("lab", before="run-001") is None
    assert store.last_verdict("lab", before="not saved yet") is Verdict.PASS
    assert store.last_verdict("elsewhere") is None


def test_only_passing_runs_of_the_same_cluster_teach(store: Store) -> None:
    series = plateau(0).series()
    for number, verdict in enumerate(Verdict):
        store.save(a_run(number, float(number + 1), verdict), Path())
    store.save(a_run(70, 90.0, cluster="other"), Path())
    assert taught(store, series, "unknown") == {series: [1.0]}


def test_a_value_judged_bad_teaches_nothing_even_in_a_passing_run(store: Store) -> None:
    m = plateau(0.1)
    bad = Judgement(m, Verdict.DEGRADED, "low", "history")
    check = Check("collectives", Verdict.PASS, "", 0.0, (m,), (bad,))
    store.save(a_run(1, checks=[check]), Path())
    assert taught(store, m.series()) == {}


def test_numbers_that_are_none_and_text_that_is_hardly_any_are_survived(store: Store) -> None:
    odd = Measurement("loss", math.nan, "", CLUSTER, {"lr": math.inf}, (math.nan, 1.0), None)
    check = Check("training", Verdict.CORRUPT, "", 0.0, (odd,))
    run = a_run(1, verdict=Verdict.CORRUPT, reason="nul \0 and half a \udc80 character", checks=[check])
    store.save(run, Path())
    assert store.runs()[0].reason == "nul \ufffd and half a ? character"
    assert taught(store, odd.series()) == {}


def test_a_subject_as_long_as_a_thousand_nodes_is_stored(store: Store) -> None:
    group = Measurement("busbw", 1.0, "GB/s", Subject("group", ",".join(f"node-{n}" for n in range(3000))))
    store.save(a_run(1, checks=[Check("c", Verdict.PASS, "", 0.0, (group,))]), Path())
    assert taught(store, group.series()) == {group.series(): [1.0]}


def test_a_run_is_saved_whole_or_not_at_all(store: Store) -> None:
    store.save(a_run(1), Path())
    with pytest.raises(SeatrialError, match="run run-001 cannot be saved"):
        store.save(a_run(1, suspects=[Suspect("node", None, 0.5, "")], reason="never seen"), Path())  # type: ignore[arg-type]
    assert [row.reason for row in store.runs()] == ["because"]
    assert taught(store, plateau(0).series()) != {}


def test_pins_replace_each_other_and_can_be_taken_back(store: Store) -> None:
    store.pin("lab", [a_pin(0.5)])
    store.pin("lab", [a_pin(0.7)])
    assert store.pinned("lab") == {a_pin().series: a_pin(0.7)}
    assert store.pinned("other") == {}
    assert store.unpin("lab", [a_pin().series, "unknown"]) == 1
    assert store.pinned("lab") == {}


def _open_and_save(url: str, number: int) -> None:
    with open_store(url) as store:
        store.save(a_run(number % 6), Path())


def test_processes_that_open_and_save_at_once_all_succeed(url: str) -> None:
    """Some of them the same run: the schema is made once, and each run is there once."""
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        list(pool.map(_open_and_save, [url] * 9, range(9)))
    with open_store(url) as store:
        assert len(store.runs()) == 6


def _save_many(url: str, numbers: range) -> None:
    with open_store(url) as store:
        for number in numbers:
            store.save(_wide(number), Path())


def _wide(number: int, width: int = 300) -> RunResult:
    """A run with many series, among them some that no other run has."""
    names = [*(f"node-{n}" for n in range(width)), f"only-{number}"]
    measured = tuple(Measurement("matmul", 1.0 + number, "TFLOP/s", Subject("node", name)) for name in names)
    return a_run(number, checks=[Check("devices", Verdict.PASS, "", 0.0, measured)])


def test_two_that_save_new_series_at_once_lose_nothing(url: str) -> None:
    open_store(url).close()
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        list(pool.map(_save_many, [url] * 2, [range(5), range(5, 10)]))
    with open_store(url) as store:
        runs = [row.run_id for row in store.runs()]
        names = [_wide(0).checks[0].measurements[n].series() for n in (0, 299)]
        found = store.readings(sorted(runs), names)
    assert len(runs) == 10
    assert found.value.tolist() == [1.0 + number for number in range(10) for _ in range(2)]


_SAVE_FOR_EVER = """
import itertools, sys
sys.path.insert(0, {root!r})
from tests.unit.test_history import _wide, open_store, Path
with open_store({url!r}) as store:
    for number in itertools.count(1):
        store.save(_wide(number), Path())
        print(number, flush=True)
"""


def test_a_kill_in_the_middle_loses_at_most_the_run_that_was_being_saved(url: str) -> None:
    """Whatever was said to be saved is there and whole; what was being saved is there whole or not at all."""
    open_store(url).close()
    program = _SAVE_FOR_EVER.format(root=str(Path(__file__).parents[2]), url=url)
    said = 0
    for delay in (0.02, 0.05):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout
            for _ in range(3):
                said = max(said, int(process.stdout.readline()))
            time.sleep(delay)
        finally:
            process.kill()
            rest, _ = process.communicate()
        said = max([said, *(int(line) for line in rest.split("\n")[:-1])])
    with open_store(url) as store:
        runs = {row.run_id for row in store.runs(limit=10_000)}
        assert {f"run-{number:03}" for number in range(1, said + 1)} <= runs
        assert len(runs) <= said + 1
        for run_id in runs:
            names = [m.series() for m in _wide(int(run_id[4:])).checks[0].measurements]
            assert store.readings([run_id], names).value.size == 301
        store.save(_wide(0), Path())


def test_a_whole_run_comes_back_as_far_as_it_is_kept(store: Store) -> None:
    odd = Measurement("loss", math.nan, "", CLUSTER, {"lr": 0.1}, (math.nan, 1.0), None)
    blamed = Suspect("node", "node-1", 1.0, "dead \0")
    found = Found(Verdict.FAIL, "node-1: dead", (blamed,))
    first = Check("connectivity", Verdict.FAIL, "node-1: dead; slow", 2.0, (odd,), suspects=(blamed,), found=found)
    second = Check("collectives", Verdict.PASS, "fine", 1.0, (plateau(0.5, (0.4, 0.6)), plateau(0.7)))
    setup = Setup("H100-SXM", 2, 8, 8, "IB-8x400G", node_link_gb_s=400.0)
    store.save(a_run(1, checks=[first, second], setup=setup), Path())
    back = store.result("run-001")
    assert back is not None
    assert back.setup == setup
    assert back.suspects == [Suspect("node", "node-2", 0.9, "slow")]
    one, two = back.checks
    assert (one.verdict, one.reason, one.seconds) == (Verdict.FAIL, "node-1: dead; slow", 2.0)
    assert one.unjudged().verdict is Verdict.FAIL
    assert one.unjudged().reason == "node-1: dead"
    assert [suspect.evidence for suspect in one.unjudged().suspects] == ["dead \ufffd"]
    assert math.isnan(one.measurements[0].value)
    assert one.measurements[0].samples[1:] == (1.0,)
    assert two.measurements == second.measurements
    assert store.result("run-999") is None


def test_readings_are_found_by_place_and_know_what_was_judged_bad(store: Store) -> None:
    m, bad = plateau(0.5), plateau(0.1)
    judged = Judgement(bad, Verdict.DEGRADED, "low", "history")
    store.save(a_run(1, checks=[Check("collectives", Verdict.PASS, "", 0.0, (m, plateau(0.6)))]), Path())
    store.save(a_run(2, checks=[Check("collectives", Verdict.DEGRADED, "", 0.0, (bad,), (judged,))]), Path())
    store.save(a_run(3, checks=[Check("collectives", Verdict.PASS, "", 0.0, (plateau(math.nan),))]), Path())
    found = store.readings(["run-002", "run-001", "run-003", "none"], ["unknown", m.series()])
    assert found.run.tolist() == [0, 1, 1]
    assert found.series.tolist() == [1, 1, 1]
    assert found.nth.tolist() == [0, 0, 1]
    assert found.value.tolist() == [0.1, 0.5, 0.6]
    assert found.good.tolist() == [False, True, True]
    assert store.readings([], [m.series()]).value.size == 0


def test_runs_since_are_oldest_first_of_one_suite(store: Store) -> None:
    for number in (3, 1, 2):
        store.save(a_run(number), Path())
    store.save(a_run(4, suite="nightly"), Path())

    def since(first: int, before: int) -> list[str]:
        found = store.runs_since("lab", "quick", START + timedelta(days=first), START + timedelta(days=before))
        return [row.run_id for row in found]

    assert since(2, 9) == ["run-002", "run-003"]
    assert since(0, 3) == ["run-001", "run-002"]


def test_the_flag_wins_over_the_environment_over_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("SEATRIAL_HISTORY", raising=False)
    open_store().close()
    assert (tmp_path / "state/seatrial/history.sqlite").exists()
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{tmp_path}/environment.sqlite")
    open_store().close()
    assert (tmp_path / "environment.sqlite").exists()
    open_store(f"sqlite:///{tmp_path}/deep/down/flag.sqlite").close()
    assert (tmp_path / "deep/down/flag.sqlite").exists()


@pytest.mark.parametrize(
    "nonsense",
    [
        "nonsense",
        "http://host/db",
        "mysql://ann:secret@host/db",
        "postgresql://ann:secret@host:port/db",
        "://",
        "sqlite+x://",
    ],
)
def test_a_nonsense_url_is_bad_input_without_its_password(nonsense: str) -> None:
    with pytest.raises(InputError, match=r"^history URL .*legal: sqlite:") as error:
        open_store(nonsense)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unreachable_server_is_named_without_its_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(SeatrialError, match="cannot be opened") as error:
        open_store("postgresql://ann:s3cret@127.0.0.1:1/db?connect_timeout=2&password=s3cret")
    assert "s3cret" not in str(error.value)
    assert "127.0.0.1:1/db" in str(error.value)


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingError, match=r"install seatrial\[postgres\]"):
        open_store("postgresql://host/db")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").write_text("dear diary" * 100)
    with pytest.raises(
        SeatrialError, match=r"history\.sqlite: cannot be opened: file is not a database; move the file"
    ):
        open_store(f"sqlite:///{tmp_path}/history.sqlite")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SeatrialError, match="cannot be opened"):
        open_store(f"sqlite:///{tmp_path}/file/history.sqlite")


def test_a_locked_store_says_so(tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    with (
        open_store(f"sqlite:///{file}?timeout=0.1") as store,
        closing(sqlite3.connect(file, isolation_level=None)) as other,
    ):
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SeatrialError, match="locked; another process holds it"):
            store.save(a_run(1), Path())


def test_a_read_only_store_can_be_read_but_not_written(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/history.sqlite") as store:
        store.save(a_run(1), Path())
    with open_store(f"sqlite:///file:{tmp_path}/history.sqlite?mode=ro&uri=true") as store:
        assert len(store.runs()) == 1
        with pytest.raises(SeatrialError, match="cannot be saved: attempt to write a readonly database"):
            store.save(a_run(2), Path())


def test_a_store_in_memory_works() -> None:
    with open_store("sqlite://") as store:
        store.save(a_run(1), Path())
        assert len(store.runs()) == 1


def test_opening_a_current_store_does_not_import_alembic(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.sqlite"
    open_store(url).close()
    program = f"import sys, seatrial.history as h; h.open_store({url!r}).close(); sys.exit('alembic' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_importing_the_package_is_light() -> None:
    program = "import sys, seatrial.history, seatrial.assess; sys.exit('sqlalchemy' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_table_and_the_json_show_every_run() -> None:
    from rich.console import Console

    with open_store("sqlite://") as store:
        store.save(a_run(1, verdict=Verdict.FAIL, reason="[red]node-2[/red] is slow"), Path("/runs/1"))
        rows = store.runs()
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(history_table(rows))
    assert "[red]node-2[/red] is slow" in console.export_text()
    assert history_json(rows)[0]["started"] == "2026-11-03T01:30:00+00:00"


def test_a_long_reason_takes_no_room_from_what_else_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with open_store("sqlite://") as store:
        store.save(a_run(1, verdict=Verdict.FAIL, reason="node-2 is slow, " * 40), Path("/runs/1"))
        rows = store.runs()
    show_history(rows)
    line = capsys.readouterr().out.splitlines()[1]
    assert line.startswith(rows[0].run_id)
    assert f" {rows[0].cluster} " in line
    assert " fail " in line
    assert "node-2 is slow" in line


# The schema


def _at_revision(url: str, revision: str) -> None:
    from seatrial.history.engine import _engine, parse_url
    from seatrial.history.migrate import upgrade

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
        found = list(compare_metadata(context, metadata))
    engine.dispose()
    return found


def test_the_migrations_end_where_the_code_expects() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    from seatrial.history.schema import HEAD

    config = Config()
    config.set_main_option("script_location", "seatrial:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_the_migrated_schema_is_the_one_in_the_code(url: str) -> None:
    open_store(url).close()
    assert _differences(url) == []


def as_it_was(run: RunResult) -> dict[str, Any]:
    """A row of `runs` before migration 0004."""
    return {key: value for key, value in records.run(run, Path()).items() if key != "setup"}


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
        found = store.readings(["run-000", "run-001"], ["b", "a"])
        assert found.value.tolist() == [1.0, 3.0, 2.0] * 2
        assert found.series.tolist() == [1, 1, 0] * 2
        assert found.nth.tolist() == [0, 1, 0] * 2
        assert taught(store, "b", "a") == {"a": [2.0, 2.0], "b": [2.0, 2.0]}
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
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        list(pool.map(_open_and_save, [url] * 3, [3, 4, 5]))
    with open_store(url) as store:
        assert len(store.runs()) == 6
        names = [f"series {n}" for n in range(200)]
        assert store.readings([f"run-{n:03}" for n in range(3)], names).value.size == 600
    assert _differences(url) == []


_UPGRADE = """
import sys
sys.path.insert(0, {root!r})
import alembic.command
from seatrial.history import open_store
print("now", flush=True)
open_store({url!r}).close()
print("done", flush=True)
"""


def test_an_upgrade_that_is_killed_is_made_anew_and_loses_nothing(url: str) -> None:
    _an_older_store(url, 10, 1000)
    program = _UPGRADE.format(root=str(Path(__file__).parents[2]), url=url)
    finished = []
    for delay in (0.0, 0.05, 0.15):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout
            process.stdout.readline()
            time.sleep(delay)
        finally:
            process.kill()
            rest, _ = process.communicate()
        finished.append("done" in rest)
    assert not finished[0]  # killed at once, it cannot have been through
    names = [f"series {n}" for n in range(1000)]
    with open_store(url) as store:
        assert store.readings([f"run-{n:03}" for n in range(10)], names).value.size == 10_000
        whole = store.result("run-009")
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
    with pytest.raises(SeatrialError, match="newer seatrial"):
        open_store(url)


def test_incidents_go_on_from_run_to_run(url: str) -> None:
    from seatrial.alerts.incident import Receipt, night_of

    hostile = "reason \0 \ud800 " + "x" * 5000
    nights = [a_run(n, verdict=verdict, reason=hostile) for n, verdict in enumerate([Verdict.FAIL, Verdict.FAIL])]
    with open_store(url) as store:
        (opened,) = store.incidents("lab", "quick", night_of(nights[0]), ["slack"])
        store.keep_incident(opened.with_receipt("slack", Receipt(1, {"ts": "17.1"})))
        assert store.incidents("lab", "other", night_of(a_run(0)), ["slack"]) == []
    with open_store(url) as store:
        (again,) = store.incidents("lab", "quick", night_of(nights[1]), ["slack"])
        assert (again.id, again.nights, again.opened) == (opened.id, 2, opened.opened)
        assert again.receipts["slack"] == Receipt(1, {"ts": "17.1"})
        (over,) = store.incidents("lab", "quick", night_of(a_run(2)), ["slack"])
        assert over.news("slack") == ("pass again after 2 runs of fail",)
        store.keep_incident(over.with_receipt("slack", Receipt(2)))
        assert store.incidents("lab", "quick", night_of(a_run(3)), ["slack"]) == []


def test_runs_that_end_at_once_open_one_incident(url: str) -> None:
    with open_store(url):
        pass
    context = get_context("spawn")
    with ProcessPoolExecutor(4, mp_context=context) as pool:
        list(pool.map(_night, [url] * 4, range(4)))
    from seatrial.alerts.incident import night_of

    with open_store(url) as store:
        (incident,) = store.incidents("lab", "quick", night_of(a_run(9, verdict=Verdict.FAIL)), [])
        assert incident.nights == 5


def _night(url: str, number: int) -> None:
    from seatrial.alerts.incident import night_of

    with open_store(url) as store:
        store.incidents("lab", "quick", night_of(a_run(number, verdict=Verdict.FAIL)), ["slack"])


def test_the_last_run_and_the_last_that_passed(url: str) -> None:
    with open_store(url) as store:
        assert store.last_run("lab", "quick") is None
        for n, verdict in enumerate([Verdict.PASS, Verdict.PASS, Verdict.FAIL]):
            store.save(a_run(n, verdict=verdict), Path())
        last, good = store.last_run("lab", "quick"), store.last_pass("lab", "quick", before="run-001")
        assert last is not None
        assert good is not None
        assert (last.run_id, good.run_id) == ("run-002", "run-000")
        assert store.last_pass("lab", "nightly", before="") is None
