"""512 nodes: what one launch asks of the API server does not grow with them, and waiting asks
nothing.
"""

import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.rest import RESTClientObject

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster as ClusterFile
from seatrial.config.run import Run
from seatrial.model.testbed import Testbed
from seatrial.platforms import Platform, platform_for
from seatrial.platforms.kubernetes.launchers import kinds
from tests.conftest import RUN_PREFIX
from tests.e2e.conftest import until
from tests.e2e.kubernetes import kwok
from tests.e2e.kubernetes.cluster import Cluster


class Requests:
    """Everything that this process asks of the API server, by method and path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, str]] = []
        original = RESTClientObject.request

        def request(client: Any, method: str, url: str, *arguments: Any, **keywords: Any) -> Any:
            path = re.sub(rf"{RUN_PREFIX}[0-9a-f]{{8}}", "RUN", url.partition("/api")[2])
            self.seen.append((method, re.sub(r"resourceVersion=\d+", "resourceVersion=N", path)))
            return original(client, method, url, *arguments, **keywords)

        monkeypatch.setattr(RESTClientObject, "request", request)

    @contextmanager
    def during(self, phase: str) -> Iterator[Counter[tuple[str, str]]]:
        """Those of a block; and for people how long it took, and how much of that this process
        computed.
        """
        counted: Counter[tuple[str, str]] = Counter()
        before, started, computed = len(self.seen), time.monotonic(), time.process_time()
        yield counted
        counted.update(self.seen[before:])
        took, of_it = time.monotonic() - started, time.process_time() - computed
        print(f"{phase}: {took:.1f} s, {of_it:.1f} s of it ours, {counted.total()} requests")


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    return Requests(monkeypatch)


def platform_and_run(
    cluster: Cluster, namespace: str, nodes: int, folder: Path, **selector: str
) -> tuple[Platform, Run]:
    """A run on fake nodes, whose pods are Ready though nobody can reach them."""
    settings = {
        "kind": "kubernetes",
        "namespace": namespace,
        "node_selector": {kwok.LABEL: "fake", **selector},
        "tolerations": [kwok.TOLERATION],
    }
    file = {
        "name": "scale",
        "nodes": nodes,
        "gpus_per_node": 8,
        "hardware": {"name": "test"},
        "image": cluster.image,
    }
    cluster_file = ClusterFile.model_validate({**file, "platform": settings})
    return platform_for(cluster_file), Run(
        f"{RUN_PREFIX}{secrets.token_hex(4)}", cluster_file, load_suite("quick"), folder
    )


def in_topology_order(testbed: Testbed) -> bool:
    """Whether each block's and each subblock's nodes stand together."""
    hosts = [int(node.name.removeprefix("fake-")) for node in testbed.nodes]
    domains = ([host // size for host in hosts] for size in (128, 16))
    return all(len(list(groupby(domain))) == len(set(domain)) for domain in domains)


@pytest.fixture(autouse=True)
def here(own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster that is meant."""
    monkeypatch.setenv("KUBECONFIG", str(own_cluster.kubeconfig))


def test_requests_do_not_grow_with_the_nodes(
    own_cluster: Cluster,
    fake_nodes: tuple[str, ...],
    namespace: str,
    requests: Requests,
    tmp_path: Path,
) -> None:
    counts = []
    for nodes in (64, 512):
        platform, run = platform_and_run(own_cluster, namespace, nodes, tmp_path)
        try:
            with requests.during(f"launch of {nodes} nodes") as launch:
                testbed = platform.launch(run)
            assert len({node.address for node in testbed.nodes}) == nodes
            assert in_topology_order(testbed)
            with requests.during(f"leftovers beside {nodes} nodes") as leftovers:
                assert platform.leftovers() == []
        finally:
            with requests.during(f"teardown of {nodes} nodes") as teardown:
                platform.teardown(run.run_id)
        counts.append((launch, leftovers, teardown))
    for few, many in zip(*counts, strict=True):
        # Others may have installed a kind meanwhile
        assert many.total() <= few.total() + len(kinds()), many - few


def test_waiting_sends_no_requests(
    own_cluster: Cluster,
    fake_nodes: tuple[str, ...],
    namespace: str,
    requests: Requests,
    tmp_path: Path,
) -> None:
    """Pods that find no node are watched; once there are nodes for them, the launch goes on."""
    platform, run = platform_and_run(
        own_cluster, namespace, 2, tmp_path, **{"test/pool": namespace}
    )
    testbeds: list[Testbed] = []
    launch = threading.Thread(target=lambda: testbeds.append(platform.launch(run)))
    launch.start()
    try:
        until(lambda: len(own_cluster.get("pods", "-n", namespace)["items"]) == 2)
        # Pods, Job and events
        until(lambda: sum("watch=" in path for _, path in requests.seen) == 3)
        before = len(requests.seen)
        time.sleep(10)  # silence shows only with time: longer than anybody who polls would wait
        assert requests.seen[before:] == []
        own_cluster.kubectl("label", "node", *fake_nodes[:2], f"test/pool={namespace}")
        launch.join(60)
        assert [node.name for node in testbeds[0].nodes] == list(fake_nodes[:2])
    finally:
        platform.teardown(run.run_id)
        launch.join(60)
    assert not launch.is_alive()
