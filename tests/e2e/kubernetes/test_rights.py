"""Who may do what with the files that ship, asked of a real API server: Pod Security and RBAC.

No pod runs.
"""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.config.cluster import Cluster as ClusterFile
from tests.e2e.kubernetes.cluster import Cluster
from tests.unit.kubernetes.golden import CLUSTERS, rendered_of
from tests.unit.kubernetes.test_render import pod_specs

pytestmark = pytest.mark.gate

DEPLOYMENTS = Path(__file__).parents[3] / "deployments"
SERVER, RUNS = "seatrial", "seatrial-runs"
RUN, WORKER = (
    f"system:serviceaccount:{RUNS}:seatrial",
    f"system:serviceaccount:{SERVER}:seatrial-worker",
)
ADMITTED = "pod/tried created"  # as kubectl says it
MANIFESTS = [
    DEPLOYMENTS / "server" / "kubernetes" / name for name in ("server.yaml", "worker.yaml")
]


@pytest.fixture(scope="module")
def site(nodeless_cluster: Cluster) -> Cluster:
    """Everything applied as the files' first lines say; nothing comes of it, and it goes with the
    API server.
    """
    nodeless_cluster.kubectl(
        "apply", "--filename", str(DEPLOYMENTS / "kubernetes" / "namespaces.yaml")
    )
    nodeless_cluster.kubectl(
        "-n", RUNS, "apply", "--filename", str(DEPLOYMENTS / "kubernetes" / "role.yaml")
    )
    for manifest in MANIFESTS:
        nodeless_cluster.kubectl("apply", "--validate=strict", "--filename", str(manifest))
    for namespace in (SERVER, RUNS):
        _make_default_account(nodeless_cluster, namespace)
    return nodeless_cluster


@pytest.fixture
def baseline(nodeless_cluster: Cluster) -> Iterator[str]:
    """A namespace under the Pod Security Standard "baseline"."""
    name = f"baseline-{secrets.token_hex(4)}"
    nodeless_cluster.kubectl("create", "namespace", name)
    nodeless_cluster.kubectl(
        "label", "namespace", name, "pod-security.kubernetes.io/enforce=baseline"
    )
    _make_default_account(nodeless_cluster, name)
    yield name
    nodeless_cluster.kubectl("delete", "namespace", name, "--wait=false")


def _make_default_account(cluster: Cluster, namespace: str) -> None:
    """A controller makes it where there is one; without it every pod is refused."""
    cluster.kubectl("-n", namespace, "create", "serviceaccount", "default")


def submit(cluster: Cluster, namespace: str, spec: dict[str, Any]) -> str:
    """Submit a pod without effect; what kubectl says.

    AssertionError with the server's words where it is refused.
    """
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "tried"},
        "spec": {**spec, "serviceAccountName": None},
    }
    return cluster.kubectl(
        "-n", namespace, "create", "--dry-run=server", "--filename", "-", stdin=json.dumps(pod)
    )


def site_pods() -> Iterator[dict[str, Any]]:
    """Specs of server, database and worker, with the volumes that a StatefulSet's claims become."""
    for manifest in (each for file in MANIFESTS for each in yaml.safe_load_all(file.read_text())):
        for spec in pod_specs(manifest):
            names = [
                claim["metadata"]["name"]
                for claim in manifest["spec"].get("volumeClaimTemplates", ())
            ]
            claimed = [
                {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names
            ]
            yield {**spec, "volumes": [*spec["volumes"], *claimed]}


def node(**changes: Any) -> dict[str, Any]:
    """The spec of a node's pod."""
    asked = {
        key: value
        for key, value in CLUSTERS["job"].items()
        if key not in ("gpus_per_node", "hardware")
    }
    (spec,) = pod_specs(
        list(yaml.safe_load_all(rendered_of(ClusterFile.model_validate(asked | changes))))
    )
    return spec


def may(cluster: Cluster, account: str, namespace: str, verb: str, resource: str) -> bool:
    """Whether the account has that right; `resource` is its name, with its group where it has one:
    jobs.batch.
    """
    name, _, group = resource.partition(".")
    asked = {"namespace": namespace, "verb": verb, "resource": name, "group": group}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": account, "resourceAttributes": asked},
    }
    answer = cluster.kubectl(
        "create", "--output", "json", "--filename", "-", stdin=json.dumps(review)
    )
    return bool(json.loads(answer)["status"]["allowed"])


def test_server_namespace_admits_shipped_pods_and_refuses_privileged_ones(
    site: Cluster,
) -> None:
    pods = list(site_pods())
    assert len(pods) == 3
    for spec in pods:
        assert ADMITTED in submit(site, SERVER, spec)
    with pytest.raises(AssertionError, match=r'violates PodSecurity "restricted:latest"'):
        submit(site, SERVER, node())


def test_the_namespace_of_the_runs_admits_nodes_with_and_without_gpus(site: Cluster) -> None:
    assert ADMITTED in submit(site, RUNS, node())
    assert ADMITTED in submit(site, RUNS, node(gpus_per_node=8, hardware={"name": "test"}))


def test_baseline_policy_admits_nodes_without_gpus_and_refuses_nodes_with_gpus(
    nodeless_cluster: Cluster, baseline: str
) -> None:
    assert ADMITTED in submit(nodeless_cluster, baseline, node())
    with pytest.raises(
        AssertionError,
        match=r'violates PodSecurity "baseline:latest": non-default capabilities.*IPC_LOCK',
    ):
        submit(nodeless_cluster, baseline, node(gpus_per_node=8, hardware={"name": "test"}))


@pytest.mark.parametrize("verb", ["get", "list", "watch", "delete"])
def test_a_run_reaches_no_secret_of_the_server(site: Cluster, verb: str) -> None:
    assert may(site, RUN, RUNS, "list", "secrets")
    assert not may(site, RUN, SERVER, verb, "secrets")


@pytest.mark.parametrize("account", [RUN, WORKER])
def test_service_accounts_may_create_jobs_only_in_the_namespace_of_runs(
    site: Cluster, account: str
) -> None:
    """A Job or a pod beside the server could mount its Secrets."""
    assert may(site, account, RUNS, "create", "jobs.batch")
    assert not may(site, account, SERVER, "create", "jobs.batch")
    assert not may(site, account, SERVER, "create", "pods")
    assert not may(site, WORKER, RUNS, "list", "secrets")
