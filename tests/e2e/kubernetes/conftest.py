"""The lane that runs against a real Kubernetes: minutes the first time, so only when it is asked
for by its path.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from tests.e2e.conftest import Console, until
from tests.e2e.kubernetes import addons, build, kwok, training
from tests.e2e.kubernetes.cluster import Cluster, Unavailable, api_server, leftovers, running, up
from tests.e2e.kubernetes.images import CPU
from tests.e2e.kubernetes.kinds import left
from tests.e2e.kubernetes.machine import Machine
from tests.e2e.kubernetes.queues import Queues
from tests.e2e.kubernetes.standins import standin
from tests.site import PATIENCE_S

T = TypeVar("T")
NUMBERS = itertools.count()
HERE = "tests/e2e/kubernetes"
ROOT = Path(__file__).parents[3]
# Of somebody else's cluster, and the image that its nodes can pull; read before a test clears its
# environment.
KUBECONFIG = os.environ.get("SEATRIAL_TEST_KUBECONFIG")
IMAGE_OF_CLUSTER = os.environ.get("SEATRIAL_TEST_IMAGE", CPU)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.as_posix() and not item.get_closest_marker("timeout"):
            # Whoever comes first waits for Kubernetes to be built
            item.add_marker(pytest.mark.timeout(2400))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes and images/cpu: the given one, or with eight GPUs each the one that is up or one of
    this session.
    """
    if KUBECONFIG:
        yield _existing_cluster(Path(KUBECONFIG))
        return
    if kept := running(Machine()):
        yield kept
        return
    try:
        with up() as own:
            yield own
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert leftovers(Machine()) == []


@pytest.fixture(scope="session")
def nodeless_cluster() -> Iterator[Cluster]:
    """An API server alone, seconds after its programs are built: for what is submitted without
    effect.
    """
    try:
        with api_server() as own:
            yield own
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert leftovers(Machine(2)) == []


@pytest.fixture
def own_cluster(cluster: Cluster) -> Cluster:
    """The same where it is ours to break: kubelets, API server and links can be reached."""
    if not cluster.machine:
        pytest.skip("a cluster that is somebody else's is not broken")
    return cluster


