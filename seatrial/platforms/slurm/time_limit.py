"""Whether a job's time limit leaves a suite the time that it may take."""

from collections.abc import Iterator
from datetime import timedelta

from seatrial.checks.collectives.section import Collectives
from seatrial.checks.table import CHECKS, left_out
from seatrial.checks.training.section import Training
from seatrial.config.run import Run
from seatrial.model.errors import MissingError
from seatrial.model.reason import Reason
from seatrial.platforms.slurm.config import SlurmPlatform


def check_time_limit(run: Run, settings: SlurmPlatform) -> str | None:
    """A warning where Slurm may end the nodes before the suite, or their `keep_s`, is over; None where it cannot.

    Raises MissingError where one step of the suite may take longer than the whole job: Slurm would end it, and not its
    own timeout, which tells what is wrong.
    """
    needed_s = dict(_needed_s(run))
    limit = _clock(settings.time_limit_s)
    name, longest_s = max(needed_s.items(), key=lambda item: item[1], default=("", 0.0))
    if longest_s > settings.time_limit_s:
        values = {"suite": run.suite.name, "limit": limit, "check": name, "longest": _clock(longest_s)}
        raise MissingError(Reason.of("slurm-time-limit-short", **values))
    kept_s = 0 if run.cluster.keep == "never" else run.cluster.keep_s
    total_s = sum(needed_s.values()) + kept_s
    if total_s <= settings.time_limit_s:
        return None
    kept = f" and keep_s ({_clock(kept_s)})" if kept_s else ""
    return (
        f"the timeouts of suite {run.suite.name}{kept} add up to {_clock(total_s)}, and time_limit is {limit}:"
        " Slurm ends the nodes of a run that takes longer"
    )


def _needed_s(run: Run) -> Iterator[tuple[str, float]]:
    """Name and timeout in seconds of each step: of a check, and of each operation that is swept."""
    for kind in (kind for kind in CHECKS if not left_out(kind, run)):
        section = run.suite.section(kind.section)
        timeout_s = float(getattr(section, "timeout_s", 0))
        if isinstance(section, Collectives):
            cluster = run.cluster
            planned = section.sweeps(nodes=cluster.nodes, slots=cluster.slots, gpus=bool(cluster.gpus))
            yield from ((sweep.label, timeout_s) for sweep in planned)
        elif section is not None:
            yield kind.name, timeout_s
        if isinstance(section, Training) and section.all_reduce_rounds:
            yield "all_reduce by torch", timeout_s


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
