"""The rights that a run needs on a Kubernetes cluster, and those of `qualify` besides.

deployments/kubernetes/role.yaml grants exactly `rights`.
"""

from typing import TYPE_CHECKING

from seatrial.platforms.kubernetes.api import Permission
from seatrial.platforms.kubernetes.launchers import Launcher
from seatrial.platforms.kubernetes.machines import Machine

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

_MADE = ("create", "patch", "list", "deletecollection")
# Rights of every run, in addition to those for its launcher's objects
_RIGHTS = (
    Permission("", "secrets", _MADE, "give the nodes the run's keys, and take them away"),
    Permission("", "services", _MADE, "give the nodes names"),
    Permission(
        "", "pods", ("list", "watch", "deletecollection"), "see the nodes come up, and remove them"
    ),
    # A WebSocket is opened with GET; since Kubernetes 1.35 the API server requires create too.
    Permission("", "pods/portforward", ("get", "create"), "reach the nodes' sshd"),
    Permission(
        "",
        "pods/log",
        ("get",),
        "keep the nodes' logs, show the last words of one that does not come up",
    ),
    Permission(
        "", "events", ("list", "watch"), "say why pods are not admitted, and keep what happened"
    ),
    Permission(
        "",
        "nodes",
        ("list",),
        "order the hosts by topology, check the GPUs",
        cluster_wide=True,
        optional=True,
    ),
)
_QUEUE_RIGHTS = (
    Permission("kueue.x-k8s.io", "workloads", ("list", "watch"), "say what the queue waits for"),
    Permission("kueue.x-k8s.io", "localqueues", ("list",), "see whether the queue is there"),
)


def qualify_rights(cluster: "Cluster") -> list[Permission]:
    """Return the additional rights that `qualify` needs, exactly those that
    deployments/kubernetes/qualify.yaml grants.
    """
    if cluster.qualify is None:
        return []
    verbs = ("list",) if cluster.qualify.dry_run else ("list", "patch")
    needed = [
        Permission(
            "",
            "nodes",
            verbs,
            "find idle nodes, and let nodes in or keep them out",
            cluster_wide=True,
        ),
        Permission("", "pods", ("list",), "see which nodes are idle", cluster_wide=True),
    ]
    if not cluster.qualify.dry_run:
        needed.append(
            Permission("", "nodes/status", ("patch",), "set SeatrialQualified", cluster_wide=True)
        )
    return needed


def rights(launcher: Launcher, queue: bool, profile: Machine) -> list[Permission]:
    """Return every right that a run needs with this launcher on such machines."""
    group = launcher.kind.api_version.rpartition("/")[0]
    plural = f"{launcher.kind.kind.lower()}s"
    needed = [
        Permission(
            group,
            plural,
            ("create", "list", "watch", "deletecollection"),
            "submit, follow and remove the nodes",
        ),
        *_RIGHTS,
    ]
    if launcher.kind.kind == "TrainJob":
        needed.append(Permission(group, "trainingruntimes", _MADE, "bring the run's own runtime"))
    if profile.compute_domain:
        needed.append(
            Permission("resource.nvidia.com", "computedomains", _MADE, "join the nodes' NVLinks")
        )
    if profile.rdma_claims:
        needed.append(
            Permission("resource.k8s.io", "resourceclaimtemplates", _MADE, "claim RDMA interfaces")
        )
    if queue:
        needed += _QUEUE_RIGHTS
    return needed
