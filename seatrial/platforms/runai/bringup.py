"""Follow a workload from the queue until every node's sshd answers."""

import logging
import re
import time

from pydantic import Field

from seatrial.config.run import Run
from seatrial.model.errors import LaunchError, SeatrialError
from seatrial.model.reason import Reason, join
from seatrial.platforms.commands import call_each
from seatrial.platforms.runai.client import Client
from seatrial.platforms.runai.config import RunaiPlatform
from seatrial.platforms.runai.workload import DescribedWorkload, ending, workload_name
from seatrial.platforms.state import NodeAddress
from seatrial.text.printable import printable

log = logging.getLogger("seatrial.launch")

_PAUSE_S = (0.2, 5.0)  # between two looks: at first, and at most
AT_ONCE = 16
NODE_LOG = "/tmp/seatrial-node.log"
# The keys come by standard input, which the shell reads before anything else; no file and no command line has them.
_START = f"""\
umask 077
program=$(cat)
printf '%s\\n' "$program" | setsid sh -s >{NODE_LOG} 2>&1 &
until grep -q '^seatrial-node: ' {NODE_LOG}; do kill -0 $! || break; sleep 0.1; done
grep -m 1 '^seatrial-node: ' {NODE_LOG} || tail -n 3 {NODE_LOG}
echo "address: $(hostname -i)"
echo "user: $(id -un)"
"""
_READY = re.compile(
    r"seatrial-node: ready (\d{1,5})\naddress: ([0-9a-f.:]{2,45})[^\n]*\nuser: ([a-z_][a-z0-9_-]{0,31})\n?"
)


class PodAddress(NodeAddress):
    """Where the sshd of a pod answers, and for which user."""

    user: str = Field(max_length=32)


class BringUp:
    """One run's workload on its way up."""

    def __init__(self, client: Client, settings: RunaiPlatform, run: Run) -> None:
        self._client, self._settings, self._run = client, settings, run
        self._shown = ""

    def wait(self) -> None:
        """Until the workload runs. Raises LaunchError where it ends, is deleted, or waits too long."""
        deadline, pause_s = time.monotonic() + self._settings.queue_timeout_s, _PAUSE_S[0]
        while True:
            workload = self._client.describe(self._run.run_id)
            if why := ending(self._run.run_id, workload):
                raise LaunchError(why)
            assert workload is not None
            if workload.is_running:
                return
            self._tell(workload)
            if time.monotonic() > deadline:
                raise LaunchError(self._queued_too_long(workload))
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.3, _PAUSE_S[1])

    def start(self, pods: list[str], program: str) -> list[PodAddress]:
        """Start sshd in every pod; the nodes that answer, in that order. Raises LaunchError where not all do."""
        answers = call_each(pods, lambda pod: self._started(pod, program.encode()), AT_ONCE)
        problems = [answer for answer in answers if isinstance(answer, str)]
        if problems:
            raise LaunchError(join(problems))
        return [answer for answer in answers if isinstance(answer, PodAddress)]

    def _started(self, pod: str, program: bytes) -> PodAddress | str:
        """Where it answers, or why it does not."""
        limit_s = self._settings.start_timeout_s
        try:
            text = self._client.in_pod(self._run.run_id, pod, _START, stdin=program, timeout_s=limit_s)
        except SeatrialError as error:
            return Reason.of("runai-node-failed", pod=pod, problem=error.reason)
        match = _READY.fullmatch(text)
        if match and 0 < int(match[1]) < 65536:
            return PodAddress(name=pod, address=match[2], port=int(match[1]), user=match[3])
        return Reason.of("runai-node-failed", pod=pod, problem=printable(" ".join(text.split()))[:500] or "no answer")

    def _tell(self, workload: DescribedWorkload) -> None:
        if workload.shown != self._shown:
            self._shown = workload.shown
            log.info("%s: %s", workload_name(self._run.run_id), workload.shown)

    def _queued_too_long(self, workload: DescribedWorkload) -> str:
        limit_s = f"{self._settings.queue_timeout_s:g}"
        name = workload_name(self._run.run_id)
        return Reason.of("runai-queued-too-long", workload=name, limit_s=limit_s, phase=workload.shown)
