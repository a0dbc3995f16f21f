"""Fake GPU nodes by the hundred (kwok): the API server, scheduler and controllers are real,
kubelets are not.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.kubernetes import addons
from tests.e2e.kubernetes.cluster import Cluster
from tests.site import PATIENCE_S

# On a machine that is busy, four at a time come too late to renew 512 leases, and nodes are taken
# for dead.
PARALLEL = """\
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:  # what is left out is zero, not the default
  nodeLeaseParallelism: 32
  nodePlayStageParallelism: 4
  podPlayStageParallelism: 4
  enablePodsOnNodeSyncStreamWatch: true
  cidr: 10.0.0.0/24
"""
LABEL = "kwok.x-k8s.io/node"
TAINT = {"key": LABEL, "value": "fake", "effect": "NoSchedule"}
TOLERATION = {"key": LABEL, "operator": "Equal", "value": "fake", "effect": "NoSchedule"}


@contextmanager
def fake_nodes(cluster: Cluster, count: int = 512, gpus: int = 8) -> Iterator[tuple[str, ...]]:
    """Nodes "fake-0000" and so on, Ready and tainted; pods that tolerate the taint are Running at
    once.

    Raises:
        Unavailable: kwok cannot be built here.
    """
    machine = cluster.own
    folder = addons.bring_in(machine, addons.KWOK)
    (machine.state / addons.KWOK.name / "parallel.yaml").write_text(PARALLEL)
    files = ("parallel.yaml", "node-initialize.yaml", "pod-ready.yaml", "pod-delete.yaml")
    stages = [f"--config={folder}/{name}" for name in files]
    ours = f"--manage-nodes-with-annotation-selector={LABEL}=fake"
    # With a shorter lease busy nodes become NotReady
    flags = [
        "--kubeconfig=/run/cluster/kubeconfig-admin",
        "--node-lease-duration-seconds=40",
        "--v=WARN",
    ]
    machine.spawn("kwok", f"{folder}/kwok", *flags, ours, *stages)
    names = tuple(f"fake-{index:04}" for index in range(count))
    try:
        objects = [_node(name, index, gpus) for index, name in enumerate(names)]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        cluster.kubectl("create", "--filename", "-", stdin=text)
        _wait_until_ready(cluster, count)
        yield names
    finally:
        cluster.kubectl("delete", "--raw", f"/api/v1/nodes?labelSelector={LABEL}%3Dfake")
        machine.kill("kwok")


def _node(name: str, index: int, gpus: int) -> dict[str, object]:
    prefix = "cloud.google.com/gce-topology-"
    topology = {
        f"{prefix}block": f"block-{index // 128}",
        f"{prefix}subblock": f"subblock-{index // 16}",
    }
    labels = {
        "kubernetes.io/hostname": name,
        LABEL: "fake",
        f"{prefix}host": f"host-{index}",
        **topology,
    }
    resources = {"cpu": "128", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {LABEL: "fake"}},
        "spec": {"taints": [TAINT]},
        "status": {"capacity": resources, "allocatable": resources},
    }


def _wait_until_ready(cluster: Cluster, count: int, timeout_s: float = PATIENCE_S) -> None:
    path = '{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\\n"}{end}'
    deadline = time.monotonic() + timeout_s
    while True:
        statuses = cluster.kubectl(
            "get", "nodes", "--selector", f"{LABEL}=fake", "--output", f"jsonpath={path}"
        )
        if statuses.split().count("True") == count:
            return
        assert time.monotonic() < deadline, cluster.own.log("kwok")
        time.sleep(0.5)
