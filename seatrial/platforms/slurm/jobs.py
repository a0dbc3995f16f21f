"""The job of a run as Slurm knows it: its state, and what a state and a pending reason mean."""

import re
from dataclasses import dataclass

from seatrial.model.reason import Reason

FORMAT = "%i|%T|%N|%r"  # of squeue: id, state, nodes, reason
_JOB_ID = re.compile(r"\d{1,10}")
_HELD = ("JobHeldUser", "JobHeldAdmin", "launch failed requeued held", "job requeued in held state")

ACTIVE = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"})
WAITING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
_ENDED = {
    "CANCELLED": "slurm-job-cancelled",
    "TIMEOUT": "slurm-job-timed-out",
    "DEADLINE": "slurm-job-timed-out",
    "NODE_FAIL": "slurm-node-failed",
    "BOOT_FAIL": "slurm-node-failed",
    "PREEMPTED": "slurm-job-preempted",
    "REVOKED": "slurm-job-preempted",
    "FAILED": "slurm-job-failed",
    "OUT_OF_MEMORY": "slurm-job-failed",
}
# Reasons of a pending job that waiting does not change, and what each means.
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
_MORE_THAN_ONE_JOB_MAY = re.compile(r"(QOS|Assoc)Max\w*PerJob\w*")
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


@dataclass(frozen=True, slots=True)
class Job:
    """`state` is one word of Slurm's; `pending` why it waits or ended, in Slurm's words; `nodes` a list of Slurm's."""

    job_id: str
    state: str
    nodes: str
    pending: str

    @property
    def is_up(self) -> bool:
        return self.state == "RUNNING"

    @property
    def is_over(self) -> bool:
        return self.state not in ACTIVE | WAITING

    @property
    def is_held(self) -> bool:
        return self.state in ("REQUEUE_HOLD", "SPECIAL_EXIT") or self.pending.strip("()").startswith(_HELD)


def parse_jobs(text: str) -> list[Job]:
    """What `squeue --format` with FORMAT printed; lines that are none of a job are left out."""
    jobs = []
    for line in text.splitlines():
        job_id, _, rest = line.strip().partition("|")
        state, _, rest = rest.partition("|")
        nodes, _, pending = rest.partition("|")
        if _JOB_ID.fullmatch(job_id) and re.fullmatch(r"[A-Z_]+", state):
            jobs.append(Job(job_id, state, nodes, pending))
    return jobs


def never_starts(job: Job) -> str | None:
    """Why waiting is in vain; None where it is not, or the job is not pending."""
    if job.state not in WAITING:
        return None
    if job.is_held:
        return Reason.of("slurm-job-held", job=job.job_id, pending=job.pending)
    meaning = _never(job.pending)
    return meaning and Reason.of("slurm-never-starts", job=job.job_id, pending=job.pending, meaning=meaning)


def _never(pending: str) -> str | None:
    if _MORE_THAN_ONE_JOB_MAY.fullmatch(pending):
        return "it asks for more than one job may have"
    return _NEVER.get(_word(pending))


def waits_for(pending: str) -> str:
    """What a pending reason means, for people; the reason itself where nothing is known of it."""
    return _never(pending) or _WAIT.get(_word(pending), pending)


def _word(pending: str) -> str:
    """`ReqNodeNotAvail, UnavailableNodes:n1` begins with the reason."""
    return re.split(r"[,\s(]", pending.strip("()"), maxsplit=1)[0]


def ending(job: Job) -> str:
    """Why a job that is over has ended."""
    detail = f" ({job.pending})" if job.pending not in ("", "None") else ""
    if code := _ENDED.get(job.state):
        return Reason.of(code, job=job.job_id, detail=detail)
    return Reason.of("slurm-job-ended", job=job.job_id, state=job.state, detail=detail)
