"""Which kinds of objects a cluster knows: one request per group and version, at their first use, kept nowhere.

The library's own way asks for every group there is, writes what it finds into a file of /tmp whose name anybody can
tell, and believes that file when the cluster has changed, or is another one behind the same address.
"""

from functools import cached_property
from typing import Any

from seatrial.platforms.kubernetes.launchers import Kind
from seatrial.platforms.kubernetes.plan import Object


class Discovery:
    """What the API server behind `client` serves."""

    def __init__(self, client: Any, timeout_s: float) -> None:
        self._client, self._timeout_s = client, timeout_s
        self._served: dict[str, dict[str, Object]] = {}

    @cached_property
    def _dynamic(self) -> Any:
        from kubernetes.dynamic import DynamicClient

        return DynamicClient(self._client, discoverer=lambda client, cache_file: None)

    def resource(self, kind: Kind) -> Any | None:
        """What the library calls with; None where the cluster does not know the kind. Raises the library's errors."""
        from kubernetes.dynamic.resource import Resource

        entry = self._kinds(kind.api_version).get(kind.kind)
        if entry is None:
            return None
        group, _, version = kind.api_version.rpartition("/")
        return Resource(
            prefix="apis" if group else "api",
            group=group,
            api_version=version,
            kind=kind.kind,
            namespaced=entry["namespaced"],
            name=entry["name"],
            client=self._dynamic,
        )

    def versions(self, kind: Kind) -> list[str]:
        """The versions in which the cluster serves a kind, such as batch/v1."""
        group, _, _ = kind.api_version.rpartition("/")
        served = (self._get(f"/apis/{group}") or {}).get("versions", ()) if group else ()
        return [each["groupVersion"] for each in served if kind.kind in self._kinds(each["groupVersion"])]

    def _kinds(self, api_version: str) -> dict[str, Object]:
        """What is served in one version of a group, by kind; what is not there now may be there the next time."""
        if api_version not in self._served:
            listed = self._get(f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}")
            if listed is None:
                return {}
            things = [entry for entry in listed["resources"] if "/" not in entry["name"]]  # without subresources
            self._served[api_version] = {entry["kind"]: entry for entry in things}
        return self._served[api_version]

    def _get(self, path: str) -> Object | None:
        from kubernetes.dynamic.exceptions import NotFoundError

        limit = {"_request_timeout": self._timeout_s}
        try:
            served: Object = self._dynamic.request("GET", path, serializer=lambda _, answer: answer, **limit)
        except NotFoundError:
            return None
        return served
