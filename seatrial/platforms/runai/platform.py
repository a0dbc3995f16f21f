"""The RunAI platform: launch, teardown and leftovers of testbeds that are one workload."""

import logging
import re
import shlex
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from seatrial.config.run import Run
from seatrial.model.errors import InputError, LaunchError, SeatrialError
from seatrial.model.reason import Reason, join
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms import Leftover, Rendered
from seatrial.platforms import state as states
from seatrial.platforms.commands import call_each
from seatrial.platforms.runai.client import Client, DescribedWorkload, ending, pod_names, submit_argv, workload_name
from seatrial.platforms.runai.config import RunaiPlatform
from seatrial.platforms.sshd import default_folder, node_script, write_ports
from seatrial.platforms.state import NodeAddress, PlatformState
from seatrial.platforms.testbed import node_of, testbed_of
from seatrial.system.rawlog import write_log
from seatrial.text.printable import printable
from seatrial.text.redact import Secrets

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

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
    """A workload until its nodes answer."""

    def __init__(self, client: Client, settings: RunaiPlatform, run: Run) -> None:
        self._client, self._settings, self._run = client, settings, run
        self._logged = ""

    def wait(self) -> None:
        """Wait until the workload runs. Raises LaunchError where it ends, is deleted, or waits too long."""
        deadline, pause_s = time.monotonic() + self._settings.queue_timeout_s, _PAUSE_S[0]
        while True:
            workload = self._client.describe(self._run.run_id)
            if why := ending(self._run.run_id, workload):
                raise LaunchError(why)
            assert workload is not None
            if workload.is_running:
                return
            self._log_progress(workload)
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
        """Start sshd in a pod; its address, or why it failed."""
        limit_s = self._settings.start_timeout_s
        try:
            text = self._client.in_pod(self._run.run_id, pod, _START, stdin=program, timeout_s=limit_s)
        except SeatrialError as error:
            return Reason.of("runai-node-failed", pod=pod, problem=error.reason)
        match = _READY.fullmatch(text)
        if match and 0 < int(match[1]) < 65536:
            return PodAddress(name=pod, address=match[2], port=int(match[1]), user=match[3])
        return Reason.of("runai-node-failed", pod=pod, problem=printable(" ".join(text.split()))[:500] or "no answer")

    def _log_progress(self, workload: DescribedWorkload) -> None:
        if workload.shown != self._logged:
            self._logged = workload.shown
            log.info("%s: %s", workload_name(self._run.run_id), workload.shown)

    def _queued_too_long(self, workload: DescribedWorkload) -> str:
        limit_s = f"{self._settings.queue_timeout_s:g}"
        name = workload_name(self._run.run_id)
        return Reason.of("runai-queued-too-long", workload=name, limit_s=limit_s, phase=workload.shown)


_KIND = "runai"
_LOG_BYTES = 1024**2  # of each node


class RunaiState(PlatformState):
    """The pods, in the order of the hostfile."""

    nodes: tuple[PodAddress, ...] = Field(min_length=1, max_length=10_000)


class Runai:
    """Nodes as the pods of one workload."""

    def __init__(self, cluster: "Cluster", settings: RunaiPlatform) -> None:
        self._cluster, self._settings = cluster, settings
        self._client = Client(settings)

    def render(self, run: Run) -> Rendered:
        return Rendered({"submit.sh": shlex.join(submit_argv(run, self._settings)) + "\n"})

    def launch(self, run: Run) -> Testbed:
        folder, run_key, host_key = states.begin(run, _KIND)
        self._client.run(submit_argv(run, self._settings), timeout_s=120)
        bring_up = BringUp(self._client, self._settings, run)
        bring_up.wait()
        program = node_script(run.run_id, run.cluster.ssh_port, run_key, host_key)
        nodes = bring_up.start(pod_names(self._settings, run.run_id, run.cluster.nodes), program)
        state = RunaiState(host_key=host_key.public, nodes=tuple(nodes))
        testbed = self._testbed(run.run_id, state)
        state.save(folder, testbed)
        write_ports(testbed, run.cluster.ssh_port)
        return testbed

    def attach(self, run_id: str) -> Testbed:
        folder = states.run_folder(run_id, _KIND)
        if not folder.exists() or ending(run_id, self._client.describe(run_id)):
            raise InputError(f"run {run_id}: is over")
        return self._testbed(run_id, RunaiState.load(folder))

    def _testbed(self, run_id: str, state: RunaiState) -> Testbed:
        pods = {node.name for node in state.nodes}

        def dial(node: Node, timeout_s: float) -> socket.socket:
            if node.name not in pods:
                raise OSError(f"{node.name} is no pod of the run")
            return self._client.dial(run_id, node.name, node.port, timeout_s)

        return testbed_of(
            self._cluster,
            run_id,
            [node_of(self._cluster, at.name, at.address, state.host_key, at.port) for at in state.nodes],
            user=state.nodes[0].user,
            key_file=states.run_folder(run_id, _KIND) / states.KEY_FILE,
            dial=dial,
            workdir=f"{default_folder(run_id)}/work",
            python=self._settings.python,
            network=None,
            blameless_reason=lambda _: self._why_gone(run_id),
        )

    def _why_gone(self, run_id: str) -> str | None:
        """Why nodes that went silent are not to blame: their workload has ended."""
        try:
            return ending(run_id, self._client.describe(run_id))
        except SeatrialError:
            return None

    def collect(self, run_id: str, folder: Path, timeout_s: float, secrets: Secrets) -> None:
        if not states.run_folder(run_id, _KIND).exists():
            return  # nothing was submitted
        pods = pod_names(self._settings, run_id, self._cluster.nodes)
        logs = call_each(pods, lambda pod: self._node_log(run_id, pod, timeout_s), AT_ONCE)
        for pod, text in zip(pods, logs, strict=True):
            write_log(folder / "nodes" / f"{pod}.log", text, secrets)

    def _node_log(self, run_id: str, pod: str, timeout_s: float) -> str:
        try:
            return self._client.in_pod(run_id, pod, f"tail -c {_LOG_BYTES} {NODE_LOG}", timeout_s=timeout_s)
        except SeatrialError as error:
            return f"{error.reason}\n"

    def keep(self, run_id: str, seconds: float) -> bool:
        folder = states.run_folder(run_id, _KIND)
        if not folder.exists() or ending(run_id, self._client.describe(run_id)):
            return False
        states.keep(folder, seconds)
        return True

    def teardown(self, run_id: str) -> None:
        folder = states.run_folder(run_id, _KIND)
        if not folder.exists() and self._client.describe(run_id) is None:
            return
        self._client.delete(run_id)
        states.remove_folder(folder)

    def leftovers(self) -> list[Leftover]:
        return states.leftovers(_KIND, "the workload and the keys of a run whose process is gone")

    def missing(self) -> list[str]:
        """What keeps a run from starting: the command, its login, the project."""
        try:
            self._client.run(["runai", "training", "list", f"--project={self._settings.project}", "--json"])
        except SeatrialError as error:
            return [error.reason]
        return []


def platform(cluster: "Cluster") -> Runai:
    """The platform that the cluster file describes."""
    assert isinstance(cluster.platform, RunaiPlatform)
    return Runai(cluster, cluster.platform)
