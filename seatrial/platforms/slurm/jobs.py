"""The job of a run: submit it, find it, explain its wait and its end, cancel it."""

import logging
import re
import time
from collections.abc import Collection
from dataclasses import dataclass

from seatrial.model.errors import LaunchError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms.slurm import expanded
from seatrial.platforms.slurm.login import CommandError, Login, rows
from seatrial.platforms.slurm.script import job_name

log = logging.getLogger("seatrial.launch")

_SQUEUE = ("squeue", "--me", "--noheader", "--states=all")
FORMAT = "%i|%T|%N|%r"  # format for squeue: id, state, nodes, reason
_SWITCH = re.compile(r"^(?:Switch|Block)Name=(\S{1,255}) .*?Nodes=(\S+)", re.MULTILINE)
_JOB_ID = re.compile(r"\d{1,10}")
_HELD = ("JobHeldUser", "JobHeldAdmin", "launch failed requeued held", "job requeued in held state")

ACTIVE = frozenset(
    {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"}
)
WAITING = frozenset(
    {
        "PENDING",
        "CONFIGURING",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "SPECIAL_EXIT",
        "RESV_DEL_HOLD",
    }
)
_ENDED = {
    "CANCELLED": "slurm-job-cancelled",
    "TIMEOUT": "slurm-job-timed-out",
    "DEADLINE": "slurm-job-timed-out",
    "NODE_FAIL": "slurm-node-failed",
    "BOOT_FAIL": "slurm-node-failed",
    "PREEMPTED": "slurm-job-cancelled",
    "REVOKED": "slurm-job-cancelled",
    "FAILED": "slurm-job-failed",
    "OUT_OF_MEMORY": "slurm-job-failed",
}
_HOW = {
    "CANCELLED": "cancelled",
    "PREEMPTED": "preempted",
    "REVOKED": "preempted",
    "FAILED": "failed",
}
# Reasons of a pending job that never pass, with their meaning.
_NEVER = {
    "PartitionNodeLimit": "more nodes are asked for than a job of the partition may have",
    "PartitionTimeLimit": "time_limit is longer than the partition allows",
    "PartitionConfig": "the partition does not allow that many nodes, such large ones, or that much time",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "BadConstraints": "no nodes can satisfy what is asked for together",
    "InvalidAccount": "the account does not exist, or the user does not belong to it",
    "InvalidQOS": "the QOS does not exist",
    "AccountNotAllowed": "the account may not use the partition",
    "QOSNotAllowed": "the account or partition may not use the QOS",
    "AccountingPolicy": "an accounting policy forbids it",
    "DependencyNeverSatisfied": "a job that it depends on has failed",
    "ReservationDeleted": "the reservation is gone",
    "NodeNotAvail": "a node that it names is not available",
}
_WAIT = {
    "Resources": "waiting for nodes to become free",
    "Priority": "jobs of higher priority come first",
    "None": "the scheduler has not looked at it yet",
    "BeginTime": "its begin time has not come",
    "Reservation": "its reservation has not begun",
    "Licenses": "waiting for a license",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "NodeDown": "a node that it needs is down",
    "Dependency": "waiting for a job that it depends on",
}
# Slurm waits KillWait, 30 s by default, only if a step ignores TERM, which a node's step does not
END_S = 25.0
# When srun is gone, slurmstepd waits EioTimeout, 60 s by default, for a reader of the ranks'
# output.
_CANCELLED_S = 75.0
_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class Job:
    """A job as squeue shows it; `pending` is why it waits or ended, `node_list` is in Slurm's
    notation.
    """

    job_id: str
    state: str
    node_list: str
    pending: str

    @property
    def is_up(self) -> bool:
        return self.state == "RUNNING"

    @property
    def is_over(self) -> bool:
        return self.state not in ACTIVE | WAITING

    @property
    def is_held(self) -> bool:
        return self.state in ("REQUEUE_HOLD", "SPECIAL_EXIT") or self.pending.strip(
            "()"
        ).startswith(_HELD)


def parse_jobs(text: str) -> list[Job]:
    """Parse the output of `squeue --format` with FORMAT, ignoring other lines."""
    return [
        Job(job_id, state, nodes, pending)
        for job_id, state, nodes, pending in rows(text, 4)
        if _JOB_ID.fullmatch(job_id) and re.fullmatch(r"[A-Z_]+", state)
    ]


def never_starts(job: Job) -> Reason | None:
    """Explain why the job will never start; None while it may."""
    if job.state not in WAITING:
        return None
    if job.is_held:
        return Reason.of("slurm-job-held", job=job.job_id, pending=job.pending)
    if meaning := _never(job.pending):
        return Reason.of("slurm-never-starts", job=job.job_id, pending=job.pending, meaning=meaning)
    return None


def _never(pending: str) -> str | None:
    if re.fullmatch(r"(QOS|Assoc)Max\w*PerJob\w*", pending):
        return "it asks for more than one job may have"
    if re.fullmatch(r"(QOS|Assoc)Min\w*", pending):
        return "it asks for less than a job of its QOS or account must"
    return _NEVER.get(_pending_code(pending))


def waits_for(pending: str) -> str:
    """Return the meaning of a pending reason; the reason itself if it is unknown."""
    code = _pending_code(pending)
    if known := _never(pending) or _WAIT.get(code):
        return known
    if re.fullmatch(r"(QOS|Assoc)(Grp|Max)\w*", code):
        return "other jobs of the user, the account or the QOS use up what these may have together"
    return pending


def _pending_code(pending: str) -> str:
    """Return the code at the start of a pending reason, such as `ReqNodeNotAvail,
    UnavailableNodes:n1`.
    """
    return re.split(r"[,\s(]", pending.strip("()"), maxsplit=1)[0]


def ending(job: Job) -> Reason:
    """Explain the end of a job."""
    detail = f" ({job.pending})" if job.pending not in ("", "None") else ""
    return Reason.of(
        _ENDED.get(job.state, "slurm-job-failed"),
        job=job.job_id,
        how=_HOW.get(job.state, f"ended early ({job.state})"),
        detail=detail,
    )


def submit(login: Login, script: str) -> str:
    """Submit a job and return its id. Raises LaunchError with the message of sbatch."""
    try:
        printed = login.run(["sbatch", "--parsable", script])
    except CommandError as error:
        raise LaunchError.of("slurm-submit-refused", problem=error.message) from None
    job_id = printed.strip().splitlines()[-1].partition(";")[0] if printed.strip() else ""
    if not _JOB_ID.fullmatch(job_id):
        raise LaunchError.of(
            "slurm-submit-refused", problem=f"no job id in {printed.strip()[:200]!r}"
        )
    return job_id


def jobs_of(login: Login, run_id: str) -> list[Job]:
    """Return the jobs of the run that slurmctld knows; it forgets ended ones after some minutes."""
    options = [f"--name={job_name(run_id)}", f"--format={FORMAT}"]
    return parse_jobs(login.run([*_SQUEUE, *options]))


def job_of(login: Login, run_id: str, job_id: str) -> Job | None:
    """Return the job from slurmctld, else from accounting; None if neither knows it."""
    for job in jobs_of(login, run_id):
        if job.job_id == job_id:
            return job
    argv = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job_id}"]
    try:
        printed = login.run([*argv, "--format=JobID,State,NodeList"])
    except SeatrialError:  # without slurmdbd or sacct
        return None
    # "CANCELLED by 1000"
    lines = (re.sub(r"\|([A-Z_]+)[^|]*\|", r"|\1|", line) + "|" for line in printed.splitlines())
    return next(iter(parse_jobs("\n".join(lines))), None)


