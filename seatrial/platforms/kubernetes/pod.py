"""The pod of one node: the entry point, the run's keys, GPUs, and the needs of the machine family.
Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from platform import machine as this_machine
from typing import TYPE_CHECKING

from seatrial.config.architecture import node_architecture
from seatrial.model.reason import Reason
from seatrial.platforms.container import ENTRY_POINT, KEYS, READY, capabilities
from seatrial.platforms.kubernetes.config import Gcs, KubernetesPlatform, LocalSsd, Nfs, Pvc, Volume
from seatrial.platforms.kubernetes.fragments import merged
from seatrial.platforms.kubernetes.machines import MACHINES, Machine, gpu_resource
from seatrial.platforms.kubernetes.plan import RUN_ID, KubernetesPlan, Object

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

ROLE = "seatrial/role"
NODE_ROLE = "node"
# Names of claims
CHANNEL = "compute-domain-channel"
RDMA = "rdma"
_HOSTNAME = "kubernetes.io/hostname"
_TAS = "kueue.x-k8s.io/podset"
# Taints of GPU nodes that keep other pods away; GKE's announces maintenance
_TOLERATED = (
    {"key": "nvidia.com/gpu", "operator": "Exists"},
    {"key": "amd.com/gpu", "operator": "Exists"},
    {"key": "cloud.google.com/impending-node-termination", "operator": "Exists"},
)
# Words in the names of such resources: rdma/hca_shared_devices_a and rdma/ib of NVIDIA's shared
# device plugin, nvidia.com/mlnxnics and nvidia.com/hostdev of its network operator,
# vpc.amazonaws.com/efa, openshift.io/sriov_ib.
_FABRIC_WORDS = frozenset(
    {"rdma", "hca", "ib", "infiniband", "roce", "mlnxnics", "hostdev", "efa", "sriov"}
)
_MAX_NAMED = 4
# Sources of what GKE needs: AI-Hypercomputer/gpu-recipes (src/helm-charts),
# GoogleCloudPlatform/gcs-fuse-csi-driver.
GCS_FUSE = "gcsfuse.csi.storage.gke.io"
# Mount point of the disks of a GKE node pool with ephemeral SSD
_LOCAL_SSD = "/mnt/stateful_partition/kube-ephemeral-ssd"
# No limits: a sidecar with low limits would throttle or end its readers.
_UNLIMITED = {
    "gke-gcsfuse/cpu-limit": "0",
    "gke-gcsfuse/memory-limit": "0",
    "gke-gcsfuse/ephemeral-storage-limit": "0",
}


def node_template(plan: KubernetesPlan, container: str = "node") -> Object:
    """Return the template of every node's pod.

    `container` is the name that the launcher wants its container to have.
    """
    settings = plan.settings
    profile = settings.profile
    annotations = {
        "kubectl.kubernetes.io/default-container": container,
        **profile.annotations,
        **({} if settings.host_network else profile.network_annotations),
        **volume_annotations(settings.volumes),
        **_topology(settings),
        **settings.annotations,
    }
    return {
        "metadata": {
            "labels": {**settings.labels, **plan.labels, ROLE: NODE_ROLE},
            "annotations": annotations,
        },
        "spec": _spec(plan, profile, container),
    }


def _topology(settings: KubernetesPlatform) -> dict[str, str]:
    """Return Kueue's annotation for the topology setting that is set: required, preferred or
    unconstrained.
    """
    chosen = settings.topology.model_dump(exclude_defaults=True) if settings.topology else {}
    return {
        f"{_TAS}-{how}-topology": "true" if level is True else level
        for how, level in chosen.items()
    }


def _spec(plan: KubernetesPlan, profile: Machine, container: str) -> Object:
    settings = plan.settings
    shared_memory = settings.shared_memory or (
        profile.shared_memory if plan.run.cluster.gpus else "1Gi"
    )
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,  # the entry point exits at once on TERM
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(plan, profile, container)],
        "volumes": [
            {"name": "keys", "secret": {"secretName": plan.name, "defaultMode": 0o400}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory}},
            *profile.volumes,
            *volume_sources(settings.volumes, host_network=settings.host_network),
        ],
        "affinity": _affinity(plan),
        "tolerations": tolerations(plan.run.cluster, settings),
        "nodeSelector": node_selector(plan.run.cluster, settings),
        "resourceClaims": _claims(plan, profile),
        "initContainers": list(profile.init_containers),
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
        "priorityClassName": settings.priority_class,
        "serviceAccountName": settings.service_account,
    }
    if profile.host_ipc:
        spec["hostIPC"] = True
    if settings.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return merged(_filled(spec), settings.pod_spec)


def _filled(spec: Object) -> Object:
    """Return the entries that are not None or empty."""
    return {key: value for key, value in spec.items() if value not in (None, [], {})}


def _container(plan: KubernetesPlan, profile: Machine, name: str) -> Object:
    cluster = plan.run.cluster
    claimed = [{"name": claim["name"]} for claim in _claims(plan, profile)]
    resources = {"limits": limits(cluster, plan.settings), "claims": claimed}
    container: Object = {
        "name": name,
        "image": plan.run.nodes_image,
        "imagePullPolicy": plan.settings.image_pull_policy,
        "command": ENTRY_POINT,
        "env": _env(plan, profile),
        "ports": [{"name": "ssh", "containerPort": cluster.ssh_port}],
        # A node is ready when its sshd answers with the run's host key; checked every second until
        # then.
        "startupProbe": {
            "exec": {"command": READY},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": int(plan.settings.start_timeout_s) + 60,
        },
        "resources": _filled(resources),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": capabilities(cluster, ())},
        },
        "volumeMounts": [
            {"name": "keys", "mountPath": KEYS, "readOnly": True},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            *profile.mounts,
            *volume_mounts(plan.settings.volumes),
        ],
    }
    made = merged(_filled(container), plan.settings.container)
    if made["securityContext"].get("privileged"):  # Kubernetes refuses `privileged` without it
        made["securityContext"]["allowPrivilegeEscalation"] = True
    return made


def _claims(plan: KubernetesPlan, profile: Machine) -> list[Object]:
    """Return the pod's references to the claim templates that `launchers.claims` makes."""
    names = [
        name
        for name, needed in ((CHANNEL, profile.compute_domain), (RDMA, profile.rdma_claims))
        if needed
    ]
    return [{"name": name, "resourceClaimTemplateName": f"{plan.name}-{name}"} for name in names]


