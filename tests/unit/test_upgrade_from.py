"""Files and history that an earlier version wrote open with this one, or one line says what to do.

tests/golden/upgrade holds what the code of 2026-11-23 wrote: a history of five runs (a SQLite
dump), two runs' files, and the cluster and suite files that shipped then.
"""

import gzip
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
import yaml

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import load_cluster
from seatrial.history import open_store
from seatrial.model.verdict import Verdict
from seatrial.platforms import platform_for
from seatrial.runs.load import load_result
from tests.command_line import command
from tests.suspects import suspect_names

OLD = Path(__file__).parents[1] / "golden" / "upgrade"
CLUSTERS = sorted((OLD / "clusters").glob("*.yaml"))
SUITES = sorted((OLD / "suites").glob("*.yaml"))
FAULTY = "20260314-0200-k3f9a"


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The history of the earlier version, as the one that counts."""
    file = tmp_path / "history.db"
    with sqlite3.connect(file) as database:
        database.executescript(gzip.decompress((OLD / "history.sql.gz").read_bytes()).decode())
    database.close()
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{file}")
    return file


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that failed, of the earlier version."""
    folder = tmp_path / "runs" / FAULTY
    folder.mkdir(parents=True)
    (folder / "run.json").write_bytes(gzip.decompress((OLD / "faulty-run.json.gz").read_bytes()))
    return folder


def test_history_of_an_earlier_version_keeps_runs_numbers_and_verdicts(history: Path) -> None:
    with open_store() as store:
        rows = store.runs()
        assert {row.run_id for row in rows} == {FAULTY, "night-0", "night-1", "night-2", "night-3"}
        assert {row.run_id: row.verdict for row in rows}[FAULTY] is Verdict.FAIL
        assert len(store.measurements("night-3")) > 5
        earlier = store.result(FAULTY)
    assert earlier is not None
    assert suspect_names(earlier) == ["node-5", "node-0--node-5"]


@pytest.mark.parametrize(
    "words",
    [
        ("history",),
        ("rejudge", FAULTY),
        ("compare", "night-2", "night-3"),
        ("baseline", "diff", "night-3"),
    ],
)
def test_commands_work_on_runs_of_an_earlier_version(
    words: tuple[str, ...], history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = command(*words)
    out, err = capsys.readouterr()
    assert status == (1 if words[0] == "rejudge" else 0), err
    assert out


def test_a_run_of_the_earlier_version_is_read_and_reported(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = load_result(run)
    assert (result.verdict, result.run_id) == (Verdict.FAIL, FAULTY)
    assert command("report", str(run)) == 0
    assert "node-5" in (run / "report.html").read_text()
    again = json.loads((OLD / "run.json").read_text())
    assert load_result(OLD / "run.json").run_id == again["run_id"]


def test_measurements_are_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("replay", str(OLD / "measurements.csv")) == 0
    assert capsys.readouterr().out.startswith("night-3: ")


@pytest.mark.parametrize("file", CLUSTERS, ids=lambda file: file.stem)
def test_cluster_files_are_read(file: Path) -> None:
    cluster = load_cluster(file)
    platform_for(cluster, file)
    assert cluster.nodes == yaml.safe_load(file.read_text())["nodes"]


@pytest.mark.parametrize("file", SUITES, ids=lambda file: file.stem)
def test_suite_files_are_read(file: Path) -> None:
    assert load_suite(str(file)).name == file.stem


def test_a_history_of_a_newer_version_says_what_to_do(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(history) as database:
        database.execute("UPDATE seatrial_version SET version_num = '9999'")
    database.close()
    backup = shutil.copy(history, history.with_suffix(".before"))
    assert command("history") == 3
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "newer" in err
    assert history.read_bytes() == Path(backup).read_bytes()
