"""Cluster files for the tests' Slurm."""

import sys
from typing import Any

from tests.slurm.cluster import SlurmCluster


def settings_of(slurm: SlurmCluster, **fields: Any) -> dict[str, Any]:
    """The section `platform`; nodes run this Python, which has torch."""
    return {
        "kind": "slurm",
        "folder": f"{slurm.shared}/runs",
        "python": sys.executable,
        "time_limit": "00:30:00",
        "start_timeout_s": 120,
        **fields,
    }
