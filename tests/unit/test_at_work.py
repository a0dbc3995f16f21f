"""Runs that are not over, as `seatrial status` and `watch` show them."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.config.cluster import Cluster
from seatrial.model.verdict import Verdict
from seatrial.platforms import state as states
from seatrial.platforms.local import LocalPlatform
from seatrial.system.process import Process, this_process
from tests import samples
from tests.command_line import command

RUN = "20261103-0130-0a1b2"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that is at work, with a log."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seatrial.platforms.state.root_folder", lambda kind: tmp_path / f"up-{kind}")
    out = tmp_path / "runs" / RUN
    (out / "logs").mkdir(parents=True)
    (out / "logs" / "run.log").write_text("INFO seatrial.step: image ...\nINFO seatrial.launch: 2 of 4 \x1b[2Jare up\n")
    return out


def at_work(owner: Process) -> Path:
    folder = states.make_folder(RUN, "local")
    states.remember(folder, Cluster(name="lab", nodes=4, platform=LocalPlatform(kind="local")))
    states.write_owner(folder, "owner", owner)
    return folder


@pytest.mark.parametrize(
    ("owner", "standing"),
    [(this_process(), "at work"), (Process(os.getpid(), 1), f"left behind: seatrial reap --run {RUN}")],
)
def test_what_is_up_is_listed_with_its_newest_line(
    folder: Path, owner: Process, standing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("status") == 0
    assert capsys.readouterr().out == "no run is up\n"
    at_work(owner)
    assert command("status", "--json") == 0
    now = "INFO seatrial.launch: 2 of 4  [2Jare up"
    assert json.loads(capsys.readouterr().out) == [{"run": RUN, "cluster": "lab", "state": standing, "now": now}]
    assert command("status") == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == [RUN, "lab", standing.split(maxsplit=1)[0]]


def test_a_run_is_watched_until_it_has_a_verdict(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_work(this_process())

    def later(_: float) -> None:
        with (folder / "logs" / "run.log").open("a") as log:
            log.write("INFO seatrial.step: record ...\n")
        (folder / "run.json").write_text(json.dumps(samples.faulty_h100().to_dict()))

    monkeypatch.setattr("time.sleep", later)
    assert command("watch", RUN) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(": ")[2] for line in lines[:3]] == ["image ...", "2 of 4  [2Jare up", "record ..."]
    assert lines[-1].startswith(f"{Verdict.FAIL.value}: ")


def gone(folder: Path) -> None:
    at_work(Process(os.getpid(), 1))


def without_log(folder: Path) -> None:
    (folder / "logs" / "run.log").unlink()


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        (gone, 3, f"seatrial: run {RUN}: its process has gone without a verdict; seatrial reap ends it\n"),
        (without_log, 2, f"seatrial: RUN {RUN}: has no logs/run.log; give the folder that the run writes to\n"),
    ],
)
def test_what_cannot_be_watched_is_no_endless_wait(
    folder: Path, change: Callable[[Path], None], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(folder)
    assert command("watch", RUN) == status
    assert capsys.readouterr().err == says
