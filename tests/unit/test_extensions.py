"""What other packages add by entry points: what can be used, and the line for what cannot."""

import logging
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks import table as checks
from seatrial.checks.dcgm import DCGM
from seatrial.config import PLATFORMS, cluster
from seatrial.config.cluster import PlatformSettings
from seatrial.config.yamlfile import Strict
from seatrial.model.errors import InputError
from seatrial.platforms.docker import DockerPlatform
from seatrial.readers import table as readers
from seatrial.readers.report import Report
from seatrial.system import extensions
from seatrial.system.extensions import loaders, usable

MINE = replace(DCGM, name="mine")


class Bare(Strict):
    level: int = 1


class Rack(PlatformSettings):
    kind: str = "rack"


@pytest.mark.parametrize(
    ("accept", "name", "loaded", "problem"),
    [
        (checks._accepted, "mine", "a text", "ValueError('must be a CheckType"),
        (checks._accepted, "other", MINE, "with the name of the entry point"),
        (checks._accepted, "dcgm", DCGM, "which is not taken"),
        (checks._accepted, "launch", replace(MINE, name="launch"), "which is not taken"),
        (
            checks._accepted,
            "mine",
            replace(MINE, after="training"),
            "after: must be connectivity, is training",
        ),
        (
            cluster._accepted,
            "rack",
            DockerPlatform,
            "must be PlatformSettings whose field kind is Literal['rack']",
        ),
        (cluster._accepted, "rack", Bare, "must be PlatformSettings whose"),
        (cluster._accepted, "rack", Rack, "must be PlatformSettings whose"),
        (cluster._accepted, "rack", "a text", "TypeError("),
        (readers._accepted, "burnin", print, "TypeError("),
    ],
)
def test_unusable_entry_point_is_one_warning_line(
    accept: Callable[[str, Any], Any],
    name: str,
    loaded: object,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    entry = EntryPoint(name, "somewhere", "group")
    monkeypatch.setattr(extensions, "_entry_points", lambda group: [entry])
    monkeypatch.setattr(EntryPoint, "load", lambda self: loaded)
    with caplog.at_level(logging.WARNING):
        assert usable(loaders("group", accept)) == {}
    (line,) = caplog.messages
    assert line.startswith(f"group: {name} = somewhere cannot be used: ")
    assert problem in line


def test_entry_points_of_installed_packages_are_found_by_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "mine-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: mine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[a.group]\nmine = mine_package:READER\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert list(loaders("a.group", checks._accepted)) == ["mine"]
    assert loaders("another.group", checks._accepted) == {}


def test_metadata_that_cannot_be_read_stops_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine-1.0.dist-info").mkdir()
    (tmp_path / "mine-1.0.dist-info" / "entry_points.txt").symlink_to("nowhere")
    monkeypatch.syspath_prepend(tmp_path)
    assert loaders("a.group", checks._accepted) == {}


def test_a_check_of_another_package_is_used() -> None:
    assert checks._accepted("mine", MINE) is MINE


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("no_such_module:CHECK", "No module named 'no_such_module'"),
        (
            "seatrial.checks.dcgm:NOTHING",
            "module 'seatrial.checks.dcgm' has no attribute 'NOTHING'",
        ),
    ],
)
def test_entry_point_that_cannot_be_imported_is_refused(
    value: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("mine", value, "seatrial.checks")
    monkeypatch.setattr(extensions, "_entry_points", lambda group: [entry])
    load = loaders("seatrial.checks", checks._accepted)["mine"]
    with pytest.raises(
        InputError, match=f"^seatrial.checks: mine = {value} cannot be used: .*{problem}"
    ):
        load()


def test_a_reader_that_breaks_leaves_its_lines_to_others(caplog: pytest.LogCaptureFixture) -> None:
    def read(lines: Any) -> Report | None:
        raise ValueError("not\nread")

    broken = readers._accepted("burnin", replace(readers.READERS[0], read=read))
    assert broken.read(["a line"]) is None
    assert caplog.messages == ["reader burnin: ValueError('not\\nread')"]


def test_a_platform_that_cannot_be_imported_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load() -> None:
        raise InputError("seatrial.platforms: rack cannot be used")

    monkeypatch.setitem(PLATFORMS, "rack", load)
    assert set(usable(PLATFORMS)) >= {"local", "slurm", "kubernetes"}
    assert caplog.messages == ["seatrial.platforms: rack cannot be used"]
