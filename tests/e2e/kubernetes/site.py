"""deployments/server/kubernetes on a cluster, put there as docs/production.md and the files' first
lines say.
"""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.e2e.conftest import BRIEF
from tests.e2e.kubernetes.cluster import Cluster
from tests.e2e.kubernetes.images import SERVER, build_site, load
from tests.images.lane import ROOT
from tests.site import PATIENCE_S, TLS

NAMESPACE, RUNS_NAMESPACE = "seatrial", "seatrial-runs"
USER, PASSWORD, DATABASE_PASSWORD, HISTORY_PASSWORD = (
    "skipper",
    "wordoftheapi",
    "wordofthedatabase",
    "wordofthehistory",
)
DEPLOYMENTS = ROOT / "deployments"
FILES = DEPLOYMENTS / "server" / "kubernetes"
CLUSTER = "trial.yaml"
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
# Minutes, and a first row within seconds.
LONG = {
    "gpu": {"min_bytes": "1M", "max_bytes": "1M"},
    "cpu": {"min_bytes": "1M", "max_bytes": "64M", "warmup_iterations": 0, "iterations": 60},
    "timeout_s": 300,
}
VOLUMES = {"postgres": "10Gi", "prefect": "1Gi"}


@dataclass(frozen=True, slots=True)
class Site:
    """A site that is up. `url` is a port-forward to its server."""

    cluster: Cluster
    url: str

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("-n", NAMESPACE, *arguments)

    def kubectl_runs(self, *arguments: str) -> str:
        return self.cluster.kubectl("-n", RUNS_NAMESPACE, *arguments)

    def api(self, method: str, path: str, **body: Any) -> Any:
        """One call of Prefect's REST API as the site's user."""
        user = (USER, PASSWORD)
        answer = httpx.request(
            method, f"{self.url}/api{path}", json=body or None, auth=user, timeout=60, verify=TLS
        )
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def start(self, deployment: str, **parameters: Any) -> str:
        """Start a run of a deployment such as "seatrial-check/ad-hoc"; the flow run's id."""
        deployment_id = self.api("GET", f"/deployments/name/{deployment}")["id"]
        return str(
            self.api(
                "POST", f"/deployments/{deployment_id}/create_flow_run", parameters=parameters
            )["id"]
        )

    def switch_off(self, deployment: str) -> None:
        """Its one schedule, as a person does in Prefect's UI."""
        document = self.api("GET", f"/deployments/name/{deployment}")
        (schedule,) = document["schedules"]
        self.api("PATCH", f"/deployments/{document['id']}/schedules/{schedule['id']}", active=False)

    def state(self, flow_run: str) -> dict[str, Any]:
        state: dict[str, Any] = self.api("GET", f"/flow_runs/{flow_run}")["state"]
        return state

    def ended(self, flow_run: str, timeout_s: float = PATIENCE_S) -> tuple[str, str]:
        """Name and message of the state in which the flow run ends."""
        self.until(
            lambda: self.state(flow_run)["type"] in FINAL, timeout_s, lambda: self.log(flow_run)
        )
        state = self.state(flow_run)
        return state["name"], state["message"] or ""

    def log(self, flow_run: str) -> str:
        asked = {
            "logs": {"flow_run_id": {"any_": [flow_run]}},
            "sort": "TIMESTAMP_ASC",
            "limit": 200,
        }
        return "\n".join(line["message"] for line in self.api("POST", "/logs/filter", **asked))

    def sweeping(self) -> str:
        """A run that has just printed the first row of its first operation; its id."""
        flow_run = self.start("seatrial-check/ad-hoc", suite="/clusters/long.yaml")
        self.until(
            lambda: "all_reduce     1M" in self.log(flow_run), 240, lambda: self.log(flow_run)
        )
        assert self.nodes()
        return flow_run

    def pods(self, flow_run: str) -> list[dict[str, Any]]:
        """Those of the run's Job."""
        listing = self.cluster.get(
            "pods", "-n", RUNS_NAMESPACE, "-l", f"prefect.io/flow-run-id={flow_run}"
        )
        items: list[dict[str, Any]] = listing["items"]
        return items

    def jobs(self, flow_run: str) -> list[dict[str, Any]]:
        listing = self.cluster.get(
            "jobs", "-n", RUNS_NAMESPACE, "-l", f"prefect.io/flow-run-id={flow_run}"
        )
        items: list[dict[str, Any]] = listing["items"]
        return items

    def nodes(self) -> str:
        """What runs have up: Jobs, pods, Secrets, Services."""
        kinds = "jobs,pods,secrets,services"
        return self.kubectl_runs(
            "get", kinds, "-l", "app.kubernetes.io/managed-by=seatrial", "--output", "name"
        )

    def until(self, true: Callable[[], bool], timeout_s: float, details: Callable[[], str]) -> None:
        deadline = time.monotonic() + timeout_s
        while not true():
            assert time.monotonic() < deadline, (
                f"it did not happen in time:\n{details()}{self.kubectl('get', 'pods', '-A')}"
            )
            time.sleep(0.5)


