"""A limit on open files that is too low for the nodes is said before anything is brought up."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.system.process import open_files_problem

LIMIT = 64


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))


def seatrial(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    (folder / "c.yaml").write_text("nodes: 4\nplatform: {kind: local}\n")
    command = [sys.executable, "-P", "-m", "seatrial", *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, preexec_fn=limited
    )


def test_doctor_names_a_low_limit_of_open_files_with_the_command_that_raises_it(
    tmp_path: Path,
) -> None:
    done = seatrial(tmp_path, "doctor", "c.yaml")
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if "open files" in line]
    assert line.startswith(f"missing open files: {LIMIT} may be open at once, 4 nodes need 80: ")
    assert line.endswith((": ulimit -n 80", ": sudo prlimit --pid $$ --nofile=80"))


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_a_run_with_a_low_limit_of_open_files_is_refused_before_launch(tmp_path: Path) -> None:
    done = seatrial(tmp_path, "run", "c.yaml", "--no-notify", "--out", "out")
    assert done.returncode == 3
    assert (
        f"open files: {LIMIT} may be open at once, 4 nodes need 80: "
        in done.stdout.splitlines()[-1]
    )


def test_the_usual_limits_are_enough_for_hundreds_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    for hard, nodes in ((1024, 240), (4096, 1000), (resource.RLIM_INFINITY, 10**6)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, hard=hard: (64, hard))
        assert open_files_problem(nodes) is None
