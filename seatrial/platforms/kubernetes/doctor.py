"""Checks before a run on Kubernetes, each with the next step: rights, objects, nodes.

Objects that may not be read, or requests without an answer, are not reported.
"""

from collections.abc import Iterable, Iterator, Mapping
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
    is_selected,
    limits,
    node_selector,
    not_requested,
    untolerated,
)
from seatrial.platforms.kubernetes.rights import qualify_rights, rights
from seatrial.platforms.testbed import trial_run
from seatrial.text.words import some_of

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

_PRIORITY_CLASS = Kind("scheduling.k8s.io/v1", "PriorityClass")
# Secret types for pulling images
_PULL_SECRETS = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
_STORAGE_CLASS = Kind("storage.k8s.io/v1", "StorageClass")
_CSI_DRIVER = Kind("storage.k8s.io/v1", "CSIDriver")


def problems(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> list[Reason]:
    """Return everything that would keep a run from starting; only the error if the API server does
    not answer.

    The manifests are tried only if nothing else is wrong, since the API server would refuse them
    for the same problems.
    """
    launcher = LAUNCHERS[settings.launcher]
    try:
        api.version()
    except SeatrialError as error:
        return [error.reason]
    needed = [
        *rights(launcher, bool(settings.queue), settings.profile),
        *qualify_rights(cluster),
    ]
    reasons = list(_forbidden(api, needed))
    try:
        api.knows(launcher.kind)
    except SeatrialError as error:
        reasons.append(error.reason)
    if settings.queue:
        reasons += _queue(api, settings)
    reasons += prerequisites(api, cluster, settings)
    if not reasons:
        reasons += _refused(api, cluster)
    # Nodes are checked in any case, so that all problems can be fixed at once
    with suppress(SeatrialError):  # a missing right is reported above
        nodes = api.list(NODE)
        reasons += nodes_that_fit(nodes, cluster, settings)
        if missing := not_requested(_meant(nodes, cluster, settings), cluster, settings):
            reasons.append(missing)
    return reasons


def _forbidden(api: Api, needed: list[Permission]) -> Iterator[Reason]:
    """Yield each right that this user lacks, with its purpose."""
    for right in needed:
        if right.optional:  # a run works without it
            continue
        denied = [verb for verb in right.verbs if not api.may(verb, right)]
        if not denied:
            continue
        verbs = ", ".join(denied)
        resource = right.resource
        if right.group:
            resource += f".{right.group}"
        where = f"in namespace {api.namespace}"
        if right.cluster_wide:
            where = "cluster-wide"
        yield Reason.of(
            "forbidden",
            doing=f"{verbs} {resource} {where}",
            problem=f"needed to {right.why}",
        )


def _refused(api: Api, cluster: "Cluster") -> list[Reason]:
    """Submit the manifests as a dry run, which admission policies and webhooks check too.

    Return the first refusal; empty if a webhook does not support dry runs.
    """
    planned = plan(trial_run(cluster))
    files = dict.fromkeys((*KEY_FILES, *ENTRY_FILES), "made for each run")
    for manifest in objects(planned, files):
        # Its webhook needs the runtime, which a dry run does not store
        if manifest["kind"] == "TrainJob":
            continue
        try:
            api.create(manifest, dry_run=True)
        except SeatrialError as error:
            if "does not support dry run" in str(error):  # the message of a webhook
                return []
            return [error.reason]
    return []


def _queue(api: Api, settings: KubernetesPlatform) -> list[Reason]:
    """Return what is wrong with Kueue's queue: missing, inactive, or not processed by Kueue."""
    try:
        queues = {_name(queue): queue for queue in api.list(LOCAL_QUEUE)}
    except SeatrialError as error:
        return [error.reason]
    queue = queues.get(str(settings.queue))
    if queue is None:
        there = "there is none"
        if queues:
            names = ", ".join(sorted(queues))
            there = f"there are: {names}"
        missing = Reason.of(
            "queue-not-found",
            queue=settings.queue,
            namespace=settings.namespace,
            there=there,
        )
        return [missing]
    active = conditions(queue).get("Active")
    if active is None:
        return [Reason.of("queue-not-looked-at", what=f"queue {settings.queue}")]
    if active["status"] != "True":
        inactive = Reason.of(
            "queue-inactive",
            queue=settings.queue,
            reason=active.get("reason"),
            message=active.get("message"),
        )
        return [inactive]
    return []


def nodes_that_fit(
    nodes: list[Object], cluster: "Cluster", settings: KubernetesPlatform
) -> list[Reason]:
    """Return one reason if too few nodes can take a pod, with up to eight reasons why nodes cannot;
    else []. Pure.
    """
    chosen = _meant(nodes, cluster, settings)
    names_by_lack: dict[Reason, list[str]] = {}
    fit = 0
    for node in chosen:
        if lack := _lack(node, cluster, settings):
            names = names_by_lack.setdefault(lack, [])
            names.append(_name(node))
        else:
            fit += 1
    if fit >= cluster.nodes:
        return []
    meant = f"{len(chosen)} of {len(nodes)} nodes are meant"
    labels = node_selector(cluster, settings)
    selector = ", ".join(f"{key}={value}" for key, value in labels.items())
    if selector:
        meant += f" ({selector})"
    reasons = [Reason.of("too-few-fitting-nodes", nodes=cluster.nodes, fit=fit, meant=meant)]
    # Nodes without GPUs come last, as they are not meant for a run's pods
    nearest = sorted(names_by_lack, key=lambda lack: lack.values.get("there") == "0")
    for lack in nearest[:8]:
        names = names_by_lack[lack]
        reasons.append(placed(some_of(names), lack))
    return [join(reasons)]


def _meant(
    nodes: Iterable[Object], cluster: "Cluster", settings: KubernetesPlatform
) -> list[Object]:
    """Return the nodes that the settings select, whether or not they can take a pod."""
    selected = node_selector(cluster, settings)
    return [node for node in nodes if is_selected(node, selected, settings)]


def _name(made: Object) -> str:
    name: str = made["metadata"]["name"]
    return name


def _lack(node: Object, cluster: "Cluster", settings: KubernetesPlatform) -> Reason | None:
    """Return why this node cannot take a pod, or None: its state first, then taints, then sizes."""
    if not true_condition(node, "Ready"):
        ready = conditions(node).get("Ready", {})
        message = ready.get("message") or "the kubelet is silent"
        return Reason.of("node-unfit", lack=f"is not ready: {message}")
    if node["spec"].get("unschedulable"):
        return Reason.of("node-unfit", lack="is cordoned")
    for taint in untolerated(node, cluster, settings):
        words = taint["key"]
        if taint.get("value"):
            words += f"={taint['value']}"
        return Reason.of(
            "node-unfit", lack=f"taint {words}:{taint['effect']} is not in platform.tolerations"
        )
    offered = node["status"].get("allocatable", {})
    return _too_small(offered, cluster, settings)


def _too_small(
    offered: Mapping[str, str], cluster: "Cluster", settings: KubernetesPlatform
) -> Reason | None:
    """Return which resource of a node is too small, or None.

    `offered` is the node's allocatable, in Kubernetes quantities by resource.
    """
    from kubernetes.utils.quantity import parse_quantity

    for resource, requested in limits(cluster, settings).items():
        there = offered.get(resource, "0")
        if parse_quantity(there) < parse_quantity(requested):
            hint = ""
            if there == "0":  # without the device plugin, a node does not know the resource
                hint = ": is the device plugin running?"
            return Reason.of(
                "node-unfit", lack=f"offers {there} of {requested} {resource}{hint}", there=there
            )
    cpus = offered.get("cpu")
    # Pods request no CPUs, so the scheduler would not notice it
    if cpus is not None and parse_quantity(cpus) < cluster.gpus:
        return Reason.of(
            "node-unfit",
            lack=f"offers {cpus} CPUs for {cluster.gpus} GPUs; each rank needs one of its own",
        )
    profile = MACHINES[settings.machine]
    shared = settings.shared_memory
    # Nodes of a machine family have this much memory; on others it is only an upper bound.
    if not shared and profile.gpus:
        shared = profile.shared_memory
    memory = offered.get("memory")
    if memory is None or not shared:
        return None
    if parse_quantity(memory) < parse_quantity(shared):
        lacking = f"less than the {shared} that /dev/shm may take"
        return Reason.of(
            "node-unfit",
            lack=f"offers {memory} of memory, {lacking}: lower platform.shared_memory",
        )
    return None


def prerequisites(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    """Yield secrets, claims, accounts and images that are missing or unsuitable, each with the next
    step.

    Objects that may not be read are skipped.
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
    """Look for each Secret that images are pulled with, and at its type."""
    for name in settings.image_pull_secrets:
        where = "platform.image_pull_secrets"
        step = f"create secret docker-registry {name}"
        secret = api.find(SECRET, name)
        if secret is None:
            yield _missing(where, f"no Secret {name} in namespace {api.namespace}", step, api)
            continue
        kind = secret.get("type")
        if kind not in _PULL_SECRETS:
            problem = f"Secret {name} is {kind}, with which nothing is pulled"
            yield _missing(where, problem, step, api)


def _missing(where: str, problem: str, step: str, api: Api | None = None) -> Reason:
    """Return the reason for a missing object.

    `where` is the field that names it, and `step` creates it; with `api`, `step` is the part of a
    kubectl command after the namespace.
    """
    if api:
        step = f"kubectl -n {api.namespace} {step}"
    return Reason.of("kubernetes-object-missing", where=where, problem=problem, step=step)


def _secret_env(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    """Look for the Secret of each variable, and for its key."""
    for variable in settings.secret_env:
        where = f"platform.secret_env: {variable.name}"
        secret = api.find(SECRET, variable.secret)
        if secret is None:
            problem = f"no Secret {variable.secret} in namespace {api.namespace}"
            yield _missing(where, problem, f"create secret generic {variable.secret}", api)
            continue
        keys = secret.get("data") or {}
        if variable.key not in keys:
            yield Reason.of(
                "secret-key-missing",
                where=where,
                secret=variable.secret,
                key=variable.key,
                has=", ".join(sorted(keys)) or "none",
            )


def _account(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    """Look for the service account of the pods; the default account always exists."""
    name = settings.service_account
    if name and api.find(Kind("v1", "ServiceAccount"), name) is None:
        problem = f"there is no {name} in namespace {api.namespace}"
        yield _missing("platform.service_account", problem, f"create serviceaccount {name}", api)


def _priority(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    """Look for the priority class of the pods, which is cluster-wide."""
    name = settings.priority_class
    if not name:
        return
    classes = sorted(map(_name, api.list(_PRIORITY_CLASS)))
    if name not in classes:
        there = ", ".join(classes)
        yield _missing("platform.priority_class", f"the cluster has no {name}", f"it has {there}")


def _preemptible_class(
    api: Api, cluster: "Cluster", settings: KubernetesPlatform
) -> Iterator[Reason]:
    """Check the priority class of tests on idle nodes: a value below 0, and no preemption of
    others.
    """
    if cluster.qualify is None:
        return
    where = "qualify.priority_class"
    name = cluster.qualify.priority_class
    step = "kubectl apply -f deployments/kubernetes/qualify.yaml"
    classes = {_name(each): each for each in api.list(_PRIORITY_CLASS)}
    priority_class = classes.get(name)
    if priority_class is None:
        yield _missing(where, f"the cluster has no {name}", step)
    elif priority_class["value"] >= 0 or priority_class.get("preemptionPolicy") != "Never":
        yield _missing(where, f"tests of {name} would not give way, or preempt others", step)


def _claims(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    """Check the claim of each volume: it exists, can be bound, and all nodes of the run can mount
    it.
    """
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
        # A claim that waits for its first pod is pending too, but usable
        is_stuck = phase == "Pending" and not _binds_late(api, claim)
        if phase == "Lost" or is_stuck:
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
    """Return whether the claim binds with its first pod, or may, if its storage class cannot be
    read.
    """
    with suppress(SeatrialError):
        name = claim["spec"].get("storageClassName") or ""
        storage_class = api.find(_STORAGE_CLASS, name) or {}
        return bool(storage_class.get("volumeBindingMode") == "WaitForFirstConsumer")
    return True


def _bucket_driver(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    """Look for the CSI driver of buckets, if a volume is a bucket."""
    needs_driver = any(volume.kind == "gcs" for volume in settings.volumes)
    if needs_driver and api.find(_CSI_DRIVER, GCS_FUSE) is None:
        problem = "gcs needs Cloud Storage FUSE, which the cluster does not have"
        add = "gcloud container clusters update NAME --update-addons GcsFuseCsiDriver=ENABLED"
        yield _missing("platform.volumes", problem, add)


def _image(api: Api, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Reason]:
    """Yield a reason if the registry lacks the prebuilt image, or lacks it for the nodes'
    architecture.

    With the pull policy Never no registry is asked, as the nodes must have the image.
    """
    from seatrial.builders.registry import look_up

    if not isinstance(cluster.image, Prebuilt) or settings.image_pull_policy == "Never":
        return
    reference = cluster.image.reference
    stored = look_up(reference)
    if stored is None:
        yield Reason.of("image-missing", image=reference)
    elif wrong := wrong_architecture(reference, stored.architectures, cluster, this_machine()):
        yield wrong
