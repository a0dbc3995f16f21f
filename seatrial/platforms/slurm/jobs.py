"""The job of a run: submit it, follow it until its nodes are ready, explain its end, cancel it."""

import logging
import re
import shlex
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from seatrial.model.errors import LaunchError, SeatrialError
from seatrial.model.reason import Reason, join
from seatrial.platforms.slurm import SlurmPlatform, expanded
from seatrial.platforms.slurm.login import CommandError, Login, rows
from seatrial.platforms.slurm.script import NODES_LOG, job_name, run_folder
from seatrial.text.printable import printable
from seatrial.text.words import some_of

log = logging.getLogger("seatrial.launch")

FORMAT = "%i|%T|%N|%r"  # of squeue: id, state, nodes, reason
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
# Slurm waits KillWait, 30 s by default, only for what ignores TERM; a node's step does not
END_S = 25.0
# slurmstepd holds on to what ranks print for EioTimeout, 60 s by default, when the srun that reads
# it is gone.
_CANCELLED_S = 75.0
_PAUSE_S = 0.25
_POLL_S = (0.2, 5.0)  # between two looks: at first, and at most
# Of the nodes' log that are looked at: a line or two of each, and what sshd says
_LOG_BYTES = 8 * 1024**2
_READY = re.compile(r"\s*(\d{1,5}): seatrial-node: ready (\d{1,5})")
_FAILED = re.compile(r"\s*(\d{1,5}): seatrial-node: failed: (.{1,500})")
_LABEL = re.compile(r"\s*(\d{1,5}): (.{1,500})")
# Why a container did not start: the words of the tool that failed, then what pyxis says itself,
# without its advice.
_WHY = re.compile(
    r"\[ERROR\]|FATAL|: (?:Permission denied|No space left on device)|nvidia-container-cli: "
)
_TELLING = re.compile(r"pyxis: (?!child |printing |could|if the image|    \[INFO\])")
_STEP_ERROR = re.compile(r"(?:srun|slurmstepd)[^:]*: error: (.{1,500})")


@dataclass(frozen=True, slots=True)
class Job:
    """A job in squeue's terms; `pending` is why it waits or ended, `node_list` in Slurm's
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
    """Parse the output of `squeue --format` with FORMAT; other lines are left out."""
    jobs = []
    for job_id, state, nodes, pending in rows(text, 4):
        if _JOB_ID.fullmatch(job_id) and re.fullmatch(r"[A-Z_]+", state):
            jobs.append(Job(job_id, state, nodes, pending))
    return jobs


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
    """Return the jobs of the run in slurmctld, which forgets ended ones after some minutes."""
    return parse_jobs(
        login.run(
            [
                "squeue",
                "--me",
                "--noheader",
                "--states=all",
                f"--name={job_name(run_id)}",
                f"--format={FORMAT}",
            ]
        )
    )


def job_of(login: Login, run_id: str, job_id: str) -> Job | None:
    """Return the job in slurmctld, else in accounting; None if neither has it."""
    for job in jobs_of(login, run_id):
        if job.job_id == job_id:
            return job
    argv = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job_id}"]
    try:
        printed = login.run([*argv, "--format=JobID,State,NodeList"])
    except SeatrialError:  # there is no slurmdbd, or no sacct
        return None
    # "CANCELLED by 1000"
    lines = (re.sub(r"\|([A-Z_]+)[^|]*\|", r"|\1|", line) + "|" for line in printed.splitlines())
    return next(iter(parse_jobs("\n".join(lines))), None)


def restarts(login: Login, job_id: str) -> int:
    """Count how often Slurm has requeued the job, which keeps its id."""
    printed = login.run(
        [
            "squeue",
            "--me",
            "--noheader",
            "--states=all",
            f"--jobs={job_id}",
            "--Format=RestartCnt:10",
        ]
    ).strip()
    return int(printed) if re.fullmatch(r"\d{1,9}", printed) else 0


def blameless_reason(
    login: Login, run_id: str, job_id: str, restarts_at_launch: int, node: str
) -> Reason | None:
    """Explain a silent healthy node: its job has ended or was requeued. None: blame the node."""
    try:
        job = _settled(login, run_id, job_id)
        if job is None:
            return Reason.of("slurm-job-gone", job=job_id)
        # It may run anew
        requeued = not job.is_over and restarts(login, job_id) > restarts_at_launch
        states = login.run(
            ["sinfo", "--noheader", "--Node", f"--nodes={node}", "--format=%T"]
        ).split()
        # `idle*`: Slurm gets no answer from the node
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
    """Return the job once it has ended: as long as it is COMPLETING, Slurm does not say how it
    ended.
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
    """Return the names in a node list, in the order of the tasks."""
    return login.run(["scontrol", "show", "hostnames", nodes]).split()


