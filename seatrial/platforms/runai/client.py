"""The workload of a run, and the command `runai` of this machine, with bounds on its time and output."""

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from seatrial.config.image import Prebuilt
from seatrial.config.run import Run
from seatrial.model.errors import LaunchError, MissingError
from seatrial.model.reason import Reason
from seatrial.platforms.commands import environment, run_bounded
from seatrial.platforms.runai.config import RunaiPlatform
from seatrial.text.printable import printable

# The schema is not published, and differs between versions: the first of these names that is there counts.
_PHASE = ("actualPhase", "phase", "status")
_MESSAGES = ("message", "reason")
_RUNNING = "Running"
_OVER = frozenset({"Failed", "Stopped", "Stopping", "Completed", "Deleting", "Terminating"})
_DEPTH, _MESSAGES_SHOWN = 8, 3


class DescribedWorkload(BaseModel):
    """The state of a workload in RunAI: its `phase`, and `messages` that explain it, newest last."""

    phase: str = Field("Unknown", max_length=100)
    messages: tuple[str, ...] = ()

    @property
    def is_running(self) -> bool:
        return self.phase == _RUNNING

    @property
    def is_over(self) -> bool:
        return self.phase in _OVER

    @property
    def shown(self) -> str:
        return "; ".join((self.phase, *self.messages))


def workload_name(run_id: str) -> str:
    """The name of a run's workload."""
    return f"seatrial-{run_id}".lower()


def pod_names(settings: RunaiPlatform, run_id: str, node_count: int) -> list[str]:
    """The pods that are nodes, in the order of the hostfile: without MPI's launcher, with PyTorch's master."""
    name = workload_name(run_id)
    if settings.framework == "mpi":
        return [f"{name}-worker-{i}" for i in range(node_count)]
    return [f"{name}-master-0", *(f"{name}-worker-{i}" for i in range(node_count - 1))]


def submit_argv(run: Run, settings: RunaiPlatform) -> list[str]:
    """The submit of a workload that holds the nodes until it is deleted or its time is over."""
    cluster, mpi = run.cluster, settings.framework == "mpi"
    workers = cluster.nodes if mpi else cluster.nodes - 1
    options = [
        f"--project={settings.project}",
        f"--image={_image(run)}",
        f"--workers={workers}",
        *([f"--gpu-devices-request={cluster.gpus}"] if cluster.gpus else []),
        *([f"--slots-per-worker={cluster.slots}"] if mpi else []),
        *([f"--node-pools={settings.node_pool}"] if settings.node_pool else []),
        *(["--large-shm"] if settings.large_shm else []),
        *(f"--capability={name}" for name in settings.capabilities),
        *(f"--extended-resource={name}={count}" for name, count in sorted(settings.extended_resources.items())),
        *settings.args,
    ]
    submit = ["runai", "training", settings.framework, "submit", workload_name(run.run_id), *options]
    return [*submit, "--command", "--", "sleep", str(settings.deadline_s)]


def _image(run: Run) -> str:
    """The image that was built, else the reference in the cluster file."""
    image = run.cluster.image
    return run.image or (image.reference if isinstance(image, Prebuilt) else "<built for each run>")


def command_argv(settings: RunaiPlatform, verb: str, run_id: str, *options: str) -> list[str]:
    """Another command about the workload of a run."""
    named = ["runai", "training", settings.framework, verb, workload_name(run_id)]
    return [*named, f"--project={settings.project}", *options]


def exec_argv(settings: RunaiPlatform, run_id: str, pod: str, command: list[str], *options: str) -> list[str]:
    """A command in a pod, with this process's standard input and output."""
    return command_argv(settings, "exec", run_id, f"--pod={pod}", "--stdin", *options, "--", *command)


