"""Keys, a run's folder and a bundle of it; the real ssh-keygen signs."""

import subprocess
from pathlib import Path

import pytest

from tests.unit.bundle.packed import leave_a_run, run


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two key pairs, ours and another's."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "other"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name],
            check=True,
        )
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, as a run leaves it."""
    folder = tmp_path_factory.mktemp("run")
    leave_a_run(folder)
    return folder


@pytest.fixture
def bundle(folder: Path, keys: Path, tmp_path: Path) -> Path:
    """A signed bundle."""
    target = tmp_path / "bundle.tar.gz"
    assert run("bundle", folder, "--out", target, "--sign", keys / "ours").exit_code == 0
    return target
