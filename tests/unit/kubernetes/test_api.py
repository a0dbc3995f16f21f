"""What the API server's refusals mean, and which kinds and versions it serves, by playback."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import NotFoundError

from seatrial.model.errors import LaunchError, MissingError
from seatrial.platforms.kubernetes.api import Api, UnknownKindError, _require_plugin
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.discovery import Discovery
from seatrial.platforms.kubernetes.kueue import WORKLOAD
from seatrial.platforms.kubernetes.plan import Kind


class Served:
    """Stands where discovery does, on a cluster that serves these versions."""

    def __init__(self, *versions: str) -> None:
        self._versions = versions

    def resource(self, kind: Kind) -> str | None:
        return kind.api_version if kind.api_version in self._versions else None

    def versions(self, kind: Kind) -> list[str]:
        return list(self._versions)


def api(*versions: str) -> Api:
    made = Api(KubernetesPlatform(kind="kubernetes"))
    made.__dict__["_discovery"] = Served(*versions)  # where cached_property looks first
    return made


@pytest.mark.parametrize(
    ("served", "read"),
    [
        (("kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"), "kueue.x-k8s.io/v1beta2"),
        (("kueue.x-k8s.io/v1beta1",), "kueue.x-k8s.io/v1beta1"),  # before release 0.15
        (("kueue.x-k8s.io/v1beta2",), "kueue.x-k8s.io/v1beta2"),
    ],
)
def test_kueue_is_read_in_the_version_that_the_cluster_serves(
    served: tuple[str, ...], read: str
) -> None:
    assert api(*served).resource(WORKLOAD) == read


def test_error_for_a_missing_kind_says_what_to_install() -> None:
    with pytest.raises(
        UnknownKindError, match=r"does not know Workload \(kueue.x-k8s.io/v1beta2\): install Kueue"
    ):
        api().resource(WORKLOAD)


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (
            "404 page not found\n",
            UnknownKindError,
            "cannot list: the cluster does not know that kind any more",
        ),
        (
            '{"message": "namespaces \\"n\\" not found"}',
            MissingError,
            "kubectl create namespace default",
        ),
    ],
)
def test_an_unknown_kind_and_a_missing_namespace_are_different_errors(
    body: str, kind: type[Any], message: str
) -> None:
    refused = ApiException(status=404, reason="Not Found")
    refused.body = body
    with pytest.raises(MissingError, match=message) as raised, api().explained("list"):
        raise refused
    assert type(raised.value) is kind


def test_an_api_server_without_the_right_certificate_does_not_answer() -> None:
    refused = ApiException(
        status=0, reason="SSLError\n[SSL: CERTIFICATE_VERIFY_FAILED] IP address mismatch"
    )
    asked = api()
    asked.__dict__["client"] = SimpleNamespace(
        configuration=SimpleNamespace(host="https://k8s.example.com")
    )
    with (
        pytest.raises(
            LaunchError, match=r"k8s.example.com does not answer \(SSLError .* mismatch\)"
        ) as raised,
        asked.explained("list"),
    ):
        raise refused
    assert raised.value.reason.code == "api-server-unreachable"


def test_the_login_plugin_is_that_of_the_named_context_or_of_the_current_one(
    tmp_path: Path,
) -> None:
    users = [
        {"name": "here", "user": {}},
        {"name": "there", "user": {"exec": {"command": "no-such-plugin"}}},
    ]
    contexts = [
        {"name": name, "context": {"cluster": "c", "user": name}} for name in ("here", "there")
    ]
    clusters = [{"name": "c", "cluster": {"server": "https://k8s.example.com"}}]
    file = tmp_path / "kubeconfig"
    described = {
        "clusters": clusters,
        "contexts": contexts,
        "users": users,
        "current-context": "here",
    }
    file.write_text(json.dumps(described))
    for context in (None, "here"):
        _require_plugin(str(file), context)
    with pytest.raises(MissingError, match="no-such-plugin"):
        _require_plugin(str(file), "there")


JOB, JOBSET, POD = (
    Kind("batch/v1", "Job"),
    Kind("jobset.x-k8s.io/v1alpha2", "JobSet"),
    Kind("v1", "Pod"),
)
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
        return {
            "resources": [
                {"name": name, "kind": kind, "namespaced": kind != "Node"}
                for name, _, kind in split
            ]
        }

    monkeypatch.setattr("kubernetes.dynamic.DynamicClient.request", request)
    return paths


@pytest.fixture
def discovery() -> Discovery:
    return Discovery(SimpleNamespace(configuration=None), 1)


def test_each_kind_is_looked_up_by_one_request(discovery: Discovery, asked: list[str]) -> None:
    pod, job, node = (discovery.resource(kind) for kind in (POD, JOB, Kind("v1", "Node")))
    assert pod and job and node
    assert pod.path(namespace="trials", name="p") == "/api/v1/namespaces/trials/pods/p"
    assert job.path(namespace="trials") == "/apis/batch/v1/namespaces/trials/jobs"
    assert node.path(namespace="trials") == "/api/v1/nodes"
    assert asked == ["/api/v1", "/apis/batch/v1"]


def test_missing_kind_is_looked_up_again_each_time(discovery: Discovery, asked: list[str]) -> None:
    assert discovery.resource(JOBSET) is None
    assert discovery.resource(JOBSET) is None
    assert asked == ["/apis/jobset.x-k8s.io/v1alpha2"] * 2


def test_other_served_versions_of_a_kind_are_listed(discovery: Discovery, asked: list[str]) -> None:
    assert discovery.versions(JOBSET) == ["jobset.x-k8s.io/v1beta1"]
    assert discovery.versions(Kind("nobody.example/v1", "Nothing")) == []
    assert discovery.versions(Kind("v1", "Nothing")) == []
