"""The program that hosts are handed: it is complete, older Pythons read it, and its lock holds."""

import ast
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from seatrial.platforms.baremetal import on_host
from seatrial.platforms.baremetal.hosts import _MODULES, program
from seatrial.platforms.baremetal.on_host.host import (
    LOCK,
    Lock,
    ProblemError,
    lock_state,
    remove_tree,
)

MODULES = sorted(Path(on_host.__file__).parent.glob("*.py"))


def ran(request: Mapping[str, object]) -> dict[str, object]:
    """The answer of a Python that has neither seatrial nor its packages."""
    command = [sys.executable, "-I", "-S", "-"]
    done = subprocess.run(
        command, input=program(request), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout.removeprefix("seatrial-host: "))
    return answer


def test_every_module_of_the_package_is_sent_to_hosts() -> None:
    assert {path.stem for path in MODULES} == {"__init__", *_MODULES}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_module_has_syntax_that_python_3_6_refuses(path: Path) -> None:
    assert ast.parse(path.read_text(), feature_version=(3, 6)).body  # SyntaxError else


def test_check_changes_nothing_on_the_host(tmp_path: Path) -> None:
    answer = ran(
        {"verb": "check", "parent": str(tmp_path), "mpirun": "/opt/none/mpirun", "container": None}
    )
    assert "/opt/none/mpirun" in json.dumps(answer["missing"])
    assert (answer["writable"], answer["held"]) == (True, None)
    assert not list(tmp_path.iterdir())


def test_stopping_an_unknown_run_is_no_error(tmp_path: Path) -> None:
    request = {
        "verb": "stop",
        "parent": str(tmp_path),
        "run_id": "r",
        "folder": str(tmp_path / "seatrial-r"),
    }
    absent = {"program": str(tmp_path / "podman"), "name": "seatrial-r"}
    for container in (None, absent):
        answer = ran({**request, "container": container})
        assert answer == {"remaining": [], "folder_left": False, "container_left": False}
    assert not list(tmp_path.iterdir())


def test_a_link_in_place_of_the_runs_folder_is_left_alone(tmp_path: Path) -> None:
    """A link that somebody put where the folder of the run would be."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    folder = tmp_path / "seatrial-r"
    folder.symlink_to(precious)
    request = {"parent": str(tmp_path), "run_id": "r", "folder": str(folder), "bytes": 100}
    for verb in ("stop", "log"):
        assert ran({"verb": verb, **request}) == {
            "problem": f"{folder} is not a folder of this user"
        }
    assert (precious / "file").exists()


def test_one_run_at_a_time_holds_the_lock_and_removes_its_file(tmp_path: Path) -> None:
    first, second = Lock(str(tmp_path)), Lock(str(tmp_path))
    assert first.take("one") is None
    held = second.take("two")
    assert held
    assert (held["run"], lock_state(Lock(str(tmp_path)))) == ("one", held)
    first.release()
    assert not (tmp_path / LOCK).exists()
    assert lock_state(Lock(str(tmp_path))) is None
    third = Lock(str(tmp_path))
    assert third.take("three") is None
    third.release()


def test_a_lock_that_a_killed_run_left_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text('{"run": "killed", "user": "x", "since": 1}')
    lock = Lock(str(tmp_path))
    assert lock.take("next") is None
    assert json.loads((tmp_path / LOCK).read_text())["run"] == "next"
    lock.release()


def test_symbolic_link_in_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / LOCK).symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        Lock(str(tmp_path)).take("r")
    assert target.read_text() == "precious"


def test_folder_in_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / LOCK).mkdir()
    with pytest.raises((OSError, ProblemError)):
        Lock(str(tmp_path)).take("r")


def test_a_tree_is_removed_without_following_its_links(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    (outside / "kept").mkdir(parents=True)
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "file").write_text("x")
    (tree / "a" / "folder").symlink_to(outside)
    (tree / "dangling").symlink_to(tmp_path / "none")
    remove_tree(str(tree))
    assert not tree.exists()
    assert (outside / "kept").is_dir()
    remove_tree(str(tree))
