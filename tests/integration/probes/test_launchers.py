"""Probes started by plain python, torchrun and mpirun, without a word about where the ranks
meet.
"""

import importlib
import json
import os
import sys
from types import ModuleType

import pytest

from seatrial.remote.probes import probe
from tests.integration.probes.launched import Ended, launch, needs_mpirun
from tests.site import free_port

TRAINING = [str(probe("training")), "--steps", "3"]


def ranks_of(done: Ended) -> list[int]:
    assert done.status == 0, done.lines
    summary = next(json.loads(line) for line in done.lines if '"summary"' in line)
    return [rank["rank"] for rank in summary["ranks"]]


@needs_mpirun
@pytest.mark.slow
def test_ranks_started_by_mpirun_on_one_node_meet_at_localhost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    assert ranks_of(launch(2, *TRAINING)) == [0, 1]


def test_contradictory_rank_variables_exit_2_with_one_line(
    training: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    monkeypatch.setattr(sys, "argv", TRAINING)
    for name, value in {"RANK": "3", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    importlib.import_module("rendezvous").run("training", training.main)
    assert ended == [2]
    error = f"training probe: {os.uname().nodename} rank 3: RANK is 3, but WORLD_SIZE is 2\n"
    assert capsys.readouterr().err == error
