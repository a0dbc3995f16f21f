"""What every platform promises, on Kubernetes: the tests of tests/contract, on pods."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster as ClusterFile
from seatrial.config.run import Run
from seatrial.model.testbed import Testbed
from seatrial.platforms import Platform, platform_for
from tests.conftest import RUN_PREFIX
from tests.contract.promises import Promises
from tests.e2e.kubernetes.cluster import Cluster


@pytest.fixture
def run(cluster: Cluster, namespace: str, tmp_path: Path) -> Run:
    settings = {"kind": "kubernetes", "namespace": namespace, "image_pull_policy": cluster.pull_policy}
    asked = ClusterFile.model_validate({"name": "test", "nodes": 2, "image": cluster.image, "platform": settings})
    return Run(f"{RUN_PREFIX}{secrets.token_hex(4)}", asked, load_suite("quick"), tmp_path)


@pytest.fixture
def platform(cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch) -> Platform:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    return platform_for(run.cluster)


@pytest.fixture
def stranger(platform: Platform, run: Run) -> Platform:
    return platform_for(run.cluster)


@pytest.fixture
def testbed(platform: Platform, run: Run) -> Iterator[Testbed]:
    try:
        yield platform.launch(run)
    finally:
        platform.teardown(run.run_id)


class TestPromises(Promises):
    """What every platform promises."""
