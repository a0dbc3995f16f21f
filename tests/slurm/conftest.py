"""The lane that runs against a real Slurm, which it starts; only when it is asked for by its
path.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import Console, console, prefect_server
from tests.slurm.cluster import SlurmCluster, lacking
from tests.slurm.settings import settings_of

__all__ = ["console", "prefect_server"]


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """Four nodes with two GPUs each that are none."""
    if os.geteuid():
        pytest.skip("only root can start slurmd")
    if packages := lacking():
        pytest.skip(f"missing: scripts/slurm-packages installs {packages}")
    cluster = SlurmCluster(4)
    cluster.start()
    yield cluster
    cluster.stop()
    assert cluster.leftovers() == set()


@pytest.fixture(autouse=True)
def _talks_to_it(
    slurm: SlurmCluster, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Whatever a test does, no job and no file of a run is left in the queue, on the nodes and
    here.
    """
    for name, value in slurm.env.items():
        monkeypatch.setenv(name, value)
    yield
    slurm.wait_until_idle()
    slurm.wait_until_clean()


@pytest.fixture
def slurm_console(console: Console, slurm: SlurmCluster) -> Console:
    console.environment |= slurm.env
    return console


@pytest.fixture
def settings(slurm: SlurmCluster) -> dict[str, Any]:
    """The section `platform` of a cluster file for it."""
    return settings_of(slurm)
