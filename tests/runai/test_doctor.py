"""What `seatrial doctor` says of a RunAI project."""

import pytest

from seatrial.config.run import Run
from seatrial.platforms import platform_for
from tests.runai.conftest import Project


def test_nothing_is_missing_where_the_project_answers(run: Run, project: Project) -> None:
    assert platform_for(run.cluster).missing() == []
    assert project.calls() == [["training", "list", "--project=infra", "--json"]]


def test_a_missing_command_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("PATH", "/nonexistent")
        missing = platform_for(run.cluster).missing()
    assert missing == ["runai is missing on this machine"]


def test_a_command_that_fails_is_quoted_without_control_characters(run: Run, project: Project) -> None:
    (project.folder / "bin" / "runai").write_text("#!/bin/sh\nprintf 'Error: \\033[2Jplease log in' >&2\nexit 1\n")
    (problem,) = platform_for(run.cluster).missing()
    assert problem.startswith("runai failed: Error: ")
    assert "please log in" in problem
    assert "\x1b" not in problem
