"""What stands between a cluster file and a run on its Kubernetes cluster, each with the next step."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.checks.suites import load_suite
from seatrial.config.run import Run
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import Reason, join, placed
from seatrial.platforms.kubernetes.api import NODE, Api
from seatrial.platforms.kubernetes.conditions import conditions, holding
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.devices import limits, not_requested
from seatrial.platforms.kubernetes.launchers import launcher_for
from seatrial.platforms.kubernetes.machines import machine
from seatrial.platforms.kubernetes.objects import KEY_FILES, objects
from seatrial.platforms.kubernetes.plan import Object, plan
from seatrial.platforms.kubernetes.pod import node_selector, tolerations
from seatrial.platforms.kubernetes.prerequisites import prerequisites
from seatrial.platforms.kubernetes.queue import LOCAL_QUEUE
from seatrial.platforms.kubernetes.rights import Permission, rights
from seatrial.text.words import some_of

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster


def problems(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> list[str]:
    """Everything that would keep a run from starting; empty when nothing would."""
    launcher = launcher_for(settings.launcher)
    try:
        api.version()
    except SeatrialError as error:
        return [error.reason]
    problems_list = list(
        _forbidden(api, rights(launcher, bool(settings.queue), machine(settings.machine)), settings.namespace)
    )
    try:
        api.knows(launcher.kind)
    except SeatrialError as error:
        problems_list.append(error.reason)
    if settings.queue:
        problems_list += _queue(api, settings)
    problems_list += prerequisites(api, cluster, settings)
    if not problems_list:
        problems_list += _refused(api, cluster)
    with suppress(SeatrialError):  # told above, where it is a right that is missing
        nodes = api.list(NODE)
        problems_list += nodes_that_fit(nodes, cluster, settings)
        meant = [node for node in nodes if _is_meant(node, node_selector(cluster, settings), settings)]
        if missing := not_requested(meant, cluster, settings):
            problems_list.append(missing)
    return problems_list


def _forbidden(api: Api, needed: list[Permission], namespace: str) -> Iterator[str]:
    for right in needed:
        if right.optional:  # a run does without
            continue
        denied = [verb for verb in right.verbs if not api.may(verb, right)]
        if denied:
            resource = f"{right.resource}.{right.group}" if right.group else right.resource
            where = "cluster-wide" if right.cluster_wide else f"in namespace {namespace}"
            step = "ask for deployments/kubernetes/role.yaml"
            yield Reason.of(
                "right-missing", denied=", ".join(denied), resource=resource, where=where, cause=right.why, step=step
            )


def _refused(api: Api, cluster: "Cluster") -> list[str]:
    """What the API server, its policies and webhooks have against what would be submitted; nothing is kept."""
    run = Run("doctor", cluster, load_suite("quick"), Path())
    for manifest in objects(plan(run), dict.fromkeys(KEY_FILES, "made for each run")):
        if manifest["kind"] == "TrainJob":  # its webhook wants the runtime, which no dry run keeps
            continue
        try:
            api.create(manifest, dry_run=True)
        except SeatrialError as error:
            return [] if "does not support dry run" in str(error) else [error.reason]  # some webhooks cannot
    return []


def _queue(api: Api, settings: KubernetesPlatform) -> list[str]:
    try:
        queues = {queue["metadata"]["name"]: queue for queue in api.list(LOCAL_QUEUE)}
    except SeatrialError as error:
        return [error.reason]
    queue = queues.get(str(settings.queue))
    if queue is None:
        there = f"there are: {', '.join(sorted(queues))}" if queues else "there is none"
        return [Reason.of("queue-not-found", queue=settings.queue, namespace=settings.namespace, there=there)]
    active = conditions(queue).get("Active")
    if active is None:
        return [Reason.of("queue-not-looked-at", what=f"queue {settings.queue}")]
    if active["status"] != "True":
        return [
            Reason.of(
                "queue-inactive", queue=settings.queue, reason=active.get("reason"), message=active.get("message")
            )
        ]
    return []


def nodes_that_fit(nodes: list[Object], cluster: "Cluster", settings: KubernetesPlatform) -> list[str]:
    """Whether enough nodes can take a pod; those that nearly can are named with what they lack. Pure."""
    labels = node_selector(cluster, settings)
    chosen = [node for node in nodes if _is_meant(node, labels, settings)]
    lack_by_node = {node["metadata"]["name"]: lack for node in chosen if (lack := _lack(node, cluster, settings))}
    fit = len(chosen) - len(lack_by_node)
    if fit >= cluster.nodes:
        return []
    selector = ", ".join(f"{key}={value}" for key, value in labels.items())
    meant = f"{len(chosen)} of {len(nodes)} nodes are meant" + (f" ({selector})" if selector else "")
    few = Reason.of("too-few-fitting-nodes", nodes=cluster.nodes, fit=fit, meant=meant)
    return [join([few, *_lacks_by_nodes(lack_by_node)])]


def _lacks_by_nodes(lack_by_node: Mapping[str, str]) -> list[str]:
    """What is lacking where, the same said once; nodes that are nowhere near it come last."""
    by_lack: dict[str, list[str]] = {}
    for name, lack in lack_by_node.items():
        by_lack.setdefault(lack, []).append(name)
    nearest = sorted(by_lack, key=lambda lack: lack.startswith("offers 0 "))
    return [placed(some_of(by_lack[lack]), lack) for lack in nearest[:8]]


def _is_meant(node: Object, selected: Mapping[str, str], settings: KubernetesPlatform) -> bool:
    labels = node["metadata"].get("labels", {})
    host = labels.get("kubernetes.io/hostname", node["metadata"]["name"])
    if (settings.target_nodes and host not in settings.target_nodes) or host in settings.avoid_nodes:
        return False
    return all(labels.get(key) == value for key, value in selected.items())


def _lack(node: Object, cluster: "Cluster", settings: KubernetesPlatform) -> str | None:
    """What keeps a pod from this node."""
    if not holding(node, "Ready"):
        message = conditions(node).get("Ready", {}).get("message") or "the kubelet is silent"
        return Reason.of("node-unfit", lack=f"is not ready: {message}")
    if node["spec"].get("unschedulable"):
        return Reason.of("node-unfit", lack="is cordoned")
    tolerated = tolerations(cluster, settings)
    for taint in node["spec"].get("taints", ()):
        if taint.get("effect") != "PreferNoSchedule" and not any(_tolerates(one, taint) for one in tolerated):
            value = f"={taint['value']}" if taint.get("value") else ""
            return Reason.of(
                "node-unfit", lack=f"taint {taint['key']}{value}:{taint['effect']} is not in platform.tolerations"
            )
    return _too_small(node["status"].get("allocatable", {}), cluster, settings)


def _too_small(offered: Mapping[str, str], cluster: "Cluster", settings: KubernetesPlatform) -> str | None:
    """What a node of that size has too little of."""
    from kubernetes.utils.quantity import parse_quantity

    for resource, requested in limits(cluster, settings).items():
        there = offered.get(resource, "0")
        if parse_quantity(there) < parse_quantity(requested):
            hint = ": is the device plugin running?" if there == "0" else ""
            return Reason.of("node-unfit", lack=f"offers {there} of {requested} {resource}{hint}")
    if "cpu" in offered and parse_quantity(offered["cpu"]) < cluster.gpus:
        return Reason.of(
            "node-unfit", lack=f"offers {offered['cpu']} CPUs for {cluster.gpus} GPUs; each rank needs one of its own"
        )
    profile = machine(settings.machine)
    # A family's nodes have room for what its pods may take; on others it is an upper bound that nobody may reach.
    shared = settings.shared_memory or (profile.shared_memory if profile.gpus else None)
    if "memory" in offered and shared and parse_quantity(offered["memory"]) < parse_quantity(shared):
        lacking = f"less than the {shared} that /dev/shm may take"
        return Reason.of(
            "node-unfit", lack=f"offers {offered['memory']} of memory, {lacking}: lower platform.shared_memory"
        )
    return None


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, taint["effect"]) or toleration.get("key") not in (None, taint["key"]):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value") == taint.get("value")
