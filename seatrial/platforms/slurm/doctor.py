"""Checks before a run on a Slurm cluster, each with the next step."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.checks.suites import load_suite
from seatrial.config.image import ImageFile
from seatrial.config.run import Run
from seatrial.model.errors import MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms.slurm.config import SlurmPlatform
from seatrial.platforms.slurm.login import CommandError, Login
from seatrial.platforms.slurm.script import job_script
from seatrial.text.printable import printable

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

_MPI_PLUGINS = ("none", "pmi2", "pmix")
_COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")


def problems(login: Login, cluster: "Cluster", settings: SlurmPlatform) -> list[str]:
    """Everything that would keep a run from starting, without submitting anything."""
    try:
        absent = [reason for command in _commands(settings) if (reason := _absent(login, command))]
        if absent:
            return list(dict.fromkeys(absent))
        login.run(["scontrol", "ping"], timeout_s=20)
        return [*_refused(login, cluster, settings), *_runtime(login, cluster, settings), *_mpi(login, settings)]
    except SeatrialError as error:
        return [error.reason]


def _commands(settings: SlurmPlatform) -> tuple[str, ...]:
    return (*_COMMANDS, "srun") if settings.launch == "srun" else _COMMANDS


def _absent(login: Login, command: str) -> str | None:
    try:
        login.run([command, "--version"], timeout_s=20)
    except MissingError as error:
        return error.reason
    except CommandError:  # it is there; `ping` says more
        return None
    return None


def _runtime(login: Login, cluster: "Cluster", settings: SlurmPlatform) -> Iterator[str]:
    """What the containers of the nodes lack, as far as the login node shows."""
    if settings.runtime == "pyxis" and "--container-image" not in login.run(["srun", "--help"], timeout_s=20):
        yield Reason.of("slurm-pyxis-missing", place=login.place)
    if isinstance(cluster.image, ImageFile):
        path = cluster.image.path
        if not login.shell(f"[ ! -r {shlex.quote(path)} ] || echo readable", timeout_s=20).strip():
            yield Reason.of("slurm-image-unreadable", image=path, place=login.place)


def _mpi(login: Login, settings: SlurmPlatform) -> Iterator[str]:
    """Whether srun can start the ranks of an MPI program as the cluster file says."""
    if settings.launch == "srun":
        plugins = login.shell("srun --mpi=list 2>&1", timeout_s=20).split()
        if settings.mpi_plugin not in plugins:
            legal = printable(" ".join(name for name in plugins if name in _MPI_PLUGINS)) or "none"
            yield Reason.of("slurm-mpi-plugin-missing", plugin=settings.mpi_plugin, place=login.place, known=legal)


def _refused(login: Login, cluster: "Cluster", settings: SlurmPlatform) -> Iterator[str]:
    """Why sbatch would refuse the job of a run: partition, account, constraint, nodes, GPUs, time."""
    script = job_script(Run("doctor", cluster, load_suite("quick"), Path("doctor")), settings)
    try:
        login.run(["sbatch", "--test-only"], stdin=script.encode(), timeout_s=30)
    except CommandError as error:
        yield Reason.of("slurm-submit-refused", problem=error.message.removeprefix("allocation failure: "))
