"""One leftover, or one cluster, that cannot be reaped keeps no other from it."""

from pathlib import Path
from typing import Any

import pytest

from flows import reap as flow
from seatrial.model.errors import SeatrialError
from seatrial.platforms import Leftover
from tasks.launch import reap


class Stubborn:
    """A platform with three leftovers, of which the first cannot be removed."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def leftovers(self) -> list[Leftover]:
        return [Leftover(f"run-{number}", 60, "a namespace") for number in (1, 2, 3)]

    def teardown(self, run_id: str) -> None:
        if run_id == "run-1":
            raise OSError("busy")
        self.removed.append(run_id)


def test_every_leftover_is_tried() -> None:
    platform: Any = Stubborn()
    with pytest.raises(SeatrialError, match=r"^1 of 3 leftovers cannot be removed: run run-1: busy$"):
        reap(platform)
    assert platform.removed == ["run-2", "run-3"]


def test_a_platform_that_breaks_is_a_problem_of_its_cluster_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("a bug in an SDK")

    file = tmp_path / "a.yaml"
    file.write_text("nodes: 2\nplatform: {kind: local}\n")
    monkeypatch.setattr(flow, "platform_for", broken)
    assert flow._reap(str(file)) == (0, "a bug in an SDK")
