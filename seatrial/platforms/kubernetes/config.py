"""The settings of a Kubernetes cluster in a cluster file."""

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from seatrial.config.cluster import Cluster, PlatformSettings, Seconds
from seatrial.config.yamlfile import Strict
from seatrial.platforms.kubernetes.fragments import ContainerFragment, PodFragment
from seatrial.platforms.kubernetes.machines import MACHINES, Machine

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
# Paths that a node needs itself: keys, shared memory, NCCL's plugins, MPI, the run's folder.
_TAKEN = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/run",
    "/opt/hpcx",
    "/root/.ssh",
    "/third_party",
    "/tmp/seatrial",
)


def text(pattern: str, legal: str) -> AfterValidator:
    """Return a validator for text that matches the pattern; `legal` completes the message "VALUE is
    no ...".
    """

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"{value!r} is no {legal}")
        return value

    return AfterValidator(check)


DnsLabel = Annotated[
    str,
    text(
        r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
        "Kubernetes name: 1 to 63 of a-z, 0-9 and '-', no '-' at the ends",
    ),
]
DnsName = Annotated[
    str,
    text(
        r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?",
        "name of a Kubernetes object: a-z, 0-9, '-' and '.'",
    ),
]
LabelKey = Annotated[
    str,
    text(
        rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_LABEL}",
        "label key, such as topology.kubernetes.io/zone",
    ),
]
ResourceName = Annotated[
    str,
    text(
        rf"cpu|memory|ephemeral-storage|hugepages-[1-9]\d*[KMGT]i|[a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/{_LABEL}",
        (
            "resource of nodes: cpu, memory, ephemeral-storage, hugepages-SIZE, or "
            "DOMAIN/NAME such as rdma/ib"
        ),
    ),
]
Quantity = Annotated[
    str,
    text(
        r"(0|[1-9]\d{0,17})(\.\d{1,9})?(m|k|[MGTPE]|[KMGTPE]i)?",
        "quantity, such as 8, 500m or 64Gi",
    ),
]
LabelValue = Annotated[
    str, text(rf"({_LABEL})?", "label value: up to 63 of letters, digits, '-', '_' and '.'")
]


def _legal_mount(value: str) -> str:
    path = PurePosixPath(value)
    if not path.is_absolute() or str(path) != value or ".." in path.parts or ":" in value:
        raise ValueError(
            f"{value!r} is no absolute path, such as /data (no '..', no ':', no '/' at the end)"
        )
    for taken in map(PurePosixPath, _TAKEN):
        if path.is_relative_to(taken) or taken.is_relative_to(path):
            raise ValueError(
                f"{value!r} is over or in {taken}, which the node needs; choose another, "
                "such as /data"
            )
    return value


Mount = Annotated[str, AfterValidator(_legal_mount)]


class _Volume(Strict):
    """`mount` is where it appears in every node."""

    mount: Mount = Field(description="absolute path in every node, such as /data")


class _Shared(_Volume):
    read_only: bool = Field(False, description="nodes cannot write to it")


