import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from seatrial.history import RunRow, open_store
from seatrial.history.store import Store
from seatrial.model.errors import SeatrialError
from seatrial.model.verdict import Verdict
from seatrial.report.context import (
    RUNS_SHOWN,
    context_of,
    headline_numbers,
    headlines,
    log_files,
    past_of,
)
from tests import samples

RESULT = samples.faulty_h100()


@pytest.fixture
def store(tmp_path: Path, empty_history: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{shutil.copy(empty_history, tmp_path)}") as store:
        yield store


def _save(store: Store, number: int, verdict: Verdict = Verdict.PASS, factor: float = 1.0) -> None:
    store.save(samples.night(RESULT, number, factor, verdict), Path("/runs"))


def test_the_last_good_run_is_the_newest_that_passed(store: Store) -> None:
    for number, verdict in enumerate([Verdict.PASS, Verdict.PASS, Verdict.DEGRADED], 1):
        _save(store, number, verdict, 1 + number / 10)
    past = past_of(RESULT, store)
    plateau = headlines(RESULT)[0]
    assert [row.run_id for row in past.runs] == ["night-1", "night-2", "night-3"]
    assert past.last_good and past.last_good.run_id == "night-2"
    assert past.last_value(plateau.series()) == pytest.approx(1.2 * plateau.value)


def test_past_leaves_out_other_suites_and_later_runs(store: Store) -> None:
    _save(store, 1)
    store.save(replace(samples.night(RESULT, 2, 1.0), suite="quick"), Path("/runs"))
    store.save(
        replace(samples.night(RESULT, 3, 1.0), started=RESULT.started + timedelta(days=1)),
        Path("/runs"),
    )
    store.save(RESULT, Path("/runs"))
    assert [row.run_id for row in past_of(RESULT, store).runs] == ["night-1"]


def test_the_last_good_run_may_be_older_than_what_is_drawn(store: Store) -> None:
    _save(store, 1, factor=1.5)
    bad = samples.night(RESULT, 2, 1.0, Verdict.FAIL)
    for n in range(RUNS_SHOWN + 3):
        store.save(
            replace(bad, run_id=f"bad-{n:02}", started=bad.started + timedelta(minutes=n)),
            Path("/runs"),
        )
    past = past_of(RESULT, store)
    assert len(past.runs) == RUNS_SHOWN
    assert past.last_good and past.last_good.run_id == "night-1"
    headline = headline_numbers(RESULT, past)[0]
    assert headline.change == pytest.approx(1 / 1.5 - 1)
    assert len(headline.trend) == RUNS_SHOWN + 1


def test_each_headline_number_of_the_cluster_appears_once() -> None:
    keys = [(m.metric, m.conditions.get("operation")) for m in headlines(RESULT)]
    assert len(keys) == len(set(keys)) == 5 + 5 + 3
    latency = next(m for m in headlines(RESULT) if m.metric == "latency")
    assert (latency.conditions["message_bytes"], latency.conditions["placement"]) == (
        65536,
        "out_of_place",
    )


def test_last_good_run_is_found_behind_hundreds_of_runs_of_other_suites(store: Store) -> None:
    _save(store, 1)
    for night in range(500):
        start = RESULT.started - timedelta(minutes=501 - night)
        other = replace(RESULT, run_id=f"other-{night}", suite="qualify", started=start, checks=())
        store.save(other, Path())
    past = past_of(RESULT, store)
    assert past.last_good
    assert [run.run_id for run in past.runs] == [past.last_good.run_id]


def test_a_change_of_software_is_shown_at_its_run(store: Store) -> None:
    _save(store, 1)
    store.save(
        replace(samples.night(RESULT, 2, 1.0), fingerprint=RESULT.fingerprint), Path("/runs")
    )
    changes = [then.software for then in headline_numbers(RESULT, past_of(RESULT, store))[0].trend]
    assert changes == ["", "driver 565.57.01 -> 570.124.06", ""]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            SeatrialError("history: runs cannot be read: locked"),
            "history: runs cannot be read: locked",
        ),
        (KeyError("verdict"), "KeyError: 'verdict'"),
    ],
)
def test_a_failing_store_is_reported(
    store: Store, tmp_path: Path, error: Exception, reason: str
) -> None:
    class Broken(Store):
        def runs_before(self, *_: Any) -> list[RunRow]:
            raise error

    context = context_of(RESULT, tmp_path, Broken(store._engine))
    assert context.past.problem == reason
    assert context.past.runs == ()


def test_links_to_logs_are_relative_and_quoted_and_skip_empty_logs_and_symlinks(
    tmp_path: Path,
) -> None:
    for name in ("run.log", "nodes/a b#1.log", "nodes/empty.log"):
        (tmp_path / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "logs" / name).write_text("" if "empty" in name else "x")
    (tmp_path / "logs" / "passwd").symlink_to("/etc/passwd")
    assert [(file.name, file.href) for file in log_files(tmp_path)] == [
        ("run.log", "logs/run.log"),
        ("nodes/a b#1.log", "logs/nodes/a%20b%231.log"),
    ]


def test_log_tail_is_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKET_TOKEN", "s3cret-of-the-site")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "run.log").write_text("upload with s3cret-of-the-site\nlast\n")
    assert context_of(RESULT, tmp_path).log_tail == ("upload with ***", "last")
