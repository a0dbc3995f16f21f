"""The lane that runs against a real Kubernetes: minutes the first time, so only when it is asked for by its path."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kubernetes import build
from tests.e2e.kubernetes.cluster import Cluster, Unavailable, leftovers, running, up
from tests.e2e.kubernetes.images import CPU
from tests.e2e.kubernetes.machine import Machine

HERE = "tests/e2e/kubernetes"
# Of somebody else's cluster, and the image that its nodes can pull; read before a test clears its environment.
GIVEN = os.environ.get("SEATRIAL_TEST_KUBECONFIG")
GIVEN_IMAGE = os.environ.get("SEATRIAL_TEST_IMAGE", CPU)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return None if any(HERE in argument for argument in config.args) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.as_posix() and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(2400))  # whoever comes first waits for Kubernetes to be built


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes with eight GPUs each and images/cpu: the given one, the one that is up, or one of this session."""
    if GIVEN:
        yield _given(Path(GIVEN))
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


@pytest.fixture
def own_cluster(cluster: Cluster) -> Cluster:
    """The same where it is ours to break: kubelets, API server and links can be reached."""
    if not cluster.machine:
        pytest.skip("a cluster that is somebody else's is not broken")
    return cluster


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty namespace of one test; everything in it goes with it."""
    name = f"test-{os.getpid()}-{request.node.name.replace('_', '-').lower()[:40].strip('-')}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("wait", "-n", name, "--for=create", "serviceaccount/default", "--timeout=60s")
    yield name
    cluster.kubectl("delete", "--namespace", name, "jobs,pods", "--all", "--now")  # the namespace's own way takes 10 s
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def _given(kubeconfig: Path) -> Cluster:
    found = shutil.which("kubectl")
    bare = Cluster(kubeconfig, (), Path(found).parent if found else build.programs(), image=GIVEN_IMAGE)
    items = json.loads(bare.kubectl("get", "nodes", "--output", "json"))["items"]
    names = tuple(item["metadata"]["name"] for item in items if "nvidia.com/gpu" in item["status"]["allocatable"])
    return Cluster(kubeconfig, names, bare.tools, image=GIVEN_IMAGE)
