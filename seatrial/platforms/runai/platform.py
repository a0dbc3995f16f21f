"""The RunAI platform: launch, teardown and leftovers of testbeds that are one workload."""

import json
import logging
import re
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, ValidationError

from seatrial.config.run import Run
from seatrial.model.errors import LaunchError, MissingError, SeatrialError
from seatrial.model.reason import Reason, join
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms import Rendered
from seatrial.platforms import state as states
from seatrial.platforms.commands import call_each, environment, run_bounded, start_stream
from seatrial.platforms.runai import RunaiPlatform
from seatrial.platforms.state import NodeAddress, PlatformState, RunsWithState
from seatrial.platforms.testbed import (
    default_folder,
    node_script,
    nodes_of,
    testbed_of,
    write_ports,
)
from seatrial.system.rawlog import write_log
from seatrial.text.lines import one_line
from seatrial.text.printable import printable
from seatrial.text.redact import Secrets

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

log = logging.getLogger("seatrial.launch")

# The schema is unpublished and differs between versions: the first of these names that exists is
# used.
_PHASE = ("actualPhase", "phase", "status")
_MESSAGES = ("message", "reason")
_OVER = frozenset({"Failed", "Stopped", "Stopping", "Completed", "Deleting", "Terminating"})
_GONE_S = 180.0
_GONE_PAUSE_S = 0.5
_ABSENT = ("not found", "notfound", "does not exist")
# Connects standard input and output to a port of the pod.
_TUNNEL = """\
import os, socket, sys, threading
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def up():
    while True:
        data = os.read(0, 65536)
        if not data:
            break
        s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while True:
    data = s.recv(65536)
    if not data:
        break
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
os._exit(0)
"""
_environment = partial(environment, kept=("RUNAI_",))  # without secrets, except for runai's login
_PAUSE_S = (0.2, 5.0)  # pause between polls: at first, and at most
AT_ONCE = 16
NODE_LOG = "/tmp/seatrial-node.log"
# The keys come by standard input, which the shell reads first, so no file or command line has them.
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
    r"seatrial-node: ready (\d{1,5})\naddress: ([0-9a-f.:]{2,45})[^\n]*\nuser: "
    r"([a-z_][a-z0-9_-]{0,31})\n?"
)
_KIND = "runai"
_LOG_BYTES = 1024**2  # most bytes of each node's log


class DescribedWorkload(BaseModel):
    """The state of a workload in RunAI: its `phase`, and `messages` that explain it, newest
    last.
    """

    phase: str = Field("Unknown", max_length=100)
    messages: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        return "; ".join((self.phase, *self.messages))


def workload_name(run_id: str) -> str:
    """Return the name of a run's workload."""
    return f"seatrial-{run_id}".lower()


def pod_names(settings: RunaiPlatform, run_id: str, node_count: int) -> list[str]:
    """Return the pods of the nodes, in hostfile order: without MPI's launcher pod, but with
    PyTorch's master.
    """
    name = workload_name(run_id)
    if settings.framework == "mpi":
        return [f"{name}-worker-{i}" for i in range(node_count)]
    return [f"{name}-master-0", *(f"{name}-worker-{i}" for i in range(node_count - 1))]


def submit_argv(run: Run, settings: RunaiPlatform) -> list[str]:
    """Return the command that submits a workload, which holds the nodes until it is deleted or its
    time is over.
    """
    cluster = run.cluster
    mpi = settings.framework == "mpi"
    workers = cluster.nodes if mpi else cluster.nodes - 1
    options = [
        f"--project={settings.project}",
        f"--image={run.nodes_image}",
        f"--workers={workers}",
        *([f"--gpu-devices-request={cluster.gpus}"] if cluster.gpus else []),
        *([f"--slots-per-worker={cluster.slots}"] if mpi else []),
        *([f"--node-pools={settings.node_pool}"] if settings.node_pool else []),
        *(["--large-shm"] if settings.large_shm else []),
        *(f"--capability={name}" for name in settings.capabilities),
        *(
            f"--extended-resource={name}={count}"
            for name, count in sorted(settings.extended_resources.items())
        ),
        *settings.args,
    ]
    submit = [
        "runai",
        "training",
        settings.framework,
        "submit",
        workload_name(run.run_id),
        *options,
    ]
    return [*submit, "--command", "--", "sleep", str(settings.deadline_s)]


