"""The only place that talks to the API server. Objects are dicts, as in YAML; errors are told in our own words."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from seatrial.model.errors import LaunchError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.connect import connect
from seatrial.platforms.kubernetes.discovery import Discovery
from seatrial.platforms.kubernetes.launchers import Kind
from seatrial.platforms.kubernetes.plan import Object
from seatrial.platforms.kubernetes.refusals import UnknownKindError, refused, short
from seatrial.text.redact import redacted
from seatrial.text.tail import last_bytes

if TYPE_CHECKING:
    from seatrial.platforms.kubernetes.rights import Permission

POD, NODE, SECRET = Kind("v1", "Pod"), Kind("v1", "Node"), Kind("v1", "Secret")
SERVICE, EVENT = Kind("v1", "Service"), Kind("v1", "Event")

TIMEOUT_S = 30  # of one request
_TAIL_LINES = 20_000
_LAST_LINES = 5


class Api:
    """One cluster's API server, in one namespace."""

    def __init__(self, settings: KubernetesPlatform) -> None:
        self._settings = settings
        self.namespace = settings.namespace

    @cached_property
    def client(self) -> Any:
        """The API client. Raises MissingError where there is no cluster to talk to."""
        return connect(self._settings.context)

    @cached_property
    def _discovery(self) -> Discovery:
        return Discovery(self.client, TIMEOUT_S)

    def resource(self, kind: Kind) -> Any:
        with self.explained(f"find {kind.kind}"):
            for version in filter(None, (kind.api_version, kind.older)):
                if resource := self._discovery.resource(replace(kind, api_version=version)):
                    return resource
        problem = f"the cluster does not know {kind.kind} ({kind.api_version})"
        install = f": install {kind.needs}" if kind.needs else ""
        raise UnknownKindError(Reason.of("kind-unknown", problem=problem, install=install))

    def create(self, manifest: Object, *, dry_run: bool = False) -> Object:
        """Submit an object; a field that the API server does not know is an error, not a night of waiting.

        `dry_run`: everything but keeping it.
        """
        kind = Kind(manifest["apiVersion"], manifest["kind"])
        name = f"{kind.kind} {manifest['metadata']['name']}"
        resource = self.resource(kind)
        with self.explained(f"create {name}"):
            query = [("fieldValidation", "Strict"), *([("dryRun", "All")] if dry_run else [])]
            made = resource.create(body=manifest, namespace=self.namespace, query_params=query, **LIMIT)
            return plain(made)

    def own(self, child: Object, parent: Object) -> None:
        """Make `parent` the owner of `thing`, so that it goes when the parent goes."""
        metadata = parent["metadata"]
        owner = {"apiVersion": parent["apiVersion"], "kind": parent["kind"], "name": metadata["name"]}
        patch = {"metadata": {"ownerReferences": [{**owner, "uid": metadata["uid"]}]}}
        with self.explained(f"set the owner of {child['kind']} {child['metadata']['name']}"):
            self._patch(Kind(child["apiVersion"], child["kind"]), child["metadata"]["name"], patch)

    def annotate(self, kind: Kind, name: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of an object; None removes one."""
        with self.explained(f"annotate {kind.kind} {name}"):
            self._patch(kind, name, {"metadata": {"annotations": dict(annotations)}})

    def _patch(self, kind: Kind, name: str, patch: Object) -> None:
        form = "application/merge-patch+json"
        self.resource(kind).patch(body=patch, name=name, namespace=self.namespace, content_type=form, **LIMIT)

    def delete_all(
        self, kind: Kind, selector: str, field_selector: str | None = None, grace_s: int | None = None
    ) -> None:
        """Delete what the selectors find, and what it owns; of a kind that the cluster lacks there is nothing.

        `grace_s` 0 removes pods whatever their node says.
        """
        with suppress(UnknownKindError), self.explained(f"delete {kind.kind}"):
            self.resource(kind).delete(
                namespace=self.namespace,
                label_selector=selector,
                field_selector=field_selector,
                body={"propagationPolicy": "Background", "gracePeriodSeconds": grace_s},
                **LIMIT,
            )

    def find(self, kind: Kind, name: str) -> Object | None:
        """One object by name; None when there is none."""
        resource = self.resource(kind)
        with self.explained(f"list {kind.kind}"):
            field = f"metadata.name={name}"
            listing = plain(resource.get(namespace=self.namespace, field_selector=field, **LIMIT))
            return next(iter(listing["items"]), None)

    def list(self, kind: Kind, selector: str | None = None) -> list[Object]:
        """The objects that the label selector finds."""
        resource = self.resource(kind)
        with self.explained(f"list {kind.kind}"):
            scope = {"namespace": self.namespace} if resource.namespaced else {}
            listing = resource.get(label_selector=selector, **scope, **LIMIT)
            return list(plain(listing)["items"])

    def version(self) -> str:
        """The API server's version. Raises MissingError or LaunchError where it cannot be reached."""
        with self.explained("ask for the version"):
            from kubernetes import client

            return str(client.VersionApi(self.client).get_code(**LIMIT).git_version)

    def knows(self, kind: Kind) -> None:
        """Raises MissingError where the cluster does not know the kind in our version, with what to install."""
        try:
            self.resource(kind)
        except UnknownKindError as error:
            with self.explained(f"find {kind.kind}"):
                versions = self._discovery.versions(kind)
            if not versions:
                raise
            problem = f"the cluster has {kind.kind} as {', '.join(versions)}, and we speak {kind.api_version}"
            install = ": install a release that serves it"
            raise UnknownKindError(Reason.of("kind-unknown", problem=problem, install=install)) from error

    def may(self, verb: str, right: "Permission") -> bool:
        """Whether whoever this is has one verb of a right."""
        from kubernetes import client

        resource, _, sub = right.resource.partition("/")
        attributes = client.V1ResourceAttributes(
            namespace=None if right.cluster_wide else self.namespace,
            verb=verb,
            group=right.group,
            resource=resource,
            subresource=sub or None,
        )
        review = client.V1SelfSubjectAccessReview(
            spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
        )
        with self.explained("ask for permissions"):
            api = client.AuthorizationV1Api(self.client)
            return bool(api.create_self_subject_access_review(review, **LIMIT).status.allowed)

    def last_words(self, pod: str) -> str:
        """The last lines of a pod's log, on one line; empty where there is none."""
        from kubernetes import client

        with suppress(Exception):  # only ever an addition to an error that is being told
            core = client.CoreV1Api(self.client)
            text = core.read_namespaced_pod_log(pod, self.namespace, tail_lines=_LAST_LINES, _request_timeout=10)
            return " | ".join(line.strip() for line in redacted(text.splitlines()) if line.strip())
        return ""

    def log_tail(self, pod: str, container: str, timeout_s: float) -> bytes:
        """The end of a container's log, each line with its time."""
        from kubernetes import client

        core = client.CoreV1Api(self.client)
        with self.explained(f"read the log of pod {pod}"):
            stream = core.read_namespaced_pod_log(
                pod,
                self.namespace,
                container=container,
                timestamps=True,
                tail_lines=_TAIL_LINES,
                _preload_content=False,  # a chunk at a time: there is no other bound on what a line holds
                _request_timeout=timeout_s,
            )
            try:
                return last_bytes(stream.stream(65536))
            finally:
                stream.release_conn()

    @contextmanager
    def explained(self, doing: str) -> Iterator[None]:
        """Turn the client's errors into ours: what was tried, why it failed, what to do."""
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            yield
        except SeatrialError:
            raise
        except ApiException as error:
            raise refused(doing, self.namespace, error) from error
        except (HTTPError, OSError) as error:
            host = self.client.configuration.host
            reason = Reason.of("api-server-unreachable", doing=doing, host=host, error=short(error))
            raise LaunchError(reason) from error


LIMIT = {"_request_timeout": TIMEOUT_S}


def plain(instance: Any) -> Object:
    plain: Object = instance.to_dict()
    return plain