class Gcs(_Shared):
    """A bucket, by GKE's Cloud Storage FUSE, as the pod's service account."""

    kind: Literal["gcs"] = Field(description="Cloud Storage FUSE")
    bucket: Annotated[
        str, text(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", "name of a bucket (without gs://)")
    ] = Field(description="its name, without gs://")
    mount_options: str | None = Field(
        None, min_length=1, description="of gcsfuse, such as implicit-dirs"
    )


class Nfs(_Shared):
    """An export of an NFS server, such as Filestore's."""

    kind: Literal["nfs"] = Field(description="NFS")
    server: Annotated[
        str, text(r"[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?", "host name or address")
    ] = Field(description="host name or address")
    path: Annotated[str, text(r"/.*", "absolute path, such as /share")] = Field(
        description="of the export: /share"
    )


class Pvc(_Shared):
    """A PersistentVolumeClaim of the namespace, which all nodes share."""

    kind: Literal["pvc"] = Field(description="a PersistentVolumeClaim")
    claim: DnsName = Field(description="ReadWriteMany, or ReadOnlyMany with read_only")


class LocalSsd(_Volume):
    """The node's own disks, as GKE offers them."""

    kind: Literal["local-ssd"] = Field(description="the node's own disks")


Volume = Annotated[Gcs | Nfs | Pvc | LocalSsd, Field(discriminator="kind")]


def _one_each(volumes: tuple[Volume, ...]) -> tuple[Volume, ...]:
    mounts = [volume.mount for volume in volumes]
    if twice := next((mount for mount in mounts if mounts.count(mount) > 1), None):
        raise ValueError(f"mount {twice} appears twice; each volume needs its own")
    return volumes


Volumes = Annotated[tuple[Volume, ...], AfterValidator(_one_each)]


def _as_text(value: object) -> object:
    """Convert a count of devices, written as a number, to text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


_COUNT = BeforeValidator(_as_text, json_schema_input_type=str | int | float)


class Toleration(Strict):
    """As in a pod's spec."""

    key: str | None = Field(None, description="of the taint; with Exists, unset: every taint")
    operator: Literal["Exists", "Equal"] = Field(
        "Equal", description="Equal needs key and value, Exists no value"
    )
    value: str | None = Field(None, description="of the taint")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="of the taint; unset: any"
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.operator == "Exists" and self.value is not None:
            raise ValueError("operator: Exists takes no value; leave one of them out")
        if self.operator == "Equal" and (self.key is None or self.value is None):
            raise ValueError(
                "operator: Equal, which is the default, needs key and value; Exists needs neither"
            )
        return self


class SecretVariable(Strict):
    """A variable of every node whose value stays in a Secret, such as HF_TOKEN."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="of the variable")
    secret: DnsName = Field(description="name of the Secret")
    key: str = Field(description="of the value in the Secret")


class Topology(Strict):
    """How close Kueue places the nodes, by the label of a topology level."""

    required: LabelKey | None = Field(
        None, description="all nodes in one domain of this level, or none"
    )
    preferred: LabelKey | None = Field(
        None, description="in one domain of this level where possible"
    )
    unconstrained: bool = Field(False, description="wherever there is room, by Kueue's choice")

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(map(bool, (self.required, self.preferred, self.unconstrained))) != 1:
            raise ValueError(
                "needs exactly one of required: LEVEL, preferred: LEVEL, unconstrained: true"
            )
        return self


class KubernetesPlatform(PlatformSettings):
    """A Kubernetes cluster; `launcher` says what the nodes are submitted as."""

    kind: Literal["kubernetes"] = Field(description="a Kubernetes cluster")
    context: str | None = Field(None, description="kubeconfig context; unset: the current one")
    namespace: DnsLabel = Field("default", description="where everything of a run is made")
    launcher: Literal["job", "jobset", "pytorchjob", "trainjob", "mpijob"] = Field(
        "job", description="all but job need their operator"
    )
    machine: Literal["a3-mega", "a3-ultra", "a4", "a4x", "a4x-max", "generic"] = Field(
        "generic", description="Google's machine family: its networks, NCCL plugin and settings"
    )
    queue: DnsLabel | None = Field(None, description="Kueue LocalQueue")
    queue_priority: Annotated[DnsName, Field(max_length=63)] | None = Field(
        None, description="Kueue WorkloadPriorityClass; needs queue"
    )
    topology: Topology | None = Field(None, description="for Kueue; needs queue")
    priority_class: DnsName | None = Field(
        None, description="PriorityClass of the pods; Kueue's too without queue_priority"
    )
    node_selector: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="labels that nodes must have"
    )
    tolerations: tuple[Toleration, ...] = Field((), description="beside those of GPUs")
    target_nodes: tuple[LabelValue, ...] = Field(
        (), description="kubernetes.io/hostname of the only nodes to use"
    )
    avoid_nodes: tuple[LabelValue, ...] = Field(
        (), description="kubernetes.io/hostname of nodes to leave alone"
    )
    image_pull_secrets: tuple[DnsName, ...] = Field(
        (), description="Secrets with the registry's login"
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="as in a pod's spec"
    )
    service_account: DnsName | None = Field(
        None, description="of the pods, for buckets; unset: the namespace's default"
    )
    resources: dict[ResourceName, Annotated[Quantity, _COUNT]] = Field(
        default_factory=dict,
        description="of each node's pod besides GPUs, such as rdma/rdma_shared_device_a: 1 or cpu: 32",
    )
    annotations: dict[LabelKey, Annotated[str, Field(max_length=10_000)]] = Field(
        default_factory=dict,
        description="of each node's pod, such as k8s.v1.cni.cncf.io/networks for Multus",
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        description="of what is submitted and of each node's pod, such as kai.scheduler/queue",
    )
    pod_spec: PodFragment = Field(
        default_factory=dict,
        description="added to the spec of each node's pod, such as schedulerName or volumes",
    )
    container: ContainerFragment = Field(
        default_factory=dict,
        description="added to each node's container: securityContext, volumeMounts, resources",
    )
    compute_domain: bool = Field(
        False, description="a ComputeDomain over the nodes, for NVLink between them (MNNVL)"
    )
    networks: tuple[DnsName, ...] = Field(
        (), description="GKE networks of the pod's interfaces, eth0 first; unset: the machine's"
    )
    plugin_image: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,500}$",
        description="Google's gIB installer or TCPXO daemon; unset: the machine's",
    )
    host_network: bool = Field(
        False, description="the pods use their hosts' network; ssh_port must be free there"
    )
    host_names: bool = Field(
        False, description="nodes reach each other by DNS names instead of pod addresses"
    )
    shared_memory: str | None = Field(
        None,
        pattern=r"^[1-9]\d*[KMGT]i$",
        description="size of /dev/shm; unset: the machine's",
    )
    volumes: Volumes = Field((), description="of every node")
    secret_env: tuple[SecretVariable, ...] = Field(
        (), description="variables whose value stays in a Secret"
    )
    queue_timeout_s: Seconds = Field(3600, description="seconds until the nodes start")
    start_timeout_s: Seconds = Field(900, description="seconds that started nodes have to answer")
    deadline_s: float = Field(
        4 * 3600,
        ge=60,
        le=7 * 86400,
        description="seconds after which the nodes end by themselves, plus keep_s",
    )

    pulls_images: ClassVar[bool] = True
    isolates: ClassVar[bool] = True
    qualifies: ClassVar[bool] = True

    def architecture(self, hardware: str, here: str) -> str | None:
        return "arm64" if self.machine.startswith("a4x") else None

    def problems(self, cluster: Cluster) -> Iterator[str]:
        if 0 < len(self.target_nodes) < cluster.nodes:
            yield (
                f"nodes: must be at most the {len(self.target_nodes)} of platform.target_nodes, "
                f"is {cluster.nodes}"
            )
        yield from super().problems(cluster)

    @property
    def in_container(self) -> set[str]:
        """The resources of nodes that `container` requests."""
        resources = self.container.get("resources", {})
        return {*resources.get("limits", ()), *resources.get("requests", ())}

    def secret_variables(self) -> tuple[str, ...]:
        return tuple(variable.name for variable in self.secret_env)

    @property
    def priority(self) -> str | None:
        """The class from which Kueue takes the priority, with its kind; None if none is set."""
        if self.queue_priority:
            return f"WorkloadPriorityClass {self.queue_priority}"
        return f"PriorityClass {self.priority_class}" if self.priority_class else None

    def without(self, names: Collection[str], of: Sequence[str]) -> PlatformSettings:
        targets = tuple(name for name in self.target_nodes if name not in names)
        return self.model_copy(
            update={"target_nodes": targets, "avoid_nodes": (*self.avoid_nodes, *names)}
        )

    @property
    def profile(self) -> Machine:
        """The profile of the machine family, with the values that the cluster file overrides."""
        profile = MACHINES[self.machine]
        names = self.networks or [network for _, network in profile.networks]
        installers = [
            {**each, "image": self.plugin_image or each["image"]}
            for each in profile.init_containers
        ]
        own = {
            "networks": tuple(
                (interface, name)
                for (interface, _), name in zip(profile.networks, names, strict=False)
            ),
            "init_containers": tuple(installers),
            "compute_domain": profile.compute_domain or self.compute_domain,
        }
        return profile.model_copy(update=own)

    def moving_parts(self) -> list[str]:
        profile = self.profile
        images = [f"{each['name']} {each['image']}" for each in profile.init_containers]
        networks = [] if self.host_network else [network for _, network in profile.networks]
        return [*images, *([f"networks {', '.join(networks)}"] if networks else [])]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for name in ("topology", "queue_priority"):
            if getattr(self, name) and not self.queue:
                raise ValueError(f"{name}: is Kueue's, so it needs queue")
        if both := sorted(set(self.target_nodes) & set(self.avoid_nodes)):
            raise ValueError(f"avoid_nodes: {both[0]} is among target_nodes too")
        for field, named in (("resources", set(self.resources)), ("container", self.in_container)):
            if gpus := sorted({"nvidia.com/gpu", "amd.com/gpu"} & named):
                raise ValueError(f"{field}: {gpus[0]} is set by gpus_per_node; leave it out here")
        return self