def read_workload(text: str) -> DescribedWorkload:
    """Parse the output of `describe --output json`; phase Unknown for any other text."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return DescribedWorkload(phase="Unknown", messages=("runai describe printed no JSON",))
    phases = [value for key in _PHASE for value in _values(document, key)]
    messages = dict.fromkeys(
        printable(value)[:300] for key in _MESSAGES for value in _values(document, key) if value
    )
    try:
        return DescribedWorkload(
            phase=phases[0] if phases else "Unknown", messages=tuple(messages)[-3:]
        )
    except ValidationError:
        return DescribedWorkload(phase="Unknown")


def _values(document: Any, key: str, depth: int = 0) -> Iterator[str]:
    """Yield the strings under that key, parents before their children."""
    if depth > 8:
        return
    if isinstance(document, dict):
        if isinstance(value := document.get(key), str):
            yield value
        children: list[Any] = list(document.values())
    else:
        children = document if isinstance(document, list) else []
    for child in children:
        yield from _values(child, key, depth + 1)


def ending(run_id: str, workload: DescribedWorkload | None) -> Reason | None:
    """Explain the end of a workload; None while its nodes should be up."""
    name = workload_name(run_id)
    if workload is None:
        return Reason.of("runai-workload-ended", workload=name, how="was deleted")
    if workload.phase in _OVER:
        return Reason.of("runai-workload-ended", workload=name, how=f"ended: {workload.shown}")
    return None


class CommandError(LaunchError):
    """A command failed and printed `message`."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.of("runai-command-failed", problem=message))
        # Whether the workload does not exist
        self.is_absent = any(text in message.lower() for text in _ABSENT)


class Client:
    """Runs commands of `runai` in one project."""

    def __init__(self, settings: RunaiPlatform) -> None:
        self._settings = settings

    def _argv(self, verb: str, run_id: str, *options: str) -> list[str]:
        """Return a command line for the workload of a run."""
        named = ["runai", "training", self._settings.framework, verb, workload_name(run_id)]
        return [*named, f"--project={self._settings.project}", *options]

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> str:
        """Run a command and return its output.

        Raises MissingError if `runai` is missing, CommandError if it fails, LaunchError if it does
        not end in time.
        """
        try:
            status, output, errors = run_bounded(argv, _environment(), timeout_s, stdin=stdin)
        except FileNotFoundError:
            raise MissingError.of("runai-command-missing") from None
        except OSError as error:
            raise CommandError(error.strerror or str(error)) from error
        except subprocess.TimeoutExpired:
            raise LaunchError.of(
                "runai-command-failed", problem=f"it did not end within {timeout_s:g} s"
            ) from None
        if status:
            raise CommandError(printable(one_line(errors) or one_line(output[-1000:]))[:1000])
        return output

    def describe(self, run_id: str) -> DescribedWorkload | None:
        """Return the run's workload; None if RunAI has none."""
        try:
            return read_workload(self.run(self._argv("describe", run_id, "--output=json")))
        except CommandError as error:
            if error.is_absent:
                return None
            raise

    def delete(self, run_id: str) -> None:
        """Delete the workload and wait until its pods are gone. Raises LaunchError if they stay."""
        try:
            self.run(self._argv("delete", run_id), timeout_s=120)
        except CommandError as error:
            if not error.is_absent:
                raise
        deadline = time.monotonic() + _GONE_S
        while self.describe(run_id) is not None:  # listed as Deleting until its pods are gone
            if time.monotonic() > deadline:
                raise LaunchError.of(
                    "runai-workload-remains",
                    workload=workload_name(run_id),
                    limit_s=f"{_GONE_S:g}",
                )
            time.sleep(_GONE_PAUSE_S)

    def in_pod(
        self, run_id: str, pod: str, script: str, *, stdin: bytes = b"", timeout_s: float
    ) -> str:
        """Run a line of shell in a pod and return its output."""
        # The workload counts as running as soon as its first pod does
        wait = f"--pod-running-timeout={int(timeout_s)}s"
        options = (f"--pod={pod}", "--stdin", wait, "--", "sh", "-c", script)
        return self.run(self._argv("exec", run_id, *options), stdin=stdin, timeout_s=timeout_s)

    def dial(self, run_id: str, pod: str, port: int, timeout_s: float) -> socket.socket:
        """Return a stream to a port of the pod, by `runai exec`: a port forward would be open to
        other local users.
        """
        program = (self._settings.python, "-c", _TUNNEL, str(port))
        argv = self._argv("exec", run_id, f"--pod={pod}", "--stdin", "--", *program)
        try:
            stream, _ = start_stream(argv, _environment())
        except OSError as error:
            raise MissingError.of("runai-command-missing") from error
        stream.settimeout(timeout_s)
        return stream


class PodAddress(NodeAddress):
    """Address, port and user of a pod's sshd."""

    user: str = Field(max_length=32)


class RunaiState(PlatformState):
    """The pods, in the order of the hostfile."""

    nodes: tuple[PodAddress, ...] = Field(min_length=1, max_length=10_000)


