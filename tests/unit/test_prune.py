"""`seatrial prune`: what goes, what stays, and folders that somebody has prepared."""

import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from seatrial.cli.upkeep import prune
from seatrial.history import Pin, open_store
from seatrial.history.store import Store
from seatrial.model.errors import SeatrialError
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.runs.at_work import recorded
from tests.unit.history.stored import a_pin, a_run

NOW = datetime.now(UTC)
FAIL = Verdict.FAIL


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store() as opened:
        yield opened


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


def aged(
    days: float, verdict: Verdict = Verdict.PASS, cluster: str = "lab", suite: str = "quick"
) -> RunResult:
    started = NOW - timedelta(days=days)
    name = f"{cluster}-{suite}-{days:g}"
    return a_run(
        1,
        verdict=verdict,
        run_id=name,
        cluster=cluster,
        suite=suite,
        started=started,
        finished=started,
    )


def later_runs(store: Store, count: int = 35) -> None:
    """Runs of the history without folders: as many as the next run is compared with, or fewer."""
    for number in range(count):
        store.save(aged(0.5 - number / 1000), Path())


def folder_of(runs: Path, result: RunResult) -> Path:
    folder = runs / result.run_id
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "all_reduce.log").write_text("x" * 10_000)
    (folder / "run.json").write_text(json.dumps(result.to_dict()))
    return folder


def unfinished(runs: Path, name: str, days: float, written: float | None = None) -> None:
    """A folder without run.json; `written` days ago the last line of its log."""
    log = runs / name / "logs" / "run.log"
    log.parent.mkdir(parents=True)
    log.write_text("launch")
    for path, age in ((log, written or days), (log.parent, days), (runs / name, days)):
        at = (NOW - timedelta(days=age)).timestamp()
        os.utime(path, (at, at))


def pruned(*words: str) -> Result:
    return CliRunner().invoke(prune, words, catch_exceptions=False)


def names(runs: Path) -> set[str]:
    return {path.name for path in runs.iterdir()}


def test_prune_removes_nothing_without_the_yes_option(runs: Path, store: Store) -> None:
    later_runs(store)
    for days in (1, 100, 200):
        result = aged(days)
        store.save(result, folder_of(runs, result))
    shown = pruned("--older-than", "30d")
    assert "lab-quick-100" in shown.output
    assert (
        "would remove: 2 folders, 0.0 MB; 2 runs of the history; --yes removes them" in shown.output
    )
    assert names(runs) == {"lab-quick-1", "lab-quick-100", "lab-quick-200"}
    assert len(store.runs(limit=100)) == 38
    shown = pruned("--older-than", "30d", "--yes")
    assert "removed: 2 folders, 0.0 MB; 2 runs of the history" in shown.output
    assert names(runs) == {"lab-quick-1"}
    assert [row.run_id for row in store.runs(limit=100)][35:] == ["lab-quick-1"]


def test_the_history_keeps_what_the_next_run_is_compared_with(runs: Path, store: Store) -> None:
    """Of each cluster and suite 35 runs, of those before the newest five the ones that passed."""
    later_runs(store, 33)
    for result in (aged(1), aged(89, FAIL), aged(91), aged(92), aged(93, suite="nightly")):
        store.save(result, folder_of(runs, result))
    pruned("--older-than", "1d", "--keep", "1", "--yes")
    assert names(runs) == {"lab-quick-1", "lab-nightly-93"}
    assert {row.run_id for row in store.runs(limit=100)[33:]} == {
        "lab-quick-1",
        "lab-quick-91",
        "lab-nightly-93",
    }


@pytest.mark.parametrize(
    ("there", "words", "left"),
    [
        (  # the last run that passed stays of each cluster and suite
            [
                *(
                    aged(300),
                    aged(200),
                    aged(150, FAIL),
                    aged(250, suite="nightly"),
                    aged(400, cluster="other"),
                ),
                aged(1, FAIL),
            ],
            ("--older-than", "30d"),
            {"lab-quick-200", "lab-nightly-250", "other-quick-400", "lab-quick-1"},
        ),
        (  # --keep counts the runs of each cluster
            [aged(days, FAIL, cluster) for cluster in ("lab", "other") for days in (1, 2, 3)],
            ("--keep", "2"),
            {"lab-quick-1", "lab-quick-2", "other-quick-1", "other-quick-2"},
        ),
        (  # only the cluster that is named
            [aged(days, FAIL, cluster) for cluster in ("lab", "other") for days in (100, 101)],
            ("lab", "--older-than", "30d"),
            {"other-quick-100", "other-quick-101"},
        ),
    ],
)
def test_kept_runs_are_not_removed(
    runs: Path, there: list[RunResult], words: tuple[str, ...], left: set[str]
) -> None:
    for result in there:
        folder_of(runs, result)
    pruned(*words, "--yes")
    assert names(runs) == left


