"""What a run must be allowed to do; deployments/kubernetes/role.yaml grants exactly this."""

from dataclasses import dataclass

from seatrial.platforms.kubernetes.launchers import Launcher
from seatrial.platforms.kubernetes.machines import Machine

_MADE = ("create", "patch", "list", "deletecollection")


@dataclass(frozen=True, slots=True)
class Permission:
    """Some verbs on a resource; `why` is what goes without it. Cluster-wide where the resource has no namespace."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    cluster_wide: bool = False
    optional: bool = False


LOOKUPS = (  # of `seatrial doctor` alone, which says nothing of what it may not see
    Permission("", "persistentvolumeclaims", ("list",), "see whether volumes are there"),
    Permission("", "serviceaccounts", ("list",), "see whether the nodes' account is there"),
    Permission("scheduling.k8s.io", "priorityclasses", ("list",), "see whether the class is there", cluster_wide=True),
    Permission("storage.k8s.io", "storageclasses", ("list",), "tell a claim that waits for pods", cluster_wide=True),
    Permission("storage.k8s.io", "csidrivers", ("list",), "see whether buckets can be mounted", cluster_wide=True),
)


def rights(launcher: Launcher, queue: bool, profile: Machine) -> list[Permission]:
    """Every right that a run needs with this launcher on such machines."""
    group, plural = _plural(launcher)
    needed = [
        Permission(
            group, plural, ("create", "list", "watch", "deletecollection"), "submit, follow and remove the nodes"
        ),
        Permission("", "secrets", _MADE, "give the nodes the run's keys, and take them away"),
        Permission("", "services", _MADE, "give the nodes names"),
        Permission("", "pods", ("list", "watch", "deletecollection"), "see the nodes come up, and remove them"),
        # A WebSocket is opened with GET; since Kubernetes 1.35 the API server wants create for it as well.
        Permission("", "pods/portforward", ("get", "create"), "reach the nodes' sshd"),
        Permission("", "pods/log", ("get",), "keep the nodes' logs, show the last words of one that does not come up"),
        Permission("", "events", ("list", "watch"), "say why pods are not admitted, and keep what happened"),
        Permission(
            "", "nodes", ("list",), "order the hosts by topology, check the GPUs", cluster_wide=True, optional=True
        ),
    ]
    if launcher.kind.kind == "TrainJob":
        needed.append(Permission(group, "trainingruntimes", _MADE, "bring the run's own runtime"))
    if profile.compute_domain:
        domains = Permission("resource.nvidia.com", "computedomains", _MADE, "join the nodes' NVLinks")
        needed.append(domains)
    if profile.rdma_claims:
        claims = Permission("resource.k8s.io", "resourceclaimtemplates", _MADE, "claim RDMA interfaces")
        needed.append(claims)
    if queue:
        needed.append(Permission("kueue.x-k8s.io", "workloads", ("list", "watch"), "say what the queue waits for"))
        needed.append(Permission("kueue.x-k8s.io", "localqueues", ("list",), "see whether the queue is there"))
    return needed


def _plural(launcher: Launcher) -> tuple[str, str]:
    group = launcher.kind.api_version.rpartition("/")[0]
    return group, f"{launcher.kind.kind.lower()}s"
