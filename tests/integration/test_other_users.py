"""What another user plants where a run's state is looked for is not believed, and ends nobody's process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.system.process import Process, process

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two other users")
USER, OTHER = 61234, 64321


def as_user(uid: int, *command: str | Path) -> list[str]:
    """As that user, who may read everything, as this Python may lie in a home of root's, but owns nothing more."""
    identity = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return ["setpriv", *identity, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", *map(str, command)]


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that everybody can write to, as /tmp."""
    folder = tmp_path_factory.mktemp("shared")
    for above in [folder, *folder.parents][:3]:
        above.chmod(above.stat().st_mode | 0o011)
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def victim() -> Iterator[Process]:
    """A process of the user who runs seatrial, leader of its session as a login shell is."""
    sleep = subprocess.Popen(as_user(USER, "sleep", "600"), start_new_session=True)
    try:
        yield process(sleep.pid)
    finally:
        sleep.kill()
        sleep.wait()


def seatrial(shared: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": os.environ["PATH"], "HOME": str(shared / "home"), "TMPDIR": str(shared)}
    command = as_user(USER, sys.executable, "-P", "-m", "seatrial", *words)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=shared)


def state_folder(shared: Path) -> Path:
    """Where the user's runs keep their state, and all that leads to it."""
    folder = shared / "home" / ".local" / "state" / "seatrial" / "up-local" / os.uname().nodename
    folder.mkdir(parents=True, mode=0o700)
    for each in [folder, *folder.parents][:6]:
        os.chown(each, USER, USER)
        each.chmod(0o700)
    return folder


def plant(folder: Path, uid: int, keeper: Process) -> None:
    """A run whose owner is gone and whose keeper is the victim, in a folder of `uid`."""
    folder.mkdir(parents=True, mode=0o700)
    records = {"owner": Process(1, 1), "keeper": keeper}
    for name, record in records.items():
        (folder / f"{name}.json").write_text(json.dumps({"pid": record.pid, "started": record.started}))
    cluster = {"name": "c", "nodes": 2, "platform": {"kind": "local"}}
    (folder / "cluster.json").write_text(json.dumps(cluster))
    for each in (folder, *folder.iterdir()):
        os.chown(each, uid, uid)
        each.chmod(0o700 if each.is_dir() else 0o600)


def test_a_folder_planted_in_the_temporary_directory_is_not_looked_at(shared: Path, victim: Process) -> None:
    plant(shared / f"seatrial-{USER}" / "r1", OTHER, victim)
    os.chown(shared / f"seatrial-{USER}", OTHER, OTHER)
    done = seatrial(shared, "reap")
    assert (done.returncode, done.stdout) == (0, "0 runs reaped\n")
    assert victim.alive
    assert (shared / f"seatrial-{USER}" / "r1" / "keeper.json").exists()


@pytest.mark.parametrize("words", [("reap",), ("reap", "--run", "r1"), ("ssh", "r1", "head")], ids=" ".join)
def test_a_place_of_another_user_is_refused(shared: Path, victim: Process, words: tuple[str, ...]) -> None:
    root = state_folder(shared)
    plant(root / "r1", OTHER, victim)
    os.chown(root, OTHER, OTHER)
    done = seatrial(shared, *words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"{root}: belongs to user id {OTHER}, not to you" in done.stderr
    assert victim.alive


def test_a_run_of_another_user_is_refused(shared: Path, victim: Process) -> None:
    root = state_folder(shared)
    plant(root / "r1", OTHER, victim)
    done = seatrial(shared, "reap")
    assert done.returncode == 2
    assert f"{root}/r1: belongs to user id {OTHER}, not to you" in done.stderr
    assert victim.alive


@pytest.mark.parametrize("link", ["", "r1"], ids=["the place", "a run"])
def test_a_link_is_not_followed(shared: Path, victim: Process, link: str) -> None:
    root = state_folder(shared)
    elsewhere = shared / "elsewhere"
    plant(elsewhere / "r1", USER, victim)
    os.chown(elsewhere, USER, USER)
    elsewhere.chmod(0o700)
    if not link:
        root.rmdir()
    (root / link).symlink_to(elsewhere / link)
    done = seatrial(shared, "reap")
    assert done.returncode == 2
    assert f"{root / link}: is a symbolic link; links are not followed" in done.stderr
    assert victim.alive
    assert (elsewhere / "r1" / "keeper.json").exists()


def test_a_place_that_others_can_open_is_refused(shared: Path, victim: Process) -> None:
    root = state_folder(shared)
    plant(root / "r1", USER, victim)
    root.chmod(0o777)
    done = seatrial(shared, "reap")
    assert done.returncode == 2
    assert f"{root}: is open to other users (mode 0777); must be 0700" in done.stderr
    assert victim.alive


def test_records_that_are_links_or_anothers_are_not_believed(shared: Path, victim: Process) -> None:
    """A run without a legible owner is being made right now: it is left alone."""
    root = state_folder(shared)
    plant(root / "r1", USER, victim)
    os.chown(root / "r1" / "owner.json", OTHER, OTHER)
    plant(root / "r2", USER, victim)
    (root / "r2" / "owner.json").rename(shared / "owner.json")
    (root / "r2" / "owner.json").symlink_to(shared / "owner.json")
    done = seatrial(shared, "reap")
    assert (done.returncode, done.stdout) == (0, "0 runs reaped\n")
    assert victim.alive


def test_a_process_that_is_not_the_runs_keeper_is_not_ended(shared: Path, victim: Process) -> None:
    """Same user, same start, leader of its session, in a folder of the user's own: it is not what the run started."""
    root = state_folder(shared)
    plant(root / "r1", USER, victim)
    done = seatrial(shared, "reap")
    assert "r1: removed" in done.stdout
    assert victim.alive
    assert not (root / "r1").exists()


def test_a_key_that_is_a_link_lets_nobody_in(shared: Path, victim: Process) -> None:
    root = state_folder(shared)
    plant(root / "r1", USER, victim)
    for name in ("known_hosts", "id_ed25519"):
        (root / "r1" / name).symlink_to("/etc/hostname")
    done = seatrial(shared, "ssh", "r1", "head")
    assert done.returncode == 2
    assert "run r1: known_hosts: is a symbolic link; links are not followed" in done.stderr
