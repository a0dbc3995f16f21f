"""What the API server's refusals come to, and which version of a kind is read."""

from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from seatrial.model.errors import LaunchError, MissingError
from seatrial.model.reason import code_of
from seatrial.platforms.kubernetes.api import Api, UnknownKindError
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.plan import Kind
from seatrial.platforms.kubernetes.waiting import WORKLOAD


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
def test_kueue_is_read_in_the_version_that_the_cluster_serves(served: tuple[str, ...], read: str) -> None:
    assert api(*served).resource(WORKLOAD) == read


def test_a_kind_that_is_not_there_says_what_to_install() -> None:
    with pytest.raises(UnknownKindError, match=r"does not know Workload \(kueue.x-k8s.io/v1beta2\): install Kueue"):
        api().resource(WORKLOAD)


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ("404 page not found\n", UnknownKindError, "cannot list: the cluster does not know that kind any more"),
        ('{"message": "namespaces \\"n\\" not found"}', MissingError, "kubectl create namespace default"),
    ],
)
def test_what_is_not_found_is_told_apart(body: str, kind: type[Any], message: str) -> None:
    refused = ApiException(status=404, reason="Not Found")
    refused.body = body
    with pytest.raises(MissingError, match=message) as raised, api().explained("list"):
        raise refused
    assert type(raised.value) is kind


def test_an_api_server_without_the_right_certificate_does_not_answer() -> None:
    refused = ApiException(status=0, reason="SSLError\n[SSL: CERTIFICATE_VERIFY_FAILED] IP address mismatch")
    asked = api()
    asked.__dict__["client"] = SimpleNamespace(configuration=SimpleNamespace(host="https://k8s.example.com"))
    with (
        pytest.raises(LaunchError, match=r"k8s.example.com does not answer \(SSLError .* mismatch\)") as raised,
        asked.explained("list"),
    ):
        raise refused
    assert code_of(raised.value.reason) == "api-server-unreachable"