def restarts(login: Login, job_id: str) -> int:
    """Return how often Slurm has requeued the job under its id."""
    printed = login.run([*_SQUEUE, f"--jobs={job_id}", "--Format=RestartCnt:10"]).strip()
    return int(printed) if re.fullmatch(r"\d{1,9}", printed) else 0


def blameless_reason(
    login: Login, run_id: str, job_id: str, restarts_at_launch: int, node: str
) -> Reason | None:
    """Explain a silent node by its job, which has ended or was requeued. None: the node is to
    blame.
    """
    try:
        job = _settled(login, run_id, job_id)
        if job is None:
            return Reason.of("slurm-job-gone", job=job_id)
        # A requeued job may be running again
        requeued = not job.is_over and restarts(login, job_id) > restarts_at_launch
        states = login.run(
            ["sinfo", "--noheader", "--Node", f"--nodes={node}", "--format=%T"]
        ).split()
        # `idle*`: the node does not answer Slurm
        is_down = any(state.startswith(("down", "fail")) or state.endswith("*") for state in states)
        if is_down or (job.is_up and not requeued):
            return None
        if job.is_held:
            return Reason.of("slurm-job-held", job=job_id, pending=job.pending)
        if requeued or job.state in WAITING:
            return Reason.of("slurm-job-cancelled", job=job_id, how="requeued", detail="")
        return ending(job)
    except SeatrialError:
        return None  # unknown


def _settled(login: Login, run_id: str, job_id: str) -> Job | None:
    """Return the job once it has ended, as Slurm does not show the final state while it is
    COMPLETING.
    """
    deadline = time.monotonic() + END_S
    while (
        (job := job_of(login, run_id, job_id))
        and job.state == "COMPLETING"
        and time.monotonic() < deadline
    ):
        time.sleep(_PAUSE_S)
    return job


def end_jobs(login: Login, run_id: str) -> None:
    """Cancel the jobs and wait until their nodes are free.

    Raises LaunchError where they do not end.
    """
    deadline = time.monotonic() + _CANCELLED_S
    while living := [job for job in jobs_of(login, run_id) if not job.is_over]:
        cancelled = [job.job_id for job in living if job.state != "COMPLETING"]
        if cancelled:
            login.run(["scancel", *cancelled])
        if time.monotonic() > deadline:
            job = living[0]
            raise LaunchError.of(
                "slurm-job-does-not-end",
                job=job.job_id,
                state=job.state,
                seconds=f"{_CANCELLED_S:g}",
                nodes=job.node_list if job.state in ACTIVE else "no node",
            )
        time.sleep(_PAUSE_S)


def node_names(login: Login, nodes: str) -> list[str]:
    """Return the names in a node list, in task order."""
    return login.run(["scontrol", "show", "hostnames", nodes]).split()


def switches(login: Login, names: Collection[str]) -> dict[str, frozenset[str]]:
    """Return the nodes in `names` behind each switch or block of Slurm's topology; {} without a
    topology.
    """
    try:
        printed = login.run(["scontrol", "show", "topology"])
        return {
            match[1]: frozenset(expanded(match[2])).intersection(names)
            for match in _SWITCH.finditer(printed)
        }
    except (SeatrialError, ValueError) as error:
        log.debug("no topology: %s", error)
        return {}


def node_addresses(login: Login, nodes: str) -> dict[str, str]:
    """Return the addresses by which Slurm reaches those nodes, by name."""
    printed = login.run(["sinfo", "--noheader", "--Node", f"--nodes={nodes}", "--format=%N|%o"])
    return {name: address for name, address in rows(printed, 2) if address}