class Runai(RunsWithState[RunaiState]):
    """Nodes as the pods of one workload."""

    kind = _KIND
    state_type = RunaiState
    leaves = "the workload and the keys of a run whose process is gone"

    def __init__(self, cluster: "Cluster") -> None:
        assert isinstance(cluster.platform, RunaiPlatform)
        self._cluster = cluster
        self._settings = cluster.platform
        self._client = Client(cluster.platform)

    def render(self, run: Run) -> Rendered:
        names = pod_names(self._settings, run.run_id, run.cluster.nodes)
        port = run.cluster.ssh_port
        nodes = tuple(PodAddress(name=name, address=name, port=port, user="root") for name in names)
        testbed = self._testbed(run.run_id, RunaiState(host_key="", nodes=nodes))
        return Rendered({"submit.sh": shlex.join(submit_argv(run, self._settings)) + "\n"}, testbed)

    def launch(self, run: Run) -> Testbed:
        folder, run_key, host_key = states.begin(run, _KIND)
        self._client.run(submit_argv(run, self._settings), timeout_s=120)
        self._wait(run.run_id)
        program = node_script(run.run_id, run.cluster.ssh_port, run_key, host_key).encode()
        pods = pod_names(self._settings, run.run_id, run.cluster.nodes)
        answers = call_each(pods, lambda pod: self._started(run.run_id, pod, program), AT_ONCE)
        if problems := [answer for answer in answers if isinstance(answer, Reason)]:
            raise LaunchError(join(problems))
        nodes = tuple(answer for answer in answers if isinstance(answer, PodAddress))
        state = RunaiState(host_key=host_key.public, nodes=nodes)
        testbed = self._testbed(run.run_id, state)
        state.save(folder, testbed)
        write_ports(testbed, run.cluster.ssh_port)
        return testbed

    def _wait(self, run_id: str) -> None:
        """Wait until the workload runs.

        Raises LaunchError where it ends, is deleted, or waits too long.
        """
        deadline = time.monotonic() + self._settings.queue_timeout_s
        pause_s = _PAUSE_S[0]
        name = workload_name(run_id)
        logged = ""
        while True:
            workload = self._client.describe(run_id)
            if why := ending(run_id, workload):
                raise LaunchError(why)
            assert workload is not None
            if workload.phase == "Running":
                return
            if workload.shown != logged:
                logged = workload.shown
                log.info("%s: %s", name, logged)
            if time.monotonic() > deadline:
                raise LaunchError.of(
                    "runai-queued-too-long",
                    workload=name,
                    limit_s=f"{self._settings.queue_timeout_s:g}",
                    phase=workload.shown,
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.3, _PAUSE_S[1])

    def _started(self, run_id: str, pod: str, program: bytes) -> PodAddress | Reason:
        """Start sshd in a pod; its address, or why it failed."""
        limit_s = self._settings.start_timeout_s
        try:
            text = self._client.in_pod(run_id, pod, _START, stdin=program, timeout_s=limit_s)
        except SeatrialError as error:
            return Reason.of("runai-node-failed", pod=pod, problem=error.reason)
        match = _READY.fullmatch(text)
        if match and 0 < int(match[1]) < 65536:
            return PodAddress(name=pod, address=match[2], port=int(match[1]), user=match[3])
        return Reason.of(
            "runai-node-failed",
            pod=pod,
            problem=printable(one_line(text))[:500] or "no answer",
        )

    def _is_up(self, run_id: str) -> bool:
        return ending(run_id, self._client.describe(run_id)) is None

    def _testbed(self, run_id: str, state: RunaiState) -> Testbed:
        def dial(node: Node, timeout_s: float) -> socket.socket:
            return self._client.dial(run_id, node.name, node.port, timeout_s)

        return testbed_of(
            self._cluster,
            run_id,
            nodes_of(self._cluster, state),
            user=state.nodes[0].user,
            key_file=self._folder(run_id) / states.KEY_FILE,
            dial=dial,
            workdir=f"{default_folder(run_id)}/work",
            python=self._settings.python,
            blameless_reason=lambda _: self._why_gone(run_id),
        )

    def _why_gone(self, run_id: str) -> Reason | None:
        """Explain silent nodes by the end of their workload; None if it has not ended."""
        try:
            return ending(run_id, self._client.describe(run_id))
        except SeatrialError:
            return None

    def collect(self, run_id: str, folder: Path, timeout_s: float, secrets: Secrets) -> None:
        if not self._folder(run_id).exists():
            return  # nothing was submitted

        def node_log(pod: str) -> str:
            try:
                return self._client.in_pod(
                    run_id, pod, f"tail -c {_LOG_BYTES} {NODE_LOG}", timeout_s=timeout_s
                )
            except SeatrialError as error:
                return f"{error.reason}\n"

        pods = pod_names(self._settings, run_id, self._cluster.nodes)
        for pod, text in zip(pods, call_each(pods, node_log, AT_ONCE), strict=True):
            write_log(folder / "nodes" / f"{pod}.log", text, secrets)

    def teardown(self, run_id: str) -> None:
        folder = self._folder(run_id)
        if not folder.exists() and self._client.describe(run_id) is None:
            return
        self._client.delete(run_id)
        states.remove_folder(folder)

    def missing(self) -> list[Reason]:
        """Check the command, its login and the project."""
        try:
            self._client.run(
                ["runai", "training", "list", f"--project={self._settings.project}", "--json"]
            )
        except SeatrialError as error:
            return [error.reason]
        return []


platform = Runai
