"""What stands between a cluster file and a run on its Slurm cluster, each with the next step."""

from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.checks.suites import load_suite
from seatrial.config.run import Run
from seatrial.model.errors import MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms.slurm.config import SlurmPlatform
from seatrial.platforms.slurm.login import CommandError, Login
from seatrial.platforms.slurm.script import job_script

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

_COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")


def problems(login: Login, cluster: "Cluster", settings: SlurmPlatform) -> list[str]:
    """Everything that would keep a run from starting, without submitting anything; empty when nothing would."""
    absent = [reason for command in _COMMANDS if (reason := _absent(login, command))]
    if absent:
        return absent
    try:
        login.run(["scontrol", "ping"], timeout_s=20)
    except SeatrialError as error:
        return [error.reason]
    refused = _refused(login, cluster, settings)
    return [refused] if refused else []


def _absent(login: Login, command: str) -> str | None:
    try:
        login.run([command, "--version"], timeout_s=20)
    except MissingError as error:
        return error.reason
    except SeatrialError:  # it is there; `ping` says more
        return None
    return None


def _refused(login: Login, cluster: "Cluster", settings: SlurmPlatform) -> str | None:
    """What sbatch says to the job that a run would submit: partition, account, constraint, nodes, GPUs, time."""
    script = job_script(Run("doctor", cluster, load_suite("quick"), Path("doctor")), settings)
    try:
        login.run(["sbatch", "--test-only"], stdin=script.encode(), timeout_s=30)
    except CommandError as error:
        return Reason.of("slurm-submit-refused", problem=error.words.removeprefix("allocation failure: "))
    except SeatrialError as error:
        return error.reason
    return None
