"""What a run may have made on a cluster, of every kind that the cluster knows."""

from seatrial.platforms.kubernetes.kueue import WORKLOAD
from seatrial.platforms.kubernetes.launchers import kinds
from tests.e2e.kubernetes.cluster import Cluster

OURS = "app.kubernetes.io/managed-by=seatrial"


def known(cluster: Cluster) -> list[str]:
    """The kinds that a run of any launcher makes and the cluster knows, as kubectl calls them, such
    as "jobs.batch".
    """
    rows = (row.split() for row in cluster.kubectl("api-resources", "--no-headers").splitlines())
    served = {(_group(row[-3]), row[-1]): row[0] for row in rows}
    own_kinds = [(_group(kind.api_version), kind.kind) for kind in kinds()]
    return [
        f"{served[group, kind]}.{group}".rstrip(".")
        for group, kind in own_kinds
        if (group, kind) in served
    ]


def left(cluster: Cluster, namespace: str) -> str:
    """What seatrial's runs have left in the namespace; Kueue's Workloads too, which name their
    owner.
    """
    every = ",".join(known(cluster))
    labelled = cluster.kubectl(
        "get", every, "-n", namespace, "-l", OURS, "--no-headers", "--output", "name"
    )
    return labelled + "".join(
        f"workload/{name}\n" for name in workloads(cluster, namespace, "seatrial-")
    )


def workloads(cluster: Cluster, namespace: str, prefix: str = "") -> list[str]:
    """Kueue's Workloads whose owner's name begins so; none where the cluster does not know
    Kueue.
    """
    name = f"workloads.{_group(WORKLOAD.api_version)}"
    if name not in cluster.kubectl("get", "crd", name, "--ignore-not-found", "--output", "name"):
        return []
    metadata = [each["metadata"] for each in cluster.get(name, "-n", namespace)["items"]]
    return [each["name"] for each in metadata if _owner(each).startswith(prefix)]


def _owner(metadata: dict[str, list[dict[str, str]]]) -> str:
    return next((owner["name"] for owner in metadata.get("ownerReferences", ())), "")


def _group(api_version: str) -> str:
    """ "batch" of batch/v1, nothing of v1."""
    return api_version.rpartition("/")[0]
