"""Write the logs of a run's pods, and its events, to files."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.model.errors import SeatrialError
from seatrial.platforms.commands import call_each
from seatrial.platforms.kubernetes.api import Api
from seatrial.platforms.kubernetes.plan import Object
from seatrial.platforms.kubernetes.pod import NODE_ROLE, ROLE
from seatrial.platforms.kubernetes.topology import names
from seatrial.system.rawlog import write_log
from seatrial.text.lines import one_line
from seatrial.text.redact import Secrets

POD_LOGS = "pod-logs"
EVENTS = "events.txt"
_AT_ONCE = 16  # parallel requests, each forwarded to a kubelet
_REQUEST_S = 15.0
_MAX_EVENTS = 10_000  # most events that are kept, the latest ones


@dataclass(frozen=True, slots=True)
class PodLog:
    """One container's log: its file in the log folder, and the title line of the file."""

    file: str
    pod: str
    container: str
    title: str


def write_pod_logs(
    api: Api, pods: Sequence[Object], folder: Path, deadline: float, secrets: Secrets
) -> None:
    """Write the end of every container's log into `folder` until `deadline` (time.monotonic), the
    head first.

    A log that cannot be read gets a file with the reason, so that every pod has its files.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def write(log: PodLog) -> None:
        left_s = deadline - time.monotonic()
        text = b"# not read: time is up\n"
        try:
            if left_s > 0:
                text = api.log_tail(log.pod, log.container, min(left_s, _REQUEST_S))
        except SeatrialError as error:
            # For example, it never ran or its kubelet is silent: worth recording too
            text = f"# no log: {error}\n".encode()
        title = f"# {log.title}\n".encode()
        write_log(folder / log.file, title + text, secrets)

    call_each(pod_logs(pods), write, _AT_ONCE)


def pod_logs(pods: Sequence[Object]) -> list[PodLog]:
    """Return the logs to read: coordinator.log of the head, worker-NAME.log of other nodes, and
    sidecars. Pure.

    The head is the first pod with the role of a node; logs of other pods are named after the pod.
    """
    nodes: list[Object] = []
    others: list[Object] = []  # pods of an operator: the MPI operator's launcher
    for pod in pods:
        role = pod["metadata"]["labels"].get(ROLE)
        kind = nodes if role == NODE_ROLE else others
        kind.append(pod)
    called = [f"worker-{name}" for name in names(nodes)]
    if nodes:
        called[0] = "coordinator"
    logs = []
    for pod, name in zip(nodes, called, strict=True):
        logs += _of_pod(pod, name)
    for pod in others:
        logs += _of_pod(pod, pod["metadata"]["name"])
    return logs


def _of_pod(pod: Object, called: str) -> list[PodLog]:
    """Return the logs of a pod: CALLED.log of its first container, CALLED.CONTAINER.log of
    others.
    """
    spec = pod["spec"]
    status = pod.get("status", {})
    state_of = {}
    for kind in ("containerStatuses", "initContainerStatuses"):
        for each in status.get(kind, ()):
            state_of[each["name"]] = _state(each.get("state", {}))
    phase = status.get("phase", "unknown")
    name = pod["metadata"]["name"]
    where = ", on no node"
    if spec.get("nodeName"):
        where = f" on {spec['nodeName']}"
    address = ""
    if status.get("podIP"):
        address = f" ({status['podIP']})"
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    first, *beside = [each["name"] for each in containers]
    files = {first: f"{called}.log"}
    for container in beside:
        files[container] = f"{called}.{container}.log"
    title = f"pod {name}{where}{address}, container"
    logs = []
    for container, file in files.items():
        state = state_of.get(container, phase)
        logs.append(PodLog(file, name, container, f"{title} {container}: {state}"))
    return logs


def _state(state: Object) -> str:
    """Return the state of a container in words, such as "terminated Error 1"."""
    for kind, details in state.items():
        if details is None:
            continue
        words = [kind]
        for name in ("reason", "exitCode", "message"):
            fact = details.get(name)
            if fact not in (None, ""):
                words.append(one_line(fact))
        return " ".join(words)
    return "state unknown"


def events_text(events: Iterable[Object], name: str) -> str:
    """Return the events of objects whose name contains `name`, one line each, the oldest first.

    The last `_MAX_EVENTS` of them. Pure.
    """
    own = []
    for event in events:
        about = event["involvedObject"].get("name") or ""
        if name in about:
            own.append(event)
    own.sort(key=_time)
    return "".join(map(_event_line, own[-_MAX_EVENTS:]))


def _event_line(event: Object) -> str:
    """Return an event as a line: time, type, reason, object, count and message."""
    involved = event["involvedObject"]
    about = f"{involved.get('kind')}/{involved.get('name')}"
    count = event.get("count") or 1
    often = ""
    if count > 1:
        often = f" (x{count})"
    message = one_line(event.get("message"))
    kind = event.get("type") or "Normal"
    reason = event.get("reason") or ""
    return f"{_time(event)} {kind:<7} {reason:<20} {about}{often}: {message}\n"


def _time(event: Object) -> str:
    """Return when the event was last seen, as the API server formats it; empty if unknown."""
    series: Mapping[str, str] = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    if last:
        return last
    created = event["metadata"].get("creationTimestamp") or ""
    return str(created)
