"""The cgroups of a cluster: one for each node in each hierarchy, made before and removed after."""

import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
UNIFIED = ROOT / "cgroup.controllers"  # there where the machine has cgroup v2 and nothing else


def hierarchies() -> list[Path]:
    """Where cgroups can be made: one folder with version 2, one per controller with version 1."""
    if UNIFIED.exists():
        return [ROOT]
    return sorted(
        folder
        for folder in ROOT.iterdir()
        if (folder / "cgroup.procs").exists() and not folder.is_symlink()
    )


def make(name: str) -> None:
    """Make the cgroup, such as "seatrial-kubernetes/node-0", in every hierarchy."""
    for hierarchy in hierarchies():
        folder = hierarchy
        for part in Path(name).parts:
            if UNIFIED.exists():
                _delegate(folder)
            folder /= part
            folder.mkdir(exist_ok=True)
            # Version 1 leaves these empty, and then nobody may enter
            if hierarchy.name.split(",")[0] == "cpuset":
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (folder / file).write_text((folder.parent / file).read_text())


def _delegate(folder: Path) -> None:
    for controller in (folder / "cgroup.controllers").read_text().split():
        (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def left(name: str) -> list[Path]:
    """The cgroups of this name that are there, children first."""
    tops = [hierarchy / name for hierarchy in hierarchies()]
    return [Path(folder) for top in tops for folder, _, _ in os.walk(top, topdown=False)]


def remove(name: str, timeout_s: float = 10) -> None:
    """Remove the cgroup and all below it; processes that were killed hold it a moment longer."""
    deadline = time.monotonic() + timeout_s
    while folders := left(name):
        for folder in folders:
            try:
                folder.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
        time.sleep(0.05)
