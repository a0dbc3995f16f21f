"""What another user plants where a run's state is looked for is not believed, and ends nobody's
process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.platforms import state as states
from seatrial.system.process import Process, process
from tests.command_line import command

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two other users")
USER, OTHER = 61234, 64321


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user's runs on local nodes keep their state."""
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / f"up-{kind}")
    folder = tmp_path / "up-local"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def victim() -> Iterator[Process]:
    """A process of this user, leader of its session as a login shell is."""
    sleep = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        yield process(sleep.pid)
    finally:
        sleep.kill()
        sleep.wait()


def plant(folder: Path, uid: int, keeper: Process) -> None:
    """A run whose owner is gone and whose keeper is the victim, in a folder of `uid`."""
    folder.mkdir(parents=True, mode=0o700)
    records = {"owner": Process(1, 1), "keeper": keeper}
    for name, record in records.items():
        (folder / f"{name}.json").write_text(
            json.dumps({"pid": record.pid, "started": record.started})
        )
    cluster = {"name": "c", "nodes": 2, "platform": {"kind": "local"}}
    (folder / "cluster.json").write_text(json.dumps(cluster))
    for each in (folder, *folder.iterdir()):
        os.chown(each, uid, uid)
        each.chmod(0o700 if each.is_dir() else 0o600)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a command says which changes nothing."""
    assert command(*words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_state_folders_of_other_users_are_not_read(
    tmp_path_factory: pytest.TempPathFactory, victim: Process
) -> None:
    """Neither in a world-writable temporary directory nor among the state of the user."""
    shared = tmp_path_factory.mktemp("shared")
    for above in [shared, *shared.parents][:3]:
        above.chmod(above.stat().st_mode | 0o011)
    shared.chmod(0o1777)
    plant(shared / f"seatrial-{USER}" / "r1", OTHER, victim)
    place = shared / "home" / ".local" / "state" / "seatrial" / "up-local" / os.uname().nodename
    place.mkdir(parents=True)
    for each in [place, *place.parents][:6]:
        os.chown(each, USER, USER)
        each.chmod(0o700)
    # It reads this Python wherever it lies
    identity = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    reads_all = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    reap = ["setpriv", *identity, *reads_all, sys.executable, "-P", "-m", "seatrial", "reap"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(shared / "home"), "TMPDIR": str(shared)}

    def reaped() -> tuple[int, str, str]:
        done = subprocess.run(
            reap, env=environment, capture_output=True, text=True, check=False, cwd=shared
        )
        return done.returncode, done.stdout, done.stderr

    assert reaped() == (0, "0 runs reaped\n", "")
    os.chown(place, OTHER, OTHER)
    status, _, errors = reaped()
    assert (status, errors.count("\n")) == (2, 1)
    assert f"{place}: belongs to user id {OTHER}, not to you" in errors
    assert victim.alive
    assert (shared / f"seatrial-{USER}" / "r1" / "keeper.json").exists()


@pytest.mark.parametrize(
    "words", [("reap",), ("reap", "--run", "r1"), ("ssh", "r1", "head")], ids=" ".join
)
@pytest.mark.parametrize("planted", ["a place", "a run"])
def test_folder_or_run_owned_by_another_user_is_refused(
    root: Path,
    victim: Process,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    planted: str,
) -> None:
    plant(root / "r1", OTHER, victim)
    theirs = root if planted == "a place" else root / "r1"
    os.chown(theirs, OTHER, OTHER)
    assert f"{theirs}: belongs to user id {OTHER}, not to you" in refused(capsys, *words)
    assert victim.alive


@pytest.mark.parametrize("link", ["", "r1"], ids=["the place", "a run"])
def test_reap_does_not_follow_symbolic_links(
    root: Path, tmp_path: Path, victim: Process, capsys: pytest.CaptureFixture[str], link: str
) -> None:
    plant(tmp_path / "elsewhere" / "r1", 0, victim)
    (tmp_path / "elsewhere").chmod(0o700)
    if not link:
        root.rmdir()
    (root / link).symlink_to(tmp_path / "elsewhere" / link)
    assert f"{root / link}: is a symbolic link; links are not followed" in refused(capsys, "reap")
    assert victim.alive
    assert (tmp_path / "elsewhere" / "r1" / "keeper.json").exists()


def test_state_folder_open_to_other_users_is_refused(
    root: Path, victim: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(root / "r1", 0, victim)
    root.chmod(0o777)
    assert f"{root}: is open to other users (mode 0777); must be 0700" in refused(capsys, "reap")
    assert victim.alive


def test_owner_records_that_are_links_or_foreign_are_ignored(
    root: Path, tmp_path: Path, victim: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run without a readable owner record may be starting just now, so it is left alone."""
    plant(root / "r1", 0, victim)
    os.chown(root / "r1" / "owner.json", OTHER, OTHER)
    plant(root / "r2", 0, victim)
    (root / "r2" / "owner.json").rename(tmp_path / "owner.json")
    (root / "r2" / "owner.json").symlink_to(tmp_path / "owner.json")
    assert (command("reap"), capsys.readouterr().out) == (0, "0 runs reaped\n")
    assert victim.alive


def test_reap_ends_no_process_that_the_run_did_not_start(
    root: Path, victim: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even one of the same user and start time that leads its session."""
    plant(root / "r1", 0, victim)
    assert command("reap") == 0
    assert "r1: removed" in capsys.readouterr().out
    assert victim.alive
    assert not (root / "r1").exists()


def test_ssh_refuses_a_key_file_that_is_a_symbolic_link(
    root: Path, victim: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(root / "r1", 0, victim)
    for name in ("known_hosts", "id_ed25519"):
        (root / "r1" / name).symlink_to("/etc/hostname")
    errors = refused(capsys, "ssh", "r1", "head")
    assert "run r1: known_hosts: is a symbolic link; links are not followed" in errors