def test_a_run_that_baselines_are_pinned_from_stays(runs: Path, store: Store) -> None:
    later_runs(store)
    for days in (1, 300, 310):
        result = aged(days)
        store.save(result, folder_of(runs, result))
    pin = a_pin()
    store.pin("lab", [Pin(pin.series, 1.0, None, None, pin.unit, "ann", NOW, "lab-quick-300")])
    pruned("--older-than", "30d", "--yes")
    assert names(runs) == {"lab-quick-1", "lab-quick-300"}
    assert {row.run_id for row in store.runs(limit=100)[35:]} == {"lab-quick-1", "lab-quick-300"}
    assert store.pinned("lab")


def test_prune_leaves_a_running_run(runs: Path) -> None:
    unfinished(runs, "at-work", days=50)
    unfinished(runs, "begun-lately", days=0.5)
    unfinished(runs, "at-work-elsewhere", days=50, written=0.5)
    unfinished(runs, "killed", days=50)
    pruned("--older-than", "60d", "--yes")
    assert "killed" in names(runs)
    with recorded("at-work", "{}", runs / "at-work", uuid4()):
        pruned("--older-than", "1h", "--yes")
        assert names(runs) == {"at-work", "at-work-elsewhere", "begun-lately"}
    pruned("--older-than", "1h", "--yes")
    assert names(runs) == {"at-work-elsewhere", "begun-lately"}


def test_prune_follows_no_symbolic_links(runs: Path, tmp_path: Path) -> None:
    elsewhere = folder_of(tmp_path / "elsewhere", aged(300, FAIL))
    (runs / "link").symlink_to(elsewhere)
    within = folder_of(runs, aged(200, FAIL))
    (within / "logs" / "link").symlink_to(elsewhere)
    (within / "logs.1").symlink_to(elsewhere)
    read_from_a_link = runs / "lab-quick-1"
    read_from_a_link.mkdir()
    (read_from_a_link / "run.json").symlink_to(elsewhere / "run.json")
    shown = pruned("--older-than", "30d", "--yes")
    assert names(runs) == {"link", "lab-quick-1"}
    assert "left: link: is a link" in shown.output
    assert (elsewhere / "run.json").exists()
    assert (elsewhere / "logs" / "all_reduce.log").exists()


def test_the_folder_of_all_runs_may_be_a_link(runs: Path, tmp_path: Path) -> None:
    larger_disk = tmp_path / "disk"
    larger_disk.mkdir()
    runs.rmdir()
    runs.symlink_to(larger_disk)
    folder_of(runs, aged(200, FAIL))
    pruned("--older-than", "30d", "--yes")
    assert names(larger_disk) == set()
    assert runs.is_symlink()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"run_id": "a"}',
        "[" * 100_000,
        '{"run_id": "a", "cluster": "b", "suite": "c", "started": 1e400}',
    ],
)
def test_prune_leaves_folders_that_are_no_run(runs: Path, content: str) -> None:
    folder = runs / "odd"
    folder.mkdir()
    (folder / "run.json").write_text(content)
    mine = folder_of(runs, aged(300, FAIL))
    (mine / "thesis.tex").write_text("years of work")
    (runs / "notes\x1b[2J.txt").write_text("mine")
    (runs / "pipe").mkdir()
    os.mkfifo(runs / "pipe" / "run.json")
    shown = pruned("--older-than", "1h", "--yes")
    assert names(runs) == {"odd", mine.name, "notes\x1b[2J.txt", "pipe"}
    assert "left: pipe: run.json is no regular file" in shown.output
    assert "left: odd: run.json cannot be read as that of a run" in shown.output
    assert f"left: {mine.name}: holds 'thesis.tex', which no run writes" in shown.output
    assert "\x1b" not in shown.output


def test_prune_removes_nothing_when_the_history_is_unreadable(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of(runs, aged(300, FAIL))
    broken = runs.parent / "broken.sqlite"
    broken.write_text("no database, but long enough to look at" * 100)
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{broken}")
    with pytest.raises(SeatrialError, match=r"not a database|cannot be"):
        pruned("--older-than", "30d", "--yes")
    assert names(runs) == {"lab-quick-300"}


def test_prune_json_lists_folders_to_remove(runs: Path) -> None:
    folder_of(runs, aged(300, FAIL))
    document = json.loads(pruned("--older-than", "30d", "--json").output)
    (folder,) = document["folders"]
    assert folder["name"] == "lab-quick-300"
    assert folder["size_bytes"] >= 10_000
    assert (document["deleted"], document["size_bytes"]) == (False, folder["size_bytes"])


def test_run_that_cannot_be_removed_is_named_and_others_are_removed(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, other = folder_of(runs, aged(300, FAIL)), folder_of(runs, aged(200, FAIL))
    rmtree = shutil.rmtree

    def refuse(name: str, **where: int) -> None:
        if name == stuck.name:
            raise PermissionError(1, "Operation not permitted")
        rmtree(name, dir_fd=where["dir_fd"])

    monkeypatch.setattr("seatrial.runs.prune.shutil.rmtree", refuse)
    with pytest.raises(
        SeatrialError, match=r"run lab-quick-300 cannot be removed: .*Operation not permitted"
    ):
        pruned("--older-than", "30d", "--yes")
    assert not other.exists()
    assert stuck.exists()
