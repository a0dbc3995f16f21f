"""Watch the job of a run until its nodes are ready."""

import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass

from seatrial.model.errors import LaunchError
from seatrial.model.reason import Reason, join
from seatrial.platforms.slurm import SlurmPlatform
from seatrial.platforms.slurm.jobs import Job, ending, job_of, log, never_starts, waits_for
from seatrial.platforms.slurm.login import Login
from seatrial.platforms.slurm.script import NODES_LOG, run_folder
from seatrial.text.printable import printable
from seatrial.text.words import some_of

_POLL_S = (0.2, 5.0)  # pause between polls: at first, and at most
# Bytes of the nodes' log that are read: a line or two of each node, and messages of sshd
_LOG_BYTES = 8 * 1024**2
_READY = re.compile(r"\s*(\d{1,5}): seatrial-node: ready (\d{1,5})")
_FAILED = re.compile(r"\s*(\d{1,5}): seatrial-node: failed: (.{1,500})")
_LABEL = re.compile(r"\s*(\d{1,5}): (.{1,500})")
# Why a container did not start: messages of the tool that failed, then those of pyxis, without its
# advice.
_WHY = re.compile(
    r"\[ERROR\]|FATAL|: (?:Permission denied|No space left on device)|nvidia-container-cli: "
)
_TELLING = re.compile(r"pyxis: (?!child |printing |could|if the image|    \[INFO\])")
_STEP_ERROR = re.compile(r"(?:srun|slurmstepd)[^:]*: error: (.{1,500})")


@dataclass(frozen=True, slots=True)
class NodesLog:
    """The output of the steps so far, by task.

    `ports`: the port of each node that is ready. `problems`: what failed. `last_lines`: of each
    other task, the line that best explains why its container did not start. `step_error` is srun's
    own message, of no task.
    """

    ports: Mapping[int, int]
    last_lines: Mapping[int, str]
    problems: Mapping[int, str]
    step_error: str | None


def read_nodes_log(text: str) -> NodesLog:
    """Parse the log of the nodes.

    After the first port of a task, its further lines are ignored. So are lines of unknown form, and
    ports that are out of range.
    """
    ports: dict[int, int] = {}
    problems: dict[int, str] = {}
    labelled: dict[int, str] = {}  # of each task, the line that best explains a failed start
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
    """Return how well a line explains a failed start, from 0 to 3; the last of equal lines
    is used.
    """
    return 2 * bool(_WHY.search(line)) + bool(_TELLING.search(line))


class BringUp:
    """Watches the job of a run until its nodes are ready.

    `node_count` is the number of nodes that the job requests. The time in the queue begins with
    this object.
    """

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
        """Wait until all nodes are ready, or time is up and some are; return the job, and the port
        by task.

        Polls less and less often, and logs each change. Raises LaunchError if the job will never
        start or has ended, or no node is ready in time.
        """
        pause_s = _POLL_S[0]
        logged = ""
        while True:
            job = self._job()
            # Before the job is up there is no log, and each poll is a login
            nodes_log = self._nodes_log() if job.is_up else read_nodes_log("")
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
        """Return the job.

        Raises LaunchError if it will never start or has ended; if it failed, with the messages of
        its steps.
        """
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
            reasons = [ending(job)]
            if job.state == "FAILED":
                # If a job failed, the messages of its steps have the cause.
                reasons = [*problems, *reasons]
            raise LaunchError(join(reasons))
        if why := never_starts(job):
            raise LaunchError(why)
        return job

    def _nodes_log(self) -> NodesLog:
        """Return the log of the nodes; empty if they have not begun, or there is no log."""
        path = shlex.quote(f"{run_folder(self._settings, self._run_id)}/{NODES_LOG}")
        return read_nodes_log(self._login.shell(f"head -c {_LOG_BYTES} {path} 2>/dev/null || :"))

    def _is_enough(self, job: Job, nodes_log: NodesLog) -> bool:
        """Return whether to stop waiting: all other nodes have failed, or time is up with some
        nodes ready.

        Raises LaunchError if the job waits too long in the queue, or no node is ready.
        """
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
        # Only of the first tasks, as all nodes often have the same problem
        problems = [problem for _, problem in sorted(nodes_log.problems.items())][:3]
        problem = (
            "; ".join(dict.fromkeys(problems)) or nodes_log.step_error or "the nodes' log is empty"
        )
        raise LaunchError.of(
            "slurm-nodes-silent",
            job=self._job_id,
            limit_s=f"{self._settings.start_timeout_s:g}",
            problem=problem,
        )


def _step_problems(problem_by_task: Mapping[int, str]) -> list[Reason]:
    """Return a reason for each different problem, with its tasks; at most four."""
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
