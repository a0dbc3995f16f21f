"""What a run, a bundle and the history write is for their user alone, and goes through no link."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.bundle.pack import pack
from seatrial.config.run import below_runs, check_runs_folder, log_files, writable
from seatrial.history import open_store
from seatrial.model.errors import InputError, SeatrialError
from seatrial.runs.cluster_lock import FileLock
from seatrial.runs.progress import log_file
from seatrial.system.private import write_atomic
from seatrial.tasks.record import write_run_json
from seatrial.text.redact import Secrets
from tests import samples

pytestmark = pytest.mark.usefixtures("no_umask")


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file that links lead to, and that stays as it is."""
    file = tmp_path / "victim"
    file.write_text("mine")
    file.chmod(0o644)
    yield file
    assert (file.read_text(), mode_of(file)) == ("mine", 0o644)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_files_of_a_run_are_readable_by_their_user_only(tmp_path: Path) -> None:
    out = writable(tmp_path / "runs" / "r1", "--out")
    with log_file(out / "logs" / "run.log", Secrets.of({})):
        logging.getLogger("seatrial").warning("a line")
    write_run_json(samples.healthy_local(), out)
    modes = {
        path.relative_to(tmp_path).as_posix(): mode_of(path)
        for path in (tmp_path / "runs").rglob("*")
    }
    assert modes == {
        "runs/r1": 0o700,
        "runs/r1/logs": 0o700,
        "runs/r1/logs/run.log": 0o600,
        "runs/r1/run.json": 0o600,
    }
    assert "a line" in (out / "logs" / "run.log").read_text()


def test_a_folder_of_earlier_runs_becomes_its_users_alone_and_any_other_keeps_its_mode(
    tmp_path: Path,
) -> None:
    for name, file, mode in (
        ("empty", None, 0o700),
        ("earlier", "run.json", 0o700),
        ("other", "thesis.tex", 0o755),
    ):
        folder = tmp_path / name
        folder.mkdir(mode=0o755)
        if file:
            (folder / file).touch()
        assert mode_of(writable(folder, "--out")) == mode


def test_a_folder_that_is_a_link_or_open_to_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(
        InputError, match=r"^--out \S*/link: is a symbolic link; links are not followed; give"
    ):
        writable(tmp_path / "link", "--out")
    (tmp_path / "real" / "logs").symlink_to(tmp_path)
    with pytest.raises(InputError, match=r"/real/logs: is a symbolic link"):
        writable(tmp_path / "real", "--out")
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open" / "run.json").touch()
    with pytest.raises(
        InputError, match=r"is open to other users \(mode 0777\); must be 0700; give another"
    ):
        writable(tmp_path / "open", "--out")


def test_folder_below_a_world_writable_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs").chmod(0o777)
    with pytest.raises(
        InputError, match=r"^--out \S*/runs/r1: lies in \S*/runs, which others may write to; give"
    ):
        writable(tmp_path / "runs" / "r1", "--out")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InputError, match=r"^runs: cannot be used as a folder: lies in \S*/runs, which others"
    ):
        check_runs_folder()


def test_nothing_is_written_through_planted_links(tmp_path: Path, victim: Path) -> None:
    out = writable(tmp_path / "out", "--out")
    (out / "logs").mkdir(mode=0o700)
    for name in ("run.json", "report.html", "logs/run.log", f".report.html.{os.getpid()}.new"):
        (out / name).symlink_to(victim)
    write_run_json(samples.healthy_local(), out)
    write_atomic(out / "report.html", "report")
    with log_file(out / "logs" / "run.log", Secrets.of({})):
        logging.getLogger("seatrial").warning("a line")
    assert not any(
        (out / name).is_symlink() for name in ("run.json", "report.html", "logs/run.log")
    )


def test_a_bundle_is_written_through_no_link_and_holds_nothing_that_links_lead_to(
    tmp_path: Path, victim: Path
) -> None:
    result, out = samples.healthy_local(), tmp_path / "out"
    write_run_json(result, writable(out, "--out"))
    (out / "report.html").symlink_to(victim)
    (out / "logs").symlink_to(tmp_path)
    target = tmp_path / "bundle.tar.gz"
    target.symlink_to(victim)
    (tmp_path / f".bundle.tar.gz.{os.getpid()}.new").symlink_to(victim)
    names = pack(result, out, target)
    assert not {"report.html", "logs/victim"} & set(names)
    assert (mode_of(target), target.is_symlink()) == (0o600, False)


def test_logs_behind_symbolic_links_are_not_listed(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "own.log").touch()
    (tmp_path / "logs" / "folder").symlink_to(tmp_path)
    (tmp_path / "logs" / "file.log").symlink_to(victim)
    assert log_files(tmp_path) == [tmp_path / "logs" / "own.log"]


def test_the_history_and_locks_are_their_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "seatrial"
    open_store().close()
    folder.chmod(0o755)  # as earlier versions made it
    (folder / "history.sqlite").chmod(0o644)
    open_store().close()
    FileLock("c", "r1").close()
    modes = {path.name: mode_of(path) for path in [folder, *folder.rglob("*")]}
    assert modes == {
        "seatrial": 0o700,
        "history.sqlite": 0o600,
        "locks": 0o700,
        "c.lock": 0o600,
        "c.line": 0o700,
    }


def test_a_history_that_is_a_link_is_refused(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "history.sqlite").symlink_to(victim)
    with pytest.raises(
        SeatrialError, match=r"history .* is a symbolic link; links are not followed"
    ):
        open_store(f"sqlite:///{tmp_path}/history.sqlite")


# A form names a folder below `runs`, and no other.


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


@pytest.mark.parametrize("name", ["mine", "a/b", "a/../b", "{runs}/mine"])
def test_folder_below_runs_is_accepted(runs: Path, name: str) -> None:
    assert runs in below_runs(name.format(runs=runs)).parents


@pytest.mark.parametrize(
    "name",
    ["..", ".", "", "../x", "a/../../x", "/etc/x", "{runs}", "{runs}2/x", "a\0b", "circle/x"],
)
def test_folder_outside_runs_is_refused(runs: Path, name: str) -> None:
    (runs / "circle").symlink_to("circle")
    with pytest.raises(InputError, match=r"^out .*: must be a folder below "):
        below_runs(name.format(runs=runs))


def test_symbolic_link_out_of_runs_is_refused(runs: Path, tmp_path: Path) -> None:
    (runs / "link").symlink_to(tmp_path)
    with pytest.raises(InputError, match="must be a folder below"):
        below_runs("link/x")


def test_runs_folder_itself_may_be_a_symbolic_link(runs: Path, tmp_path: Path) -> None:
    runs.rmdir()
    (tmp_path / "disk").mkdir()
    runs.symlink_to(tmp_path / "disk")
    assert below_runs("mine") == runs / "mine"
