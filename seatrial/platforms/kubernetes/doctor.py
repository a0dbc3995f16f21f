"""Checks before a run on Kubernetes, each with the next step: rights, objects, nodes.

What may not be read, or does not answer, is not reported.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from platform import machine as this_machine
from typing import TYPE_CHECKING

from seatrial.config.architecture import wrong_architecture
from seatrial.config.image import Prebuilt
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import Reason, join, placed
from seatrial.platforms.container import ENTRY_FILES, KEY_FILES
from seatrial.platforms.kubernetes.api import NODE, SECRET, Api, Permission
from seatrial.platforms.kubernetes.config import KubernetesPlatform, Pvc
from seatrial.platforms.kubernetes.kueue import LOCAL_QUEUE
from seatrial.platforms.kubernetes.launchers import LAUNCHERS, objects
from seatrial.platforms.kubernetes.machines import MACHINES
from seatrial.platforms.kubernetes.plan import Kind, Object, conditions, plan, true_condition
from seatrial.platforms.kubernetes.pod import (
    GCS_FUSE,
    is_tolerated,
    limits,
    node_selector,
    not_requested,
    tolerations,
)
from seatrial.platforms.kubernetes.rights import qualify_rights, rights
from seatrial.platforms.testbed import trial_run
from seatrial.text.words import some_of

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

_PRIORITY_CLASS = Kind("scheduling.k8s.io/v1", "PriorityClass")


def problems(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> list[Reason]:
    """Return everything that would keep a run from starting."""
    launcher = LAUNCHERS[settings.launcher]
    try:
        api.version()
    except SeatrialError as error:
        return [error.reason]
    needed = rights(launcher, bool(settings.queue), settings.profile)
    reasons = list(_forbidden(api, [*needed, *qualify_rights(cluster)]))
    try:
        api.knows(launcher.kind)
    except SeatrialError as error:
        reasons.append(error.reason)
    if settings.queue:
        reasons += _queue(api, settings)
    reasons += prerequisites(api, cluster, settings)
    if not reasons:
        reasons += _refused(api, cluster)
    with suppress(SeatrialError):  # reported above, where a right is missing
        nodes = api.list(NODE)
        reasons += nodes_that_fit(nodes, cluster, settings)
        meant = [
            node for node in nodes if _is_meant(node, node_selector(cluster, settings), settings)
        ]
        if missing := not_requested(meant, cluster, settings):
            reasons.append(missing)
    return reasons


def _forbidden(api: Api, needed: list[Permission]) -> Iterator[Reason]:
    for right in needed:
        if right.optional:  # a run does without
            continue
        denied = [verb for verb in right.verbs if not api.may(verb, right)]
        if denied:
            resource = f"{right.resource}.{right.group}" if right.group else right.resource
            where = "cluster-wide" if right.cluster_wide else f"in namespace {api.namespace}"
            yield Reason.of(
                "forbidden",
                doing=f"{', '.join(denied)} {resource} {where}",
                problem=f"needed to {right.why}",
            )


def _refused(api: Api, cluster: "Cluster") -> list[Reason]:
    """Submit the manifests as a dry run, which admission policies and webhooks see too."""
    run = trial_run(cluster)
    for manifest in objects(
        plan(run), dict.fromkeys((*KEY_FILES, *ENTRY_FILES), "made for each run")
    ):
        if manifest["kind"] == "TrainJob":  # its webhook wants the runtime, which no dry run keeps
            continue
        try:
            api.create(manifest, dry_run=True)
        except SeatrialError as error:
            # Some webhooks have no dry run
            return [] if "does not support dry run" in str(error) else [error.reason]
    return []


def _queue(api: Api, settings: KubernetesPlatform) -> list[Reason]:
    try:
        queues = {queue["metadata"]["name"]: queue for queue in api.list(LOCAL_QUEUE)}
    except SeatrialError as error:
        return [error.reason]
    queue = queues.get(str(settings.queue))
    if queue is None:
        return [
            Reason.of(
                "queue-not-found",
                queue=settings.queue,
                namespace=settings.namespace,
                there=f"there are: {', '.join(sorted(queues))}" if queues else "there is none",
            )
        ]
    active = conditions(queue).get("Active")
    if active is None:
        return [Reason.of("queue-not-looked-at", what=f"queue {settings.queue}")]
    if active["status"] != "True":
        return [
            Reason.of(
                "queue-inactive",
                queue=settings.queue,
                reason=active.get("reason"),
                message=active.get("message"),
            )
        ]
    return []


def nodes_that_fit(
    nodes: list[Object], cluster: "Cluster", settings: KubernetesPlatform
) -> list[Reason]:
    """Return whether enough nodes can take a pod, with what those that nearly can lack. Pure."""
    labels = node_selector(cluster, settings)
    chosen = [node for node in nodes if _is_meant(node, labels, settings)]
    names_by_lack: dict[Reason, list[str]] = {}
    for node in chosen:
        if lack := _lack(node, cluster, settings):
            names_by_lack.setdefault(lack, []).append(node["metadata"]["name"])
    fit = len(chosen) - sum(map(len, names_by_lack.values()))
    if fit >= cluster.nodes:
        return []
    selector = ", ".join(f"{key}={value}" for key, value in labels.items())
    meant = f"{len(chosen)} of {len(nodes)} nodes are meant" + (
        f" ({selector})" if selector else ""
    )
    few = Reason.of("too-few-fitting-nodes", nodes=cluster.nodes, fit=fit, meant=meant)
    # Nodes without any GPU last
    nearest = sorted(names_by_lack, key=lambda lack: lack.values.get("there") == "0")
    return [join([few, *(placed(some_of(names_by_lack[lack]), lack) for lack in nearest[:8])])]


def _is_meant(node: Object, selected: Mapping[str, str], settings: KubernetesPlatform) -> bool:
    labels = node["metadata"].get("labels", {})
    host = labels.get("kubernetes.io/hostname", node["metadata"]["name"])
    if (
        settings.target_nodes and host not in settings.target_nodes
    ) or host in settings.avoid_nodes:
        return False
    return all(labels.get(key) == value for key, value in selected.items())


def _lack(node: Object, cluster: "Cluster", settings: KubernetesPlatform) -> Reason | None:
    """Return why this node cannot take a pod, or None."""
    if not true_condition(node, "Ready"):
        message = conditions(node).get("Ready", {}).get("message") or "the kubelet is silent"
        return Reason.of("node-unfit", lack=f"is not ready: {message}")
    if node["spec"].get("unschedulable"):
        return Reason.of("node-unfit", lack="is cordoned")
    tolerated = tolerations(cluster, settings)
    for taint in node["spec"].get("taints", ()):
        if taint.get("effect") != "PreferNoSchedule" and not is_tolerated(taint, tolerated):
            value = f"={taint['value']}" if taint.get("value") else ""
            return Reason.of(
                "node-unfit",
                lack=f"taint {taint['key']}{value}:{taint['effect']} is not in platform.tolerations",
            )
    return _too_small(node["status"].get("allocatable", {}), cluster, settings)


def _too_small(
    offered: Mapping[str, str], cluster: "Cluster", settings: KubernetesPlatform
) -> Reason | None:
    """Return which resource of a node is too small, or None."""
    from kubernetes.utils.quantity import parse_quantity

    for resource, requested in limits(cluster, settings).items():
        there = offered.get(resource, "0")
        if parse_quantity(there) < parse_quantity(requested):
            hint = ": is the device plugin running?" if there == "0" else ""
            return Reason.of(
                "node-unfit", lack=f"offers {there} of {requested} {resource}{hint}", there=there
            )
    if "cpu" in offered and parse_quantity(offered["cpu"]) < cluster.gpus:
        return Reason.of(
            "node-unfit",
            lack=f"offers {offered['cpu']} CPUs for {cluster.gpus} GPUs; each rank needs one "
            "of its own",
        )
    profile = MACHINES[settings.machine]
    # A family's nodes have room for what its pods may take; on others it is an upper bound that
    # nobody may reach.
    shared = settings.shared_memory or (profile.shared_memory if profile.gpus else None)
    if (
        "memory" in offered
        and shared
        and parse_quantity(offered["memory"]) < parse_quantity(shared)
    ):
        lacking = f"less than the {shared} that /dev/shm may take"
        return Reason.of(
            "node-unfit",
            lack=f"offers {offered['memory']} of memory, {lacking}: lower platform.shared_memory",
        )
    return None


def prerequisites(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    """Yield secrets, claims, accounts and images that are missing or unsuitable, each with the next
    step.
    """
    for look in (
        _pull_secrets,
        _secret_env,
        _account,
        _priority,
        _preemptible_class,
        _claims,
        _bucket_driver,
        _image,
    ):
        with suppress(SeatrialError):
            yield from look(api, cluster, settings)


def _pull_secrets(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    for name in settings.image_pull_secrets:
        where = "platform.image_pull_secrets"
        step = f"create secret docker-registry {name}"
        secret = api.find(SECRET, name)
        if secret is None:
            yield _missing(where, f"no Secret {name} in namespace {api.namespace}", step, api)
        elif (kind := secret.get("type")) not in (
            "kubernetes.io/dockerconfigjson",
            "kubernetes.io/dockercfg",
        ):
            yield _missing(
                where, f"Secret {name} is {kind}, with which nothing is pulled", step, api
            )


def _missing(where: str, problem: str, step: str, api: Api | None = None) -> Reason:
    """Return the reason for what does not exist; with `api`, the step is one of kubectl in its
    namespace.
    """
    kubectl = f"kubectl -n {api.namespace} " if api else ""
    return Reason.of("kubernetes-object-missing", where=where, problem=problem, step=kubectl + step)


def _secret_env(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    for variable in settings.secret_env:
        where = f"platform.secret_env: {variable.name}"
        secret = api.find(SECRET, variable.secret)
        if secret is None:
            problem = f"no Secret {variable.secret} in namespace {api.namespace}"
            yield _missing(where, problem, f"create secret generic {variable.secret}", api)
        elif variable.key not in (data := secret.get("data") or {}):
            yield Reason.of(
                "secret-key-missing",
                where=where,
                secret=variable.secret,
                key=variable.key,
                has=", ".join(sorted(data)) or "none",
            )


def _account(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    name = settings.service_account
    if name and api.find(Kind("v1", "ServiceAccount"), name) is None:
        problem = f"there is no {name} in namespace {api.namespace}"
        yield _missing("platform.service_account", problem, f"create serviceaccount {name}", api)


def _priority(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    if not (name := settings.priority_class):
        return
    classes = sorted(each["metadata"]["name"] for each in api.list(_PRIORITY_CLASS))
    if name not in classes:
        yield _missing(
            "platform.priority_class", f"the cluster has no {name}", f"it has {', '.join(classes)}"
        )


def _preemptible_class(
    api: Api, cluster: "Cluster", settings: KubernetesPlatform
) -> Iterator[Reason]:
    """Look for the class by which tests of idle nodes give way."""
    if cluster.qualify is None:
        return
    where = "qualify.priority_class"
    name = cluster.qualify.priority_class
    step = "kubectl apply -f deployments/kubernetes/qualify.yaml"
    priority_class = next(
        (each for each in api.list(_PRIORITY_CLASS) if each["metadata"]["name"] == name), None
    )
    if priority_class is None:
        yield _missing(where, f"the cluster has no {name}", step)
    elif priority_class["value"] >= 0 or priority_class.get("preemptionPolicy") != "Never":
        yield _missing(where, f"tests of {name} would not give way, or preempt others", step)


def _claims(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    for volume in settings.volumes:
        if not isinstance(volume, Pvc):
            continue
        unusable = partial(Reason.of, "volume-claim-unusable", claim=volume.claim)
        claim = api.find(Kind("v1", "PersistentVolumeClaim"), volume.claim)
        if claim is None:
            yield unusable(
                wrong=f"is not in namespace {api.namespace}: create it, or correct the name"
            )
            continue
        phase = claim.get("status", {}).get("phase")
        modes = set(claim["spec"].get("accessModes", ()))
        if phase == "Lost" or (phase == "Pending" and not _binds_late(api, claim)):
            look = f"kubectl -n {api.namespace} describe pvc {volume.claim}"
            yield unusable(wrong=f"is {phase}, so no pod can have it: {look}")
        elif cluster.nodes > 1 and not modes & {"ReadWriteMany", "ReadOnlyMany"}:
            has = ", ".join(sorted(modes))
            yield unusable(
                wrong=f"is {has}, for one node; {cluster.nodes} need one that is ReadWriteMany"
            )
        elif modes == {"ReadOnlyMany"} and not volume.read_only:
            yield unusable(wrong="is ReadOnlyMany: say read_only: true")


def _binds_late(api: Api, claim: Object) -> bool:
    """Return whether the claim gets its volume with the first pod, or may."""
    with suppress(SeatrialError):
        name = claim["spec"].get("storageClassName") or ""
        storage_class = api.find(Kind("storage.k8s.io/v1", "StorageClass"), name)
        return bool(
            storage_class and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
        )
    return True


def _bucket_driver(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    driver = Kind("storage.k8s.io/v1", "CSIDriver")
    if (
        any(volume.kind == "gcs" for volume in settings.volumes)
        and api.find(driver, GCS_FUSE) is None
    ):
        problem = "gcs needs Cloud Storage FUSE, which the cluster does not have"
        add = "gcloud container clusters update NAME --update-addons GcsFuseCsiDriver=ENABLED"
        yield _missing("platform.volumes", problem, add)


def _image(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    """Yield whether the registry has a prebuilt image for the nodes' architecture."""
    from seatrial.builders.registry import look_up

    if not isinstance(cluster.image, Prebuilt) or settings.image_pull_policy == "Never":
        return
    reference = cluster.image.reference
    stored = look_up(reference)
    if stored is None:
        yield Reason.of("image-missing", image=reference)
    elif wrong := wrong_architecture(reference, stored.architectures, cluster, this_machine()):
        yield wrong
