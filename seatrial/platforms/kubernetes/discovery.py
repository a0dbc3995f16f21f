"""The kinds of objects that a cluster knows."""

from functools import cached_property
from typing import Any

from seatrial.platforms.kubernetes.plan import Kind, Object


class Discovery:
    """The kinds of objects that a cluster knows: one request per group and version, at their first
    use.

    The library's own discovery asks for every group, caches the answer in a file of /tmp with a
    predictable name, and trusts that file when the cluster has changed.
    """

    def __init__(self, client: Any, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._served: dict[str, dict[str, Object]] = {}

    @cached_property
    def _dynamic(self) -> Any:
        from kubernetes.dynamic import DynamicClient

        return DynamicClient(self._client, discoverer=lambda client, cache_file: None)

    def resource(self, kind: Kind) -> Any | None:
        """Return the library's resource of a kind; None if the cluster does not know it.

        Raises the library's errors.
        """
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
        """Return the versions in which the cluster serves a kind, such as batch/v1."""
        group, _, _ = kind.api_version.rpartition("/")
        served = (self._get(f"/apis/{group}") or {}).get("versions", ()) if group else ()
        return [
            each["groupVersion"]
            for each in served
            if kind.kind in self._kinds(each["groupVersion"])
        ]

    def _kinds(self, api_version: str) -> dict[str, Object]:
        """Return the kinds in one version of a group.

        What is missing is looked up again the next time.
        """
        if api_version not in self._served:
            listed = self._get(
                f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            )
            if listed is None:
                return {}
            # Subresources are left out
            entries = [entry for entry in listed["resources"] if "/" not in entry["name"]]
            self._served[api_version] = {entry["kind"]: entry for entry in entries}
        return self._served[api_version]

    def _get(self, path: str) -> Object | None:
        from kubernetes.dynamic.exceptions import NotFoundError

        try:
            served: Object = self._dynamic.request(
                "GET", path, serializer=lambda _, answer: answer, _request_timeout=self._timeout_s
            )
        except NotFoundError:
            return None
        return served