@pytest.fixture
def gpu_cluster(cluster: Cluster) -> Cluster:
    """The same where two nodes have eight GPUs, be it on paper."""
    items = cluster.get("nodes")["items"]
    if sum(int(item["status"]["allocatable"].get("nvidia.com/gpu", 0)) >= 8 for item in items) < 2:
        pytest.skip("the given cluster has no two nodes with eight GPUs")
    return cluster


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty namespace of one test; everything in it goes with it."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:30].strip("-")
    name = f"test-{os.getpid()}-{next(NUMBERS)}-{words}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("wait", "-n", name, "--for=create", "serviceaccount/default", "--timeout=60s")
    yield name
    # All pods by one request, and before the namespace: its own way waits for 10 s, kubectl's goes
    # one by one.
    cluster.kubectl("delete", "--namespace", name, "jobs", "--all", "--wait=false")
    cluster.kubectl("delete", "--raw", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=1")
    until(lambda: not cluster.kubectl("get", "pods", "--namespace", name, "--output", "name"))
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def trial(console: Console, cluster: Cluster, namespace: str) -> Callable[..., Path]:
    """Writes a cluster file for the test's namespace."""
    console.environment["KUBECONFIG"] = str(cluster.kubeconfig)

    def write(nodes: int = 2, image: str = cluster.image, **platform: Any) -> Path:
        policy = cluster.pull_policy
        settings = {
            "kind": "kubernetes",
            "namespace": namespace,
            "image_pull_policy": policy,
            **platform,
        }
        return console.cluster(nodes, platform=settings, image=image, slots_per_node=2)

    return write


@pytest.fixture
def least_rights(
    console: Console, trial: Callable[..., Path], cluster: Cluster, namespace: str
) -> Iterator[None]:
    """The role that ships, and no more: whoever runs in the test is a service account that has
    it.
    """
    role = (ROOT / "deployments" / "kubernetes" / "role.yaml").read_text()
    # What has no namespace has a name of the test's own: the cluster may have a role of that name
    # that is meant.
    role = role.replace("seatrial-nodes", namespace).replace(
        "namespace: seatrial-runs}", f"namespace: {namespace}}}"
    )
    cluster.kubectl("apply", "-n", namespace, "--filename", "-", stdin=role)
    token = cluster.kubectl("create", "token", "seatrial", "-n", namespace).strip()
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
    path = console.folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    console.environment["KUBECONFIG"] = str(path)
    yield
    cluster.kubectl("delete", "-n", namespace, "--ignore-not-found", "--filename", "-", stdin=role)


@pytest.fixture(scope="module")
def fake_nodes(cluster: Cluster) -> Iterator[tuple[str, ...]]:
    """512 nodes with eight GPUs each that only the API server believes in; see kwok.py."""
    yield from _addon(cluster, kwok.fake_nodes)


@pytest.fixture(scope="module")
def training_operator(cluster: Cluster) -> Iterator[None]:
    """Kubeflow's training operator, for PyTorchJobs: the given cluster's, or a real one."""
    if cluster.machine:
        yield from _addon(cluster, training.training_operator)
    else:
        yield from _controller(cluster, "pytorchjob", "pytorchjobs.kubeflow.org")


@pytest.fixture(scope="module")
def jobset(cluster: Cluster) -> Iterator[None]:
    """JobSet: the given cluster's, or a stand-in."""
    yield from _controller(cluster, "jobset", "jobsets.jobset.x-k8s.io")


@pytest.fixture(scope="module")
def mpi_operator(cluster: Cluster) -> Iterator[None]:
    """Kubeflow's MPI operator: the given cluster's, or a stand-in."""
    yield from _controller(cluster, "mpijob", "mpijobs.kubeflow.org")


@pytest.fixture(scope="module")
def trainer(cluster: Cluster, jobset: None) -> Iterator[None]:
    """Kubeflow Trainer with JobSet: the given cluster's, or stand-ins."""
    yield from _controller(cluster, "trainjob", "trainjobs.trainer.kubeflow.org")


@pytest.fixture(scope="module")
def kueue(cluster: Cluster) -> Iterator[None]:
    """Kueue: the given cluster's, or a stand-in.

    It follows the kinds that are there when it starts: name it last.
    """
    yield from _controller(cluster, "kueue", "workloads.kueue.x-k8s.io")


@pytest.fixture
def queues(cluster: Cluster, namespace: str, kueue: None) -> Iterator[Queues]:
    """Makes queues for the namespace, and what stands in them; at the end there is no Workload any
    more.
    """
    made = Queues(cluster, namespace)
    try:
        yield made
        for job in list(made.jobs):
            made.leave(job)
        until(lambda: not made.workloads())  # the garbage collector's, a moment after their owners
        assert left(cluster, namespace) == ""
    finally:
        made.remove()


@pytest.fixture(scope="session")
def helm_program() -> Path:
    """Helm itself, for what needs no cluster."""
    try:
        return addons.folder(addons.HELM) / "helm"
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def helm(cluster: Cluster, helm_program: Path) -> Callable[..., str]:
    """`helm("list", "-A")` against the cluster; its standard output."""

    def run(*arguments: str) -> str:
        command = [str(helm_program), "--kubeconfig", str(cluster.kubeconfig), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


def _addon(cluster: Cluster, start: Callable[[Cluster], AbstractContextManager[T]]) -> Iterator[T]:
    if not cluster.machine:
        pytest.skip("nothing is added to a cluster that is somebody else's")
    try:
        with start(cluster) as added:
            yield added
    except Unavailable as reason:
        pytest.skip(str(reason))


def _controller(cluster: Cluster, name: str, definition: str) -> Iterator[None]:
    if cluster.machine:
        with standin(cluster, name):
            yield
    elif cluster.kubectl("get", "crd", definition, "--ignore-not-found"):
        yield
    else:
        pytest.skip(f"the given cluster does not know {definition}")


def _existing_cluster(kubeconfig: Path) -> Cluster:
    program = shutil.which("kubectl")
    bare = Cluster(
        kubeconfig,
        (),
        Path(program).parent if program else build.programs(),
        image=IMAGE_OF_CLUSTER,
    )
    items = json.loads(bare.kubectl("get", "nodes", "--output", "json"))["items"]
    names = tuple(item["metadata"]["name"] for item in items if _takes_pods(item))
    assert len(names) >= 2, (
        f"{kubeconfig}: {len(names)} nodes take pods of any kind, and these tests need two"
    )
    return Cluster(kubeconfig, names, bare.tools, image=IMAGE_OF_CLUSTER)


def _takes_pods(node: dict[str, Any]) -> bool:
    """Whether it has no taint that the pods of a run do not tolerate."""
    return all(taint["key"] == "nvidia.com/gpu" for taint in node["spec"].get("taints", ()))
