"""A run that has no job, for want of sbatch, is removed without Slurm's commands."""

from pathlib import Path

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import MissingError
from seatrial.platforms import platform_for
from seatrial.platforms import state as states


def test_a_run_without_sbatch_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / "state" / kind)
    monkeypatch.setenv("HOME", str(tmp_path))
    cluster = Cluster.model_validate(
        {"name": "c", "nodes": 2, "platform": {"kind": "slurm", "folder": str(tmp_path)}}
    )
    platform = platform_for(cluster)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "mkdir", "rm", "cat", "id"):
        (programs / name).symlink_to(
            f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}"
        )
    monkeypatch.setenv("PATH", str(programs))
    run = Run("r1", cluster, load_suite("quick"), tmp_path / "out")
    with pytest.raises(MissingError, match="sbatch is missing on this machine"):
        platform.launch(run)
    assert states.run_ids() == ["r1"]
    platform.teardown("r1")
    assert states.run_ids() == []
    assert not (tmp_path / "r1").exists()