def switches(login: Login, names: Collection[str]) -> dict[str, frozenset[str]]:
    """Return the nodes of `names` behind each switch or block of Slurm's topology; none where Slurm
    has no topology.
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
    """Return the addresses at which Slurm itself reaches those nodes, by name."""
    printed = login.run(["sinfo", "--noheader", "--Node", f"--nodes={nodes}", "--format=%N|%o"])
    return {name: address for name, address in rows(printed, 2) if address}


@dataclass(frozen=True, slots=True)
class NodesLog:
    """The output of the steps so far, by task: the port of each node that is ready, and what went
    wrong.

    `last_lines` has for each other task the line that best explains why its container did not
    start.
    """

    ports: Mapping[int, int] = field(default_factory=dict)
    last_lines: Mapping[int, str] = field(default_factory=dict)
    problems: Mapping[int, str] = field(default_factory=dict)
    step_error: str | None = None


def read_nodes_log(text: str) -> NodesLog:
    """Parse the log of the nodes.

    Each task counts once: lines after its first port change nothing.
    """
    ports: dict[int, int] = {}
    problems: dict[int, str] = {}
    labelled: dict[int, str] = {}  # the line of each task that best explains a failed start
    step_error = None
    for line in text.splitlines():
        if (match := _READY.fullmatch(line)) and 0 < int(match[2]) < 65536:
            ports.setdefault(int(match[1]), int(match[2]))
        elif match := _FAILED.fullmatch(line):
            problems.setdefault(int(match[1]), printable(match[2]))
        elif (match := _STEP_ERROR.match(line)) and step_error is None:
            step_error = printable(match[1])
        elif match := _LABEL.fullmatch(line):
            task = int(match[1])
            text = printable(match[2])
            labelled[task] = max(text, labelled.get(task, ""), key=_explanatory_power)
    return NodesLog(
        ports,
        {task: line for task, line in labelled.items() if task not in ports},
        problems,
        step_error,
    )


def _explanatory_power(line: str) -> int:
    """Return how well a line explains why its container did not start; of equal ones the last
    counts.
    """
    return 2 * bool(_WHY.search(line)) + bool(_TELLING.search(line))


class BringUp:
    """The job of a run until its nodes are ready."""

    def __init__(
        self, login: Login, settings: SlurmPlatform, run_id: str, job_id: str, node_count: int
    ) -> None:
        self._login = login
        self._settings = settings
        self._run_id = run_id
        self._job_id = job_id
        self._node_count = node_count
        self._submitted = time.monotonic()
        self._started: float | None = None

    def wait(self) -> tuple[Job, Mapping[int, int]]:
        """Wait until all nodes are ready, or time is up and some are; the job and the port of each
        task.

        Raises LaunchError when the job will never start or has ended, or no node is ready in time.
        """
        pause_s = _POLL_S[0]
        logged = ""
        while True:
            job = self._job()
            nodes_log = self._nodes_log() if job.is_up else NodesLog()
            if len(nodes_log.ports) >= self._node_count or self._is_enough(job, nodes_log):
                return job, nodes_log.ports
            if job.is_up:
                ready = f"{len(nodes_log.ports)} of {self._node_count} nodes are ready"
                progress = f"job {job.job_id} runs on {job.node_list}: {ready}"
            else:
                progress = f"job {job.job_id} is pending ({job.pending}): {waits_for(job.pending)}"
            if progress != logged:
                logged = progress
                log.info("%s", printable(progress))
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.3, _POLL_S[1])

    def _job(self) -> Job:
        """Return the job. Raises LaunchError if it will never start or has ended."""
        job = job_of(self._login, self._run_id, self._job_id)
        if job is None:
            raise LaunchError.of("slurm-job-gone", job=self._job_id)
        if job.is_over:
            nodes_log = self._nodes_log()
            problems = _step_problems({**nodes_log.last_lines, **nodes_log.problems})
            if nodes_log.step_error and not problems:
                problems = [
                    Reason.of("slurm-step-failed", node="srun", problem=nodes_log.step_error)
                ]
            # Of a job that merely failed, the messages of its steps have the cause.
            raise LaunchError(
                join([*problems, ending(job)] if job.state == "FAILED" else [ending(job)])
            )
        if why := never_starts(job):
            raise LaunchError(why)
        return job

    def _nodes_log(self) -> NodesLog:
        path = shlex.quote(f"{run_folder(self._settings, self._run_id)}/{NODES_LOG}")
        return read_nodes_log(self._login.shell(f"head -c {_LOG_BYTES} {path} 2>/dev/null || :"))

    def _is_enough(self, job: Job, nodes_log: NodesLog) -> bool:
        """Return whether no more nodes will get ready: the others have failed, or time is up."""
        now = time.monotonic()
        if not job.is_up:
            self._started = None
            if now - self._submitted > self._settings.queue_timeout_s:
                raise LaunchError.of(
                    "slurm-queued-too-long",
                    job=job.job_id,
                    limit_s=f"{self._settings.queue_timeout_s:g}",
                    pending=job.pending,
                    meaning=waits_for(job.pending),
                )
            return False
        self._started = self._started or now
        settled = len({*nodes_log.ports, *nodes_log.problems}) >= self._node_count
        if not settled and now - self._started <= self._settings.start_timeout_s:
            return False
        if nodes_log.ports:
            return True
        limit_s = f"{self._settings.start_timeout_s:g}"
        problems = [problem for _, problem in sorted(nodes_log.problems.items())][:3]
        problem = (
            "; ".join(dict.fromkeys(problems)) or nodes_log.step_error or "the nodes' log is empty"
        )
        raise LaunchError.of(
            "slurm-nodes-silent", job=self._job_id, limit_s=limit_s, problem=problem
        )


def _step_problems(problem_by_task: Mapping[int, str]) -> list[Reason]:
    """Return one reason for each problem, however many tasks report it."""
    tasks: dict[str, list[int]] = {}
    for task, problem in sorted(problem_by_task.items()):
        tasks.setdefault(problem, []).append(task)
    return [
        Reason.of(
            "slurm-step-failed",
            node=some_of([f"task {task}" for task in group], 2),
            problem=problem,
        )
        for problem, group in list(tasks.items())[:4]
    ]
