"""What every platform promises, on Kubernetes: the tests of tests/contract, on pods."""

from pathlib import Path

import pytest

from seatrial.config.run import Run
from tests.contract.promises import Promises
from tests.e2e.kubernetes.cluster import Cluster
from tests.quick_run import quick_run


@pytest.fixture
def run(cluster: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    settings = {
        "kind": "kubernetes",
        "namespace": namespace,
        "image_pull_policy": cluster.pull_policy,
    }
    return quick_run(tmp_path, nodes=2, image=cluster.image, platform=settings)


class TestPromises(Promises):
    """What every platform promises."""
