"""The logs of a run's pods and the events of its objects, as files; the order of its hosts.

Linear in the number of pods and bounded: the end of each log, some at a time, until time is up. Beside its log only the
state of a pod is written, never its environment.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.model.errors import SeatrialError
from seatrial.platforms.commands import call_each
from seatrial.platforms.kubernetes.api import Api
from seatrial.platforms.kubernetes.plan import Object
from seatrial.platforms.kubernetes.pod import NODE, ROLE
from seatrial.system.rawlog import write_log
from seatrial.text.lines import one_line
from seatrial.text.redact import Secrets

POD_LOGS, EVENTS = "pod-logs", "events.txt"
_AT_ONCE = 16  # requests; each is one of the API server's to a kubelet
_REQUEST_S = 15.0
_MAX_EVENTS = 10_000  # the last ones


@dataclass(frozen=True, slots=True)
class PodLog:
    """One container's log: its file, and the title above it."""

    file: str
    pod: str
    container: str
    title: str


def write_pod_logs(api: Api, pods: Sequence[Object], folder: Path, deadline: float, secrets: Secrets) -> None:
    """Write the end of every container's log into `folder`, until `deadline` (of time.monotonic), the head first."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(log: PodLog) -> None:
        text = _read(api, log, deadline)
        write_log(folder / log.file, f"# {log.title}\n".encode() + text, secrets)

    call_each(pod_logs(pods), write, _AT_ONCE)


def _read(api: Api, log: PodLog, deadline: float) -> bytes:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        return b"# not read: time is up\n"
    try:
        return api.log_tail(log.pod, log.container, min(left_s, _REQUEST_S))
    except SeatrialError as error:  # it never ran, its kubelet is silent: a state worth keeping too
        return f"# no log: {error}\n".encode()


def pod_logs(pods: Sequence[Object]) -> list[PodLog]:
    """The logs to read: coordinator.log of the head, worker-NAME.log of the others, and sidecars. Pure."""
    nodes = [pod for pod in pods if pod["metadata"]["labels"].get(ROLE) == NODE]
    others = [pod for pod in pods if pod not in nodes]  # what an operator runs besides: the MPI operator's launcher
    called = [f"worker-{name}" for name in names(nodes)]
    called[:1] = ["coordinator"] if nodes else []
    called += [pod["metadata"]["name"] for pod in others]
    return [log for pod, name in zip((*nodes, *others), called, strict=True) for log in _of_pod(pod, name)]


def _of_pod(pod: Object, called: str) -> list[PodLog]:
    spec, status = pod["spec"], pod.get("status", {})
    states = {
        each["name"]: _state(each.get("state", {}))
        for each in (*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ()))
    }
    name, where = pod["metadata"]["name"], f" on {spec['nodeName']}" if spec.get("nodeName") else ", on no node"
    address = f" ({status['podIP']})" if status.get("podIP") else ""
    first, *beside = [each["name"] for each in (*spec["containers"], *spec.get("initContainers", ()))]
    files = {first: f"{called}.log", **{container: f"{called}.{container}.log" for container in beside}}
    title = f"pod {name}{where}{address}, container"
    return [
        PodLog(file, name, container, f"{title} {container}: {states.get(container, status.get('phase', 'unknown'))}")
        for container, file in files.items()
    ]


def _state(state: Object) -> str:
    for kind, details in state.items():
        if details is not None:
            facts = (details.get("reason"), details.get("exitCode"), details.get("message"))
            return " ".join([kind, *(one_line(word) for word in facts if word not in (None, ""))])
    return "no state is told"


def events_text(events: Iterable[Object], name: str) -> str:
    """The events of objects whose name contains `name`, one line each, the oldest first. Pure."""
    own = [event for event in events if name in (event["involvedObject"].get("name") or "")]
    return "".join(f"{_line(event)}\n" for event in sorted(own, key=_time)[-_MAX_EVENTS:])


def _time(event: Object) -> str:
    series: Mapping[str, str] = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next(filter(None, times), None) or str(event["metadata"].get("creationTimestamp") or "")


def _line(event: Object) -> str:
    about, count = event["involvedObject"], event.get("count") or 1
    often = f" (x{count})" if count > 1 else ""
    message = one_line(event.get("message"))
    kind, reason = event.get("type") or "Normal", event.get("reason") or ""
    return f"{_time(event)} {kind:<7} {reason:<20} {about.get('kind')}/{about.get('name')}{often}: {message}"


# From the widest to the narrowest; clusters that have none of them keep the order of the pods.
LEVELS = (
    "topology.kubernetes.io/zone",
    "cloud.google.com/gce-topology-block",
    "cloud.google.com/gce-topology-subblock",
    "cloud.google.com/gce-topology-host",
    "network.topology.nvidia.com/accelerator",
    "network.topology.nvidia.com/block",
    "kubernetes.io/hostname",
)


def topology_key(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The topology of a node, as a sort key."""
    return tuple(labels.get(level, "") for level in LEVELS)


def ordered(pods: Iterable[Object], labels_by_node: Mapping[str, Mapping[str, str]]) -> list[Object]:
    """The pods in the order of the hostfile, the head first."""
    return sorted(
        pods, key=lambda pod: (topology_key(labels_by_node.get(pod["spec"].get("nodeName", ""), {})), _index(pod))
    )


def names(pods: Sequence[Object]) -> list[str]:
    """The names of nodes as in Kubernetes, as people cordon them; pods that share a node are named as the pod."""
    hosts = [pod["spec"].get("nodeName") for pod in pods]
    shared = None in hosts or len(set(hosts)) < len(hosts)
    return [pod["metadata"]["name"] for pod in pods] if shared else [str(host) for host in hosts]


def address(pod: Object, *, by_name: bool) -> str:
    """The address of a pod for its peers: its IP address, or its name in the cluster's DNS."""
    if not by_name:
        return str(pod["status"]["podIP"])
    host = [pod["spec"].get(part) for part in ("hostname", "subdomain")]
    # The pods of a PyTorchJob have none; each has a Service instead, which is called as the pod.
    own = host if all(host) else [pod["metadata"]["name"]]
    return ".".join((*own, pod["metadata"]["namespace"], "svc"))


_INDEX = "batch.kubernetes.io/job-completion-index"


def _index(pod: Object) -> tuple[bool, int]:
    """The index in a Job, or of a Kubeflow replica: the master, then the workers."""
    labels = pod["metadata"].get("labels", {})
    worker = labels.get("training.kubeflow.org/replica-type") == "worker"
    return worker, int(labels.get(_INDEX) or labels.get("training.kubeflow.org/replica-index") or 0)
