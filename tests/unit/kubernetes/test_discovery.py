"""Which kinds a cluster knows, by a playback of what the API server serves."""

from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import NotFoundError

from seatrial.platforms.kubernetes.api import Discovery
from seatrial.platforms.kubernetes.plan import Kind

JOB, JOBSET, POD = Kind("batch/v1", "Job"), Kind("jobset.x-k8s.io/v1alpha2", "JobSet"), Kind("v1", "Pod")
SERVED = {
    "/api/v1": ["pods/Pod", "pods/log/Pod", "nodes/Node"],
    "/apis/batch/v1": ["jobs/Job"],
    "/apis/jobset.x-k8s.io/v1beta1": ["jobsets/JobSet"],
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were asked for."""
    paths: list[str] = []

    def request(client: Any, method: str, path: str, **options: Any) -> dict[str, Any]:
        paths.append(path)
        if path == "/apis/jobset.x-k8s.io":
            return {"versions": [{"groupVersion": "jobset.x-k8s.io/v1beta1"}]}
        if path not in SERVED:
            raise NotFoundError(ApiException(status=404))
        split = [each.rpartition("/") for each in SERVED[path]]
        return {"resources": [{"name": name, "kind": kind, "namespaced": kind != "Node"} for name, _, kind in split]}

    monkeypatch.setattr("kubernetes.dynamic.DynamicClient.request", request)
    return paths


@pytest.fixture
def discovery() -> Discovery:
    return Discovery(SimpleNamespace(configuration=None), 1)


def test_a_kind_is_found_by_one_request(discovery: Discovery, asked: list[str]) -> None:
    pod, job, node = (discovery.resource(kind) for kind in (POD, JOB, Kind("v1", "Node")))
    assert pod and job and node
    assert pod.path(namespace="trials", name="p") == "/api/v1/namespaces/trials/pods/p"
    assert job.path(namespace="trials") == "/apis/batch/v1/namespaces/trials/jobs"
    assert node.path(namespace="trials") == "/api/v1/nodes"
    assert asked == ["/api/v1", "/apis/batch/v1"]


def test_what_is_not_there_is_asked_for_again(discovery: Discovery, asked: list[str]) -> None:
    assert discovery.resource(JOBSET) is None
    assert discovery.resource(JOBSET) is None
    assert asked == ["/apis/jobset.x-k8s.io/v1alpha2"] * 2


def test_other_versions_are_told(discovery: Discovery, asked: list[str]) -> None:
    assert discovery.versions(JOBSET) == ["jobset.x-k8s.io/v1beta1"]
    assert discovery.versions(Kind("nobody.example/v1", "Nothing")) == []
    assert discovery.versions(Kind("v1", "Nothing")) == []
