"""A form names a folder below `runs`, and no other."""

from pathlib import Path

import pytest

from seatrial.config.run import below_runs
from seatrial.model.errors import InputError


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


@pytest.mark.parametrize("name", ["mine", "a/b", "a/../b", "{runs}/mine"])
def test_a_folder_below_is_taken(runs: Path, name: str) -> None:
    assert runs in below_runs(name.format(runs=runs)).parents


@pytest.mark.parametrize(
    "name", ["..", ".", "", "../x", "a/../../x", "/etc/x", "{runs}", "{runs}2/x", "a\0b", "circle/x"]
)
def test_any_other_is_refused(runs: Path, name: str) -> None:
    (runs / "circle").symlink_to("circle")
    with pytest.raises(InputError, match=r"^out .*: must be a folder below "):
        below_runs(name.format(runs=runs))


def test_a_link_leads_nowhere_else(runs: Path, tmp_path: Path) -> None:
    (runs / "link").symlink_to(tmp_path)
    with pytest.raises(InputError, match="must be a folder below"):
        below_runs("link/x")


def test_runs_itself_may_be_a_link(runs: Path, tmp_path: Path) -> None:
    runs.rmdir()
    (tmp_path / "disk").mkdir()
    runs.symlink_to(tmp_path / "disk")
    assert below_runs("mine") == runs / "mine"
