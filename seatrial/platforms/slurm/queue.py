"""Ask Slurm for a run's job, and end it."""

import re
import time

from seatrial.model.errors import LaunchError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms.slurm.jobs import ACTIVE, FORMAT, WAITING, Job, ending, parse_jobs
from seatrial.platforms.slurm.login import CommandError, Login
from seatrial.platforms.slurm.script import job_name

END_S = 25.0  # Slurm waits KillWait, 30 s by default, only for what ignores TERM; a node's step does not
# slurmstepd holds on to what ranks print for EioTimeout, 60 s by default, when the srun that reads it is gone.
_CANCELLED_S = 75.0
_PAUSE_S = 0.25


def submit(login: Login, script: str) -> str:
    """The id of the job. Raises LaunchError with sbatch's words."""
    try:
        printed = login.run(["sbatch", "--parsable", script])
    except CommandError as error:
        raise LaunchError(Reason.of("slurm-submit-refused", problem=error.words)) from None
    job_id = printed.strip().splitlines()[-1].partition(";")[0] if printed.strip() else ""
    if not re.fullmatch(r"\d{1,10}", job_id):
        raise LaunchError(Reason.of("slurm-submit-refused", problem=f"no job id in {printed.strip()[:200]!r}"))
    return job_id


def jobs_of(login: Login, run_id: str) -> list[Job]:
    """The jobs of that run that slurmctld still knows; those that have ended are forgotten after some minutes."""
    return parse_jobs(
        login.run(["squeue", "--me", "--noheader", "--states=all", f"--name={job_name(run_id)}", f"--format={FORMAT}"])
    )


def job_of(login: Login, run_id: str, job_id: str) -> Job | None:
    """The job as slurmctld knows it, or else as accounting does; None where nobody knows it."""
    known = (job for job in jobs_of(login, run_id) if job.job_id == job_id)
    return next(known, None) or _accounted(login, job_id)


def _accounted(login: Login, job_id: str) -> Job | None:
    argv = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job_id}"]
    try:
        printed = login.run([*argv, "--format=JobID,State,NodeList"])
    except SeatrialError:  # there is no slurmdbd, or no sacct
        return None
    # "CANCELLED by 1000"
    lines = (re.sub(r"\|([A-Z_]+)[^|]*\|", r"|\1|", line) + "|" for line in printed.splitlines())
    return next(iter(parse_jobs("\n".join(lines))), None)


def restarts(login: Login, job_id: str) -> int:
    """How often Slurm has taken the job's nodes and put it back into the queue; it keeps its id then."""
    printed = login.run(
        ["squeue", "--me", "--noheader", "--states=all", f"--jobs={job_id}", "--Format=RestartCnt:10"]
    ).strip()
    return int(printed) if re.fullmatch(r"\d{1,9}", printed) else 0


def blameless_reason(login: Login, run_id: str, job_id: str, restarts_at_launch: int, node: str) -> str | None:
    """Why a node went silent although it is well: its job has ended or was requeued. None: blame the node."""
    try:
        job = _settled(login, run_id, job_id)
        if job is None:
            return Reason.of("slurm-job-gone", job=job_id)
        requeued = not job.is_over and restarts(login, job_id) > restarts_at_launch  # perhaps it is up again
        if _is_down(login, node) or (job.is_up and not requeued):
            return None
        if job.is_held:
            return Reason.of("slurm-job-held", job=job_id, pending=job.pending)
        return (
            Reason.of("slurm-job-requeued", job=job_id, detail="") if requeued or job.state in WAITING else ending(job)
        )
    except SeatrialError:
        return None  # nobody can say


def _settled(login: Login, run_id: str, job_id: str) -> Job | None:
    """The job once it has ended: as long as it is COMPLETING, Slurm does not say how it ended."""
    deadline = time.monotonic() + END_S
    while (job := job_of(login, run_id, job_id)) and job.state == "COMPLETING" and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    return job


def _is_down(login: Login, node: str) -> bool:
    """Whether Slurm itself takes the node for down, or it does not answer Slurm (`idle*`)."""
    states = login.run(["sinfo", "--noheader", "--Node", f"--nodes={node}", "--format=%T"]).split()
    return any(state.startswith(("down", "fail")) or state.endswith("*") for state in states)


def end_jobs(login: Login, run_id: str) -> None:
    """Cancel them and wait until no node has anything of them. Raises LaunchError where they do not end."""
    deadline = time.monotonic() + _CANCELLED_S
    while living := [job for job in jobs_of(login, run_id) if not job.is_over]:
        cancelled = [job.job_id for job in living if job.state != "COMPLETING"]
        if cancelled:
            login.run(["scancel", *cancelled])
        if time.monotonic() > deadline:
            job = living[0]
            raise LaunchError(
                Reason.of(
                    "slurm-job-does-not-end",
                    job=job.job_id,
                    state=job.state,
                    seconds=f"{_CANCELLED_S:g}",
                    nodes=job.nodes if job.state in ACTIVE else "no node",
                )
            )
        time.sleep(_PAUSE_S)


def node_names(login: Login, nodes: str) -> list[str]:
    """The names in a node list of Slurm's, in the order of the tasks."""
    return login.run(["scontrol", "show", "hostnames", nodes]).split()


def node_addresses(login: Login, nodes: str) -> dict[str, str]:
    """Where Slurm itself reaches each of those nodes, by name: a host name or an address."""
    lines = login.run(["sinfo", "--noheader", "--Node", f"--nodes={nodes}", "--format=%N|%o"]).splitlines()
    pairs = (line.strip().partition("|") for line in lines)
    return {name: address for name, _, address in pairs if address}
