"""RunAI by a stand-in for its command, which makes real nodes of what is submitted."""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.config.run import Run
from tests.e2e.conftest import console, prefect_server
from tests.quick_run import quick_run
from tests.runai.standin import Workload

__all__ = ["console", "prefect_server"]

STANDIN = Path(__file__).with_name("standin.py")
SETTINGS = {"kind": "runai", "project": "infra", "python": sys.executable, "queue_timeout_s": 60}


class Project:
    """The stand-in's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def calls(self) -> list[list[str]]:
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def workloads(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("workloads/*"))


@pytest.fixture
def project(
    tmp_path_factory: pytest.TempPathFactory, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Project]:
    if os.geteuid():
        pytest.skip("only root can make the nodes")
    folder = tmp_path_factory.mktemp("runai")
    (folder / "bin").mkdir()
    command = folder / "bin" / "runai"
    command.write_text(
        f'#!/bin/sh\nexec {shlex.join([sys.executable, "-S", str(STANDIN), str(folder)])} "$@"\n'
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    project = Project(folder)
    yield project
    left = project.workloads()
    for name in left:
        Workload(folder, name).delete()
    assert left == []


@pytest.fixture
def settings(project: Project) -> dict[str, Any]:
    """The section `platform` of a cluster file for it."""
    return dict(SETTINGS)


@pytest.fixture
def run(settings: dict[str, Any], tmp_path: Path) -> Run:
    return quick_run(tmp_path, nodes=3, image="registry.example.com/cpu:1", platform=settings)
