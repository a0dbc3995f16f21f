"""A home that is not there or cannot be written to is one line that names folder and variable;
nothing starts.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can make a home read-only, and be a user without one"
)
NOBODY = 61234
AS_NOBODY = [
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
]


def seatrial(
    folder: Path, *words: str, before: list[str], **environment: str
) -> "subprocess.CompletedProcess[str]":
    folder.chmod(0o777)
    (folder / "c.yaml").write_text("nodes: 2\nplatform: {kind: local}\n")
    command = [*before, sys.executable, "-P", "-m", "seatrial", *words]
    full = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(
        command, cwd=folder, env=full, capture_output=True, text=True, check=False
    )


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("state_is_there", [False, True])
def test_a_run_works_with_a_read_only_home(tmp_path: Path, state_is_there: bool) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    (home / ".local" / "state" / "seatrial" if state_is_there else home).mkdir(
        parents=True, mode=0o700
    )
    work.mkdir()
    script = f'mount --bind {home} {home} && mount -o remount,ro,bind {home} && exec "$@"'
    done = seatrial(
        work, "run", "c.yaml", before=["unshare", "-m", "sh", "-c", script, "sh"], HOME=str(home)
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"seatrial: {home}/.local")
    assert line.endswith(
        "; set XDG_STATE_HOME to a folder of yours, or SEATRIAL_HISTORY to a database elsewhere"
    )
    assert not (work / "runs").exists()


@pytest.mark.parametrize("home", [{}, {"HOME": "/nonexistent"}], ids=["unset", "missing"])
def test_a_run_works_for_a_user_without_a_home(tmp_path: Path, home: dict[str, str]) -> None:
    for above in (tmp_path, *tmp_path.parents[:2]):
        above.chmod(above.stat().st_mode | 0o011)
    done = seatrial(tmp_path, "run", "c.yaml", before=AS_NOBODY, **home)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert (
        line == "seatrial: /nonexistent: Permission denied; set XDG_STATE_HOME to a folder of yours"
    )
    reaped = seatrial(tmp_path, "reap", before=AS_NOBODY, **home)
    assert (reaped.returncode, reaped.stdout) == (0, "0 runs reaped\n")
    assert "Traceback" not in reaped.stderr
