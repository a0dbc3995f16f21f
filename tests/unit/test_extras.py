"""Packages that one builder or sink alone needs: each is an extra, and a missing one is named with
its install line.
"""

import sys
import tomllib
from pathlib import Path

import pytest

from seatrial.alerts import settings
from seatrial.builders import cloud_build
from seatrial.config.notify import Notify
from seatrial.model.errors import MissingError
from seatrial.report.html import drawn
from seatrial.system.extras import PACKAGES, has_module, how_to_install

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("extra", PACKAGES)
def test_an_extra_holds_its_packages_and_the_project_needs_none(extra: str) -> None:
    listed = PROJECT["optional-dependencies"][extra]
    assert [line.partition(">=")[0] for line in listed] == list(PACKAGES[extra])
    needed = {line.partition(">=")[0] for line in PROJECT["dependencies"]}
    assert needed.isdisjoint(PACKAGES[extra])
    assert how_to_install(extra).endswith(
        f"uv pip install --python {sys.executable} {' '.join(PACKAGES[extra])}"
    )


def test_a_module_is_looked_for_without_importing_it() -> None:
    assert has_module("json.decoder")
    assert not has_module("no_such_package.module")


def test_a_builder_without_its_packages_says_how_to_install_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cloud_build, "has_module", lambda name: False)
    with pytest.raises(MissingError, match=r"google-cloud-build google-cloud-storage$"):
        cloud_build.GoogleClients("project")


def test_alerts_without_apprise_are_refused_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEATRIAL_ALERT_URLS", "ntfy://topic")
    monkeypatch.setattr(settings, "has_module", lambda name: False)
    _, problem = settings.AlertSettings.from_env(Notify()).legal()
    assert problem is not None
    assert problem.endswith("apprise")
    assert "seatrial's extra `apprise`" in problem


def test_a_report_without_matplotlib_has_one_line_for_all_pictures() -> None:
    def draw() -> str:
        raise ImportError("No module named 'matplotlib'")

    problems: list[str] = []
    assert [drawn(draw, problems) for _ in range(3)] == ["", "", ""]
    assert len(problems) == 1
    assert "seatrial's extra `charts`" in problems[0]
