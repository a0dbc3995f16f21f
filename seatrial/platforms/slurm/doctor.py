"""Checks before a run on Slurm, each with the next step: commands, the job as sbatch sees it, tests
of `qualify`.
"""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from seatrial.config.image import ImageFile
from seatrial.config.qualify import Qualify
from seatrial.model.errors import MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms.slurm import SlurmPlatform, script
from seatrial.platforms.slurm.login import CommandError, Login
from seatrial.platforms.slurm.service import SlurmService
from seatrial.platforms.testbed import trial_run
from seatrial.text.printable import printable

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

_COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")
_MOST_NODES = 4  # most nodes out of use in one line


def problems(login: Login, cluster: "Cluster", settings: SlurmPlatform) -> list[Reason]:
    """Return everything that would keep a run from starting, without submitting anything."""
    try:
        commands = (*_COMMANDS, "srun") if settings.launch == "srun" else _COMMANDS
        absent = [reason for command in commands if (reason := _absent(login, command))]
        if absent:
            return list(dict.fromkeys(absent))
        login.run(["scontrol", "ping"], timeout_s=20)
        reasons = [*_refused(login, cluster, settings), *_lacking(login, cluster, settings)]
        if cluster.qualify:
            reasons += _not_qualified(login, cluster, cluster.qualify)
        return reasons
    except SeatrialError as error:
        return [error.reason]


def _absent(login: Login, command: str) -> Reason | None:
    try:
        login.run([command, "--version"], timeout_s=20)
    except MissingError as error:
        return error.reason
    except CommandError:  # the command exists; `ping` shows more
        pass
    return None


def _lacking(login: Login, cluster: "Cluster", settings: SlurmPlatform) -> Iterator[Reason]:
    """Yield problems of the runtime, the image file and srun's MPI plugin on the login node."""
    if settings.runtime == "pyxis" and "--container-image" not in login.run(
        ["srun", "--help"], timeout_s=20
    ):
        yield Reason.of("slurm-pyxis-missing", place=login.place)
    if isinstance(cluster.image, ImageFile):
        path = cluster.image.path
        if not login.shell(f"[ ! -r {shlex.quote(path)} ] || echo readable", timeout_s=20).strip():
            yield Reason.of("slurm-image-unreadable", image=path, place=login.place)
    if settings.launch == "srun":
        plugins = login.shell("srun --mpi=list 2>&1", timeout_s=20).split()
        if settings.mpi_plugin not in plugins:
            legal = (
                printable(" ".join(name for name in plugins if name in ("none", "pmi2", "pmix")))
                or "none"
            )
            yield Reason.of(
                "slurm-mpi-plugin-missing",
                plugin=settings.mpi_plugin,
                place=login.place,
                known=legal,
            )


def _refused(login: Login, cluster: "Cluster", settings: SlurmPlatform) -> Iterator[Reason]:
    """Yield sbatch's refusal of the job: partition, account, constraint, nodes, GPUs, time."""
    job = script.job_script(trial_run(cluster), settings)
    try:
        login.run(["sbatch", "--test-only"], stdin=job.encode(), timeout_s=30)
    except CommandError as error:
        refused = error.message.removeprefix("allocation failure: ")
        yield Reason.of("slurm-submit-refused", problem=refused + _out_of_use(login))


def _not_qualified(login: Login, cluster: "Cluster", qualify: Qualify) -> Iterator[Reason]:
    """Yield problems of jobs of `qualify`: refusal by sbatch, no preemption, or no right to drain
    nodes.
    """
    test = SlurmService(cluster).take(()).model_copy(update={"nodes": 1})
    assert isinstance(test.platform, SlurmPlatform)
    yield from _refused(login, test, test.platform)
    if qualify.partition and "PreemptMode=OFF" in login.run(
        ["scontrol", "show", "partition", qualify.partition]
    ):
        yield Reason.of("slurm-not-preempted", partition=qualify.partition)
    if not qualify.dry_run and _admin_level(login) == "None":
        yield Reason.of("slurm-may-not-drain", place=login.place)


def _admin_level(login: Login) -> str:
    """Return the user's AdminLevel from Slurm's accounting; empty for root and without
    accounting.
    """
    command = (
        '[ "$(id -u)" = 0 ] || sacctmgr -nP show user "$(id -un)" format=adminlevel 2>/dev/null'
    )
    return login.shell(f"{command} || true", timeout_s=20).strip()


def _out_of_use(login: Login) -> str:
    """Return the nodes that are down or drained, and why, by `sinfo -R`; empty if none is."""
    try:
        listed = login.run(
            ["sinfo", "--list-reasons", "--noheader", "--format=%N: %E"], timeout_s=20
        ).splitlines()
    except SeatrialError:
        return ""
    nodes = [printable(line.strip())[:120] for line in listed if line.strip()]
    more = f" and {len(nodes) - _MOST_NODES} more" if len(nodes) > _MOST_NODES else ""
    return f" (out of use: {'; '.join(nodes[:_MOST_NODES])}{more})" if nodes else ""