def _env(plan: KubernetesPlan, profile: Machine) -> list[Object]:
    """Return the variables of a node; the cluster file's win over the machine family's."""
    values = {
        "SEATRIAL_SSH_PORT": str(plan.run.cluster.ssh_port),
        "SEATRIAL_MAX_SECONDS": str(plan.deadline_s),
        **({"SEATRIAL_SOURCE": profile.source} if profile.source else {}),
        **profile.defaults,
        **profile.env,
        **plan.run.cluster.env,
    }
    if plan.settings.secret_env:
        # the image removes variables that look like secrets from SSH sessions, and so from ranks
        values["SEATRIAL_PASS_ENV"] = " ".join(plan.settings.secret_variables())
    secrets = [
        {"name": each.name, "valueFrom": {"secretKeyRef": {"name": each.secret, "key": each.key}}}
        for each in plan.settings.secret_env
    ]
    return [{"name": name, "value": value} for name, value in values.items()] + secrets


def _affinity(plan: KubernetesPlan) -> Object:
    """Return the affinity: one pod per node, on the requested nodes."""
    apart = {
        "labelSelector": {"matchLabels": {RUN_ID: plan.run.run_id, ROLE: NODE_ROLE}},
        "topologyKey": _HOSTNAME,
    }
    affinity: Object = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    }
    requirements = [
        {"key": _HOSTNAME, "operator": operator, "values": list(names)}
        for operator, names in (
            ("In", plan.settings.target_nodes),
            ("NotIn", plan.settings.avoid_nodes),
        )
        if names
    ]
    if requirements:
        terms = [{"matchExpressions": requirements}]
        affinity["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    return affinity


def _architecture(cluster: "Cluster", settings: KubernetesPlatform) -> str | None:
    """Return the architecture of the nodes by the machine family or the hardware; None for
    amd64.
    """
    profile = MACHINES[settings.machine]
    if profile.accelerator:
        return profile.arch
    return "arm64" if node_architecture(cluster, this_machine()) == "arm64" else None


def node_selector(cluster: "Cluster", settings: KubernetesPlatform) -> dict[str, str]:
    """Return the labels that nodes must have."""
    arch = _architecture(cluster, settings)
    selected = {"kubernetes.io/arch": arch} if arch else {}
    return {**selected, **MACHINES[settings.machine].node_selector, **settings.node_selector}


def is_selected(node: Object, selected: Mapping[str, str], settings: KubernetesPlatform) -> bool:
    """Return whether the settings select a node, by its host name and by the labels `selected`."""
    metadata = node["metadata"]
    labels = metadata.get("labels") or {}
    host = labels.get(_HOSTNAME, metadata["name"])
    if host in settings.avoid_nodes:
        return False
    if settings.target_nodes and host not in settings.target_nodes:
        return False
    return selected.items() <= labels.items()


def taints_of(node: Object) -> list[Object]:
    return node["spec"].get("taints") or []


def untolerated(node: Object, cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[Object]:
    """Yield the taints that keep the pods off the node."""
    tolerated = tolerations(cluster, settings)
    for taint in taints_of(node):
        is_tolerated = any(_tolerates(one, taint) for one in tolerated)
        if taint["effect"] != "PreferNoSchedule" and not is_tolerated:
            yield taint


def _tolerates(toleration: Object, taint: Object) -> bool:
    for name in ("effect", "key"):
        if toleration.get(name) not in (None, taint[name]):
            return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get(
        "value", ""
    )


def tolerations(cluster: "Cluster", settings: KubernetesPlatform) -> list[Object]:
    """Return the taints that the pods tolerate."""
    arch = _architecture(cluster, settings) or "amd64"
    # GKE and others taint their arm64 nodes.
    other_arch = {
        "key": "kubernetes.io/arch",
        "operator": "Equal",
        "value": arch,
        "effect": "NoSchedule",
    }
    requested = [toleration.model_dump(exclude_none=True) for toleration in settings.tolerations]
    return [*_TOLERATED, *([] if arch == "amd64" else [other_arch]), *requested]


def limits(cluster: "Cluster", settings: KubernetesPlatform) -> dict[str, str]:
    """Return the limits of a node's container, which are also its requests: GPUs, and the cluster
    file's resources.
    """
    gpus = {gpu_resource(cluster): str(cluster.gpus)} if cluster.gpus else {}
    return {**gpus, **{name: str(quantity) for name, quantity in settings.resources.items()}}


def is_fabric(resource: str) -> bool:
    """Return whether a resource is, by its name, a device for traffic between nodes."""
    return "/" in resource and bool(_FABRIC_WORDS & set(re.split(r"[^a-z0-9]+", resource.lower())))


def not_requested(
    nodes: Iterable[Object], cluster: "Cluster", settings: KubernetesPlatform
) -> Reason | None:
    """Return the reason if `nodes` offer fabric devices that a run with GPUs does not request; else
    None.

    Google's machines get RDMA by networks or claims of the machine family instead.
    """
    if cluster.nodes < 2 or not cluster.gpus or MACHINES[settings.machine].accelerator:
        return None
    offered: dict[str, int] = {}
    for node in nodes:
        for resource, count in node["status"].get("allocatable", {}).items():
            # Counts of devices are whole numbers
            if is_fabric(resource) and count.isdigit() and int(count):
                offered[resource] = max(offered.get(resource, 0), int(count))
    if not offered or offered.keys() & {*settings.resources, *settings.in_container}:
        return None
    devices = ", ".join(
        f"{name} ({count:,} per node)" for name, count in sorted(offered.items())[:_MAX_NAMED]
    )
    return Reason.of("fabric-device-not-requested", devices=devices)


def volume_sources(volumes: Iterable[Volume], *, host_network: bool) -> list[Object]:
    """Return the pod's volumes."""
    return [
        {"name": f"volume-{i}", **_source(volume, host_network)} for i, volume in enumerate(volumes)
    ]


def volume_mounts(volumes: Iterable[Volume]) -> list[Object]:
    """Return the container's mounts."""
    return [
        {"name": f"volume-{i}", "mountPath": volume.mount, **_read_only(volume)}
        for i, volume in enumerate(volumes)
    ]


def volume_annotations(volumes: Iterable[Volume]) -> dict[str, str]:
    """Return the annotations that make GKE add the sidecar for buckets."""
    return (
        {"gke-gcsfuse/volumes": "true", **_UNLIMITED}
        if any(volume.kind == "gcs" for volume in volumes)
        else {}
    )


def _read_only(volume: Volume) -> dict[str, bool]:
    return {"readOnly": True} if getattr(volume, "read_only", False) else {}


def _source(volume: Volume, host_network: bool) -> Object:
    match volume:
        case Gcs():
            attributes = {"bucketName": volume.bucket}
            if volume.mount_options:
                attributes["mountOptions"] = volume.mount_options
            if host_network:  # the metadata server cannot distinguish such a pod from its node
                attributes["hostNetworkPodKSA"] = "true"
            return {
                "csi": {"driver": GCS_FUSE, **_read_only(volume), "volumeAttributes": attributes}
            }
        case Nfs():
            return {"nfs": {"server": volume.server, "path": volume.path, **_read_only(volume)}}
        case Pvc():
            return {"persistentVolumeClaim": {"claimName": volume.claim, **_read_only(volume)}}
        # Type Directory: a node without these disks is reported, instead of using its boot disk
        case LocalSsd():
            return {"hostPath": {"path": _LOCAL_SSD, "type": "Directory"}}