@contextmanager
def site(cluster: Cluster, folder: Path) -> Iterator[Site]:
    """The site, its server ready and its worker at work; in the end nothing of it is left on the
    cluster.

    Raises:
        Unavailable: its images cannot be built here.
    """
    _bring_images(cluster)
    manifests = _manifests(folder)
    try:
        _prepare(cluster, folder)
        for how in (["--dry-run=server"], []):
            cluster.kubectl("apply", "--validate=strict", *how, *manifests)
        cluster.kubectl(
            "-n",
            NAMESPACE,
            "rollout",
            "status",
            "deployment/prefect",
            f"--timeout={PATIENCE_S:.0f}s",
        )
        with _forwarded(cluster, folder) as url:
            made = Site(cluster, url)
            made.until(
                lambda: _at_work(made),
                PATIENCE_S,
                lambda: made.kubectl("logs", "deployment/seatrial-worker"),
            )
            yield made
    finally:
        _remove(cluster)


def _bring_images(cluster: Cluster) -> None:
    """To the nodes that will need them: the database stays with its volume, on the first."""
    for name, image in build_site().items():
        load(cluster.own, cluster.nodes if name == SERVER else cluster.nodes[:1], image, name)


def _manifests(folder: Path) -> list[str]:
    """The files as a person changes them: where the image lies, and which cluster is checked."""
    arguments = []
    for file in (folder / "server.yaml", folder / "worker.yaml"):
        text = (FILES / file.name).read_text()
        file.write_text(text.replace("REGISTRY/seatrial", SERVER).replace("a4-gke.yaml", CLUSTER))
        arguments += ["--filename", str(file)]
    return arguments


def _prepare(cluster: Cluster, folder: Path) -> None:
    """What the first lines of role.yaml, server.yaml and worker.yaml ask for, and volumes."""
    for name, size in VOLUMES.items():
        cluster.on_node(cluster.nodes[0], "mkdir", "-p", f"/var/lib/site/{name}")
        cluster.apply(_volume(name, size, cluster.nodes[0]))
    cluster.kubectl("apply", "--filename", str(DEPLOYMENTS / "kubernetes" / "namespaces.yaml"))
    in_runs = ("-n", RUNS_NAMESPACE)
    cluster.kubectl(*in_runs, "apply", "--filename", str(DEPLOYMENTS / "kubernetes" / "role.yaml"))
    init = f"--from-file={DEPLOYMENTS / 'server' / 'init-history.sh'}"
    cluster.kubectl("-n", NAMESPACE, "create", "configmap", "postgres-init", init)
    passwords = {"database-password": DATABASE_PASSWORD, "history-password": HISTORY_PASSWORD}
    login = {"auth": f"{USER}:{PASSWORD}"}
    _make_secret(cluster, NAMESPACE, "seatrial-prefect", login | passwords)
    _make_secret(cluster, RUNS_NAMESPACE, "seatrial-api", login)
    history = f"postgresql://seatrial:{HISTORY_PASSWORD}@postgres.seatrial/seatrial"
    _make_secret(cluster, RUNS_NAMESPACE, "seatrial-run", {"SEATRIAL_HISTORY": history})
    files = [
        f"--from-file={_written(folder / name, content)}"
        for name, content in _files(cluster).items()
    ]
    cluster.kubectl(*in_runs, "create", "configmap", "seatrial-clusters", *files)


