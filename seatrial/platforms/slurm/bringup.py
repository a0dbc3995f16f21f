"""Follow a job from the queue until every node's sshd has said its port, with a word whenever something changes."""

import logging
import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from seatrial.model.errors import LaunchError
from seatrial.model.reason import Reason, join
from seatrial.platforms.slurm import jobs
from seatrial.platforms.slurm.config import SlurmPlatform
from seatrial.platforms.slurm.jobs import Job
from seatrial.platforms.slurm.login import Login
from seatrial.platforms.slurm.queue import job_of
from seatrial.platforms.slurm.script import NODES_LOG, run_folder
from seatrial.text.printable import printable
from seatrial.text.words import some_of

log = logging.getLogger("seatrial.launch")

_PAUSE_S = (0.2, 5.0)  # between two looks: at first, and at most
_SHOWN = 4  # different problems of steps in one line
_LOG_BYTES = 8 * 1024**2  # of the nodes' log that are looked at: a line or two of each, and what sshd says
_READY = re.compile(r"\s*(\d{1,5}): seatrial-node: ready (\d{1,5})")
_FAILED = re.compile(r"\s*(\d{1,5}): seatrial-node: failed: (.{1,500})")
_LABEL = re.compile(r"\s*(\d{1,5}): (.{1,500})")
_TELLING = re.compile(r"\[ERROR\]|FATAL|pyxis: (?!child |printing |could)")  # why a container did not start
_STEP_ERROR = re.compile(r"(?:srun|slurmstepd)[^:]*: error: (.{1,500})")


@dataclass(frozen=True, slots=True)
class NodesLog:
    """What the steps have printed so far: the port of each node that is ready, and what went wrong, by task.

    `words` is the line of each other task that tells most of why its container did not start.
    """

    ports: Mapping[int, int] = field(default_factory=dict)
    words: Mapping[int, str] = field(default_factory=dict)
    problems: Mapping[int, str] = field(default_factory=dict)
    step_error: str | None = None


def read_nodes_log(text: str) -> NodesLog:
    """Each task counts once: what it prints after its first port changes nothing."""
    ports: dict[int, int] = {}
    problems: dict[int, str] = {}
    words: dict[int, str] = {}
    step_error = None
    for line in text.splitlines():
        if (match := _READY.fullmatch(line)) and 0 < int(match[2]) < 65536:
            ports.setdefault(int(match[1]), int(match[2]))
        elif match := _FAILED.fullmatch(line):
            problems.setdefault(int(match[1]), printable(match[2]))
        elif (match := _STEP_ERROR.match(line)) and step_error is None:
            step_error = printable(match[1])
        elif match := _LABEL.fullmatch(line):
            words[int(match[1])] = _more_telling(words.get(int(match[1]), ""), printable(match[2]))
    return NodesLog(ports, {task: line for task, line in words.items() if task not in ports}, problems, step_error)


def _more_telling(first: str, second: str) -> str:
    return first if _TELLING.search(first) and not _TELLING.search(second) else second


class BringUp:
    """One run's job on its way up."""

    def __init__(self, login: Login, settings: SlurmPlatform, run_id: str, job_id: str, nodes: int) -> None:
        self._login, self._settings, self._run_id, self._job_id = login, settings, run_id, job_id
        self._nodes = nodes
        self._submitted = time.monotonic()
        self._started: float | None = None
        self._story = ""

    def wait(self) -> tuple[Job, Mapping[int, int]]:
        """The job and the port of each task, once all nodes are ready or time is up and some are.

        Raises LaunchError when the job will never start or has ended, or no node is ready in time.
        """
        pause_s = _PAUSE_S[0]
        while True:
            job = self._job()
            nodes_log = self._nodes_log() if job.is_up else NodesLog()
            if len(nodes_log.ports) >= self._nodes or self._is_enough(job, nodes_log):
                return job, nodes_log.ports
            self._tell(job, nodes_log)
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.3, _PAUSE_S[1])

    def _job(self) -> Job:
        """Raises LaunchError where it will never be up."""
        job = job_of(self._login, self._run_id, self._job_id)
        if job is None:
            raise LaunchError(Reason.of("slurm-job-gone", job=self._job_id))
        if job.is_over:
            raise LaunchError(self._why_it_ended(job))
        if why := jobs.never_starts(job):
            raise LaunchError(why)
        return job

    def _why_it_ended(self, job: Job) -> str:
        """The steps' own words, where there are some, weigh more than a job that failed."""
        nodes_log = self._nodes_log()
        problems = _step_problems({**nodes_log.words, **nodes_log.problems})
        if nodes_log.step_error and not problems:
            problems = [Reason.of("slurm-step-failed", node="srun", problem=nodes_log.step_error)]
        return join([*problems, jobs.ending(job)] if job.state == "FAILED" else [jobs.ending(job)])

    def _nodes_log(self) -> NodesLog:
        path = shlex.quote(f"{run_folder(self._settings, self._run_id)}/{NODES_LOG}")
        return read_nodes_log(self._login.shell(f"head -c {_LOG_BYTES} {path} 2>/dev/null || :"))

    def _is_enough(self, job: Job, nodes_log: NodesLog) -> bool:
        """Whether the rest of the nodes will not come: they have failed, or time is up."""
        now = time.monotonic()
        if not job.is_up:
            self._started = None
            if now - self._submitted > self._settings.queue_timeout_s:
                raise LaunchError(self._queued_too_long(job))
            return False
        self._started = self._started or now
        settled = len({*nodes_log.ports, *nodes_log.problems}) >= self._nodes
        if not settled and now - self._started <= self._settings.start_timeout_s:
            return False
        if not nodes_log.ports:
            raise LaunchError(self._silent(nodes_log))
        return True

    def _queued_too_long(self, job: Job) -> str:
        limit_s = f"{self._settings.queue_timeout_s:g}"
        meaning = jobs.waits_for(job.pending)
        return Reason.of("slurm-queued-too-long", job=job.job_id, limit_s=limit_s, pending=job.pending, meaning=meaning)

    def _silent(self, nodes_log: NodesLog) -> str:
        limit_s = f"{self._settings.start_timeout_s:g}"
        problems = [words for _, words in sorted(nodes_log.problems.items())][:3]
        problem = "; ".join(dict.fromkeys(problems)) or nodes_log.step_error or "the nodes' log is empty"
        return Reason.of("slurm-nodes-silent", job=self._job_id, limit_s=limit_s, problem=problem)

    def _tell(self, job: Job, nodes_log: NodesLog) -> None:
        if job.is_up:
            story = f"job {job.job_id} runs on {job.nodes}: {len(nodes_log.ports)} of {self._nodes} nodes are ready"
        else:
            story = f"job {job.job_id} is pending ({job.pending}): {jobs.waits_for(job.pending)}"
        if story != self._story:
            self._story = story
            log.info("%s", printable(story))


def _step_problems(words_by_task: Mapping[int, str]) -> list[str]:
    """One for each thing that went wrong, however many tasks say it."""
    tasks: dict[str, list[int]] = {}
    for task, words in sorted(words_by_task.items()):
        tasks.setdefault(words, []).append(task)
    return [
        Reason.of("slurm-step-failed", node=some_of([f"task {task}" for task in group], 2), problem=words)
        for words, group in list(tasks.items())[:_SHOWN]
    ]
