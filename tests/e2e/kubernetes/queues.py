"""Kueue's queues for one test, and others who stand in them.

What has no namespace is called by the test's.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.e2e.kubernetes.cluster import Cluster

_API = "kueue.x-k8s.io/v1beta2"
_CLUSTER_WIDE = ("clusterqueues", "resourceflavors", "topologies", "workloadpriorityclasses")
_TEST = "seatrial/test"


@dataclass(slots=True)
class Queues:
    """Of one namespace."""

    cluster: Cluster
    namespace: str
    jobs: list[str] = field(default_factory=list)

    @property
    def flavor(self) -> str:
        return f"{self.namespace}-flavor"

    def make(self, name: str = "night", levels: tuple[str, ...] = (), pods: int = 2) -> None:
        """A LocalQueue with a ClusterQueue of its own for that many pods; `levels` are those of its
        topology.
        """
        flavors = [{"name": self.flavor, "resources": [{"name": "pods", "nominalQuota": pods}]}]
        group = {"coveredResources": ["pods"], "flavors": flavors}
        preemption = {"withinClusterQueue": "LowerPriority"}
        spec = {"namespaceSelector": {}, "resourceGroups": [group], "preemption": preemption}
        # A flavor with a topology must have a label.
        places = (
            {"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": self.namespace}
            if levels
            else {}
        )
        objects = [
            self._object("ResourceFlavor", self.flavor, spec=places),
            self._object("ClusterQueue", self.namespace, spec=spec),
            self._object(
                "LocalQueue", name, namespace=self.namespace, spec={"clusterQueue": self.namespace}
            ),
        ]
        if levels:
            topology = {"levels": [{"nodeLabel": level} for level in levels]}
            objects.insert(0, self._object("Topology", self.namespace, spec=topology))
        self.cluster.apply(*objects)

    def priority(self, name: str, value: int) -> str:
        """A WorkloadPriorityClass; its name."""
        whole = f"{self.namespace}-{name}"[-63:].strip("-")
        self.cluster.apply(self._object("WorkloadPriorityClass", whole, value=value))
        return whole

    def occupy(self, queue: str = "night", pods: int = 2, priority: str | None = None) -> str:
        """Somebody else's Job, which takes its share of the queue's quota and nothing of the nodes;
        its name.
        """
        name = f"other-{len(self.jobs)}"
        pod = {
            "restartPolicy": "Never",
            "nodeSelector": {_TEST: "nowhere"},
            "containers": [{"name": "idle", "image": self.cluster.image}],
        }
        labels = {"kueue.x-k8s.io/queue-name": queue}
        if priority:
            labels["kueue.x-k8s.io/priority-class"] = priority
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels},
            "spec": {
                "suspend": True,
                "parallelism": pods,
                "completions": pods,
                "template": {"spec": pod},
            },
        }
        self.cluster.apply(job)
        self.jobs.append(name)
        return name

    def leave(self, job: str) -> None:
        """Somebody else is done."""
        self.cluster.kubectl("delete", "job", job, "--namespace", self.namespace, "--wait=false")
        self.jobs.remove(job)

    def workloads(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.cluster.get("workloads", "--namespace", self.namespace)[
            "items"
        ]
        return items

    def workload_of(self, job: str) -> str:
        """The name of the Workload of the one job whose name begins so."""
        owners = {
            each["metadata"]["name"]: each["metadata"]["ownerReferences"][0]["name"]
            for each in self.workloads()
        }
        (workload,) = (name for name, owner in owners.items() if owner.startswith(job))
        return str(workload)

    def admitted(self) -> list[str]:
        """Whose Workloads are admitted."""
        return [
            workload["metadata"]["ownerReferences"][0]["name"]
            for workload in self.workloads()
            for condition in workload.get("status", {}).get("conditions", ())
            if (condition["type"], condition["status"]) == ("Admitted", "True")
        ]

    def remove(self) -> None:
        """Everything that this made and that the namespace's end would not take along."""
        for kind in _CLUSTER_WIDE:
            self.cluster.kubectl(
                "delete", kind, "--selector", f"{_TEST}={self._mark}", "--wait=false"
            )

    @property
    def _mark(self) -> str:
        return self.namespace[:63].strip("-")

    def _object(
        self, kind: str, name: str, namespace: str | None = None, **more: Any
    ) -> dict[str, Any]:
        metadata = {"name": name, "labels": {_TEST: self._mark}} | (
            {"namespace": namespace} if namespace else {}
        )
        return {"apiVersion": _API, "kind": kind, "metadata": metadata, **more}