def _make_secret(cluster: Cluster, namespace: str, name: str, values: dict[str, str]) -> None:
    literals = (f"--from-literal={key}={value}" for key, value in values.items())
    cluster.kubectl("-n", namespace, "create", "secret", "generic", name, *literals)


def _files(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """A cluster and suites, which a ConfigMap may have as well."""
    platform = {
        "kind": "kubernetes",
        "namespace": RUNS_NAMESPACE,
        "launcher": "job",
        "image_pull_policy": "Never",
    }
    trial = {
        "name": "trial",
        "nodes": 2,
        "slots_per_node": 2,
        "image": cluster.image,
        "platform": platform,
    }
    return {
        CLUSTER: trial,
        "brief.yaml": {"name": "brief", **BRIEF},
        "long.yaml": {"name": "long", "devices": None, "collectives": LONG},
    }


def _written(file: Path, content: dict[str, Any]) -> Path:
    file.write_text(yaml.safe_dump(content))
    return file


def _volume(name: str, size: str, node: str) -> dict[str, Any]:
    """A folder of the node: this cluster has no storage class.

    The kubelet gives it to the pod's group.
    """
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "local": {"path": f"/var/lib/site/{name}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"site-{name}"},
        "spec": spec,
    }


@contextmanager
def _forwarded(cluster: Cluster, folder: Path) -> Iterator[str]:
    """The server's address on this machine, as people get at it."""
    program, kubeconfig = str(cluster.tools / "kubectl"), str(cluster.kubeconfig)
    command = [
        program,
        "--kubeconfig",
        kubeconfig,
        "-n",
        NAMESPACE,
        "port-forward",
        "service/prefect",
        ":4200",
    ]
    log_file = folder / "port-forward.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (address := re.search(r"127\.0\.0\.1:\d+", log_file.read_text())):
            assert time.monotonic() < deadline, log_file.read_text()
            time.sleep(0.1)
        yield f"http://{address[0]}"
    finally:
        process.terminate()
        process.wait(30)


def _at_work(site: Site) -> bool:
    with suppress(httpx.HTTPStatusError):  # 404 until its start script has come that far
        return bool(site.api("POST", "/work_pools/seatrial-kubernetes/workers/filter", limit=10))
    return False


def _remove(cluster: Cluster) -> None:
    """Everything that is named here, whether it came to be or not."""
    for namespace in (NAMESPACE, RUNS_NAMESPACE):
        _remove_namespace(cluster, namespace)
    cluster.kubectl(
        "delete", "clusterrolebinding,clusterrole", "seatrial-nodes", "--ignore-not-found"
    )
    cluster.kubectl("delete", "pv", *(f"site-{name}" for name in VOLUMES), "--ignore-not-found")
    cluster.on_node(cluster.nodes[0], "rm", "-rf", "/var/lib/site")


def _remove_namespace(cluster: Cluster, namespace: str) -> None:
    if not cluster.kubectl("get", "namespace", namespace, "--ignore-not-found", "--output", "name"):
        return
    # Without them nobody makes pods that go slowly
    makers = "deployments,replicasets,statefulsets,jobs"
    cluster.kubectl("-n", namespace, "delete", makers, "--all", "--cascade=orphan")
    cluster.kubectl("delete", "--raw", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=1")
    cluster.kubectl("delete", "namespace", namespace, f"--timeout={PATIENCE_S:.0f}s")