def read_workload(text: str) -> DescribedWorkload:
    """Parse the output of `describe --output json`; phase Unknown for any other text."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return DescribedWorkload(phase="Unknown", messages=("runai describe printed no JSON",))
    phases = [value for key in _PHASE for value in _values(document, key)]
    messages = dict.fromkeys(printable(value)[:300] for key in _MESSAGES for value in _values(document, key) if value)
    try:
        return DescribedWorkload(phase=phases[0] if phases else "Unknown", messages=tuple(messages)[-_MESSAGES_SHOWN:])
    except ValidationError:
        return DescribedWorkload(phase="Unknown")


def _values(document: Any, key: str, depth: int = 0) -> Iterator[str]:
    """The texts under that key, those that are nearest to the top of each branch first."""
    if depth > _DEPTH:
        return
    if isinstance(document, dict):
        if isinstance(value := document.get(key), str):
            yield value
        children: list[Any] = list(document.values())
    else:
        children = document if isinstance(document, list) else []
    for child in children:
        yield from _values(child, key, depth + 1)


def ending(run_id: str, workload: DescribedWorkload | None) -> str | None:
    """Why the nodes of a run are gone; None while they should be up."""
    name = workload_name(run_id)
    if workload is None:
        return Reason.of("runai-workload-ended", workload=name, how="was deleted")
    return (
        Reason.of("runai-workload-ended", workload=name, how=f"ended: {workload.shown}") if workload.is_over else None
    )


_GONE_S, _PAUSE_S = 180.0, 0.5
_ABSENT = ("not found", "notfound", "does not exist")

# Joins standard input and output with a port of the pod.
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


class CommandError(LaunchError):
    """A command ended with an error; `message` is what it printed."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.of("runai-command-failed", problem=message))
        self.message = message


class Client:
    """The commands for one project."""

    def __init__(self, settings: RunaiPlatform) -> None:
        self._settings = settings

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> str:
        """Run a command and return its output.

        Raises MissingError where `runai` is not there, CommandError where it fails, LaunchError where it does not end.
        """
        try:
            status, output, errors = run_bounded(argv, _environment(), timeout_s, stdin=stdin)
        except FileNotFoundError:
            raise MissingError(Reason.of("runai-command-missing")) from None
        except OSError as error:
            raise CommandError(error.strerror or str(error)) from error
        except subprocess.TimeoutExpired:
            raise LaunchError(Reason.of("runai-command-timeout", timeout_s=f"{timeout_s:g}")) from None
        if status:
            raise CommandError(_one_line(errors) or _one_line(output[-1000:]))
        return output

    def describe(self, run_id: str) -> DescribedWorkload | None:
        """The run's workload; None if RunAI has none."""
        argv = command_argv(self._settings, "describe", run_id, "--output=json")
        try:
            return read_workload(self.run(argv))
        except CommandError as error:
            if is_absent(error):
                return None
            raise

    def delete(self, run_id: str) -> None:
        """Delete the workload, if there is one, and wait until its pods are gone. Raises LaunchError if they stay."""
        try:
            self.run(command_argv(self._settings, "delete", run_id), timeout_s=120)
        except CommandError as error:
            if not is_absent(error):
                raise
        deadline = time.monotonic() + _GONE_S
        while self.describe(run_id) is not None:  # its phase is Deleting
            if time.monotonic() > deadline:
                raise LaunchError(
                    Reason.of("runai-workload-remains", workload=workload_name(run_id), limit_s=f"{_GONE_S:g}")
                )
            time.sleep(_PAUSE_S)

    def in_pod(self, run_id: str, pod: str, script: str, *, stdin: bytes = b"", timeout_s: float) -> str:
        """Run a line for the shell in a pod and return its output."""
        wait = f"--pod-running-timeout={int(timeout_s)}s"  # a workload runs when its first pod does
        argv = exec_argv(self._settings, run_id, pod, ["sh", "-c", script], wait)
        return self.run(argv, stdin=stdin, timeout_s=timeout_s)

    def dial(self, run_id: str, pod: str, port: int, timeout_s: float) -> socket.socket:
        """A stream to a port of the pod, by `runai exec`: port-forward would open it to other users of this machine."""
        argv = exec_argv(self._settings, run_id, pod, [self._settings.python, "-c", _TUNNEL, str(port)])
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                tunnel = subprocess.Popen(
                    argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL, env=_environment()
                )
            except OSError as error:
                ours.close()
                raise MissingError(Reason.of("runai-command-missing")) from error
        threading.Thread(target=tunnel.wait, name=f"tunnel to {pod}", daemon=True).start()
        ours.settimeout(timeout_s)
        return ours


def _one_line(text: str) -> str:
    """The text on one line, printable and bounded."""
    return printable(" ".join(text.split()))[:1000]


def is_absent(error: CommandError) -> bool:
    return any(text in error.message.lower() for text in _ABSENT)


def _environment() -> dict[str, str]:
    """Of `runai`: without secrets, but for its own login."""
    return environment(kept=("RUNAI_",))
