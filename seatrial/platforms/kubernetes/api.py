"""The client of the API server. Objects are dicts, as in YAML; errors are seatrial's own."""

import io
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from logging.handlers import BufferingHandler
from typing import Any

from yaml import YAMLError

from seatrial.model.errors import LaunchError, MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.discovery import Discovery
from seatrial.platforms.kubernetes.plan import Kind, Object
from seatrial.text.lines import last_bytes, one_line
from seatrial.text.redact import Secrets, redacted

_ASKS_NOTHING = ("gke-gcloud-auth-plugin", "aws", "aws-iam-authenticator", "gcloud")
POD = Kind("v1", "Pod")
NODE = Kind("v1", "Node")
SECRET = Kind("v1", "Secret")
EVENT = Kind("v1", "Event")
TIMEOUT_S = 30  # timeout of one request
LIMIT = {"_request_timeout": TIMEOUT_S}
_TAIL_LINES = 20_000
_LAST_LINES = 5
_MOST_ERRORS = 1000  # most error records of the login plugin that are kept


class UnknownKindError(MissingError):
    """The cluster does not know a kind of object."""


class RuntimeUnseenError(LaunchError):
    """Kubeflow Trainer has not seen the runtime of a TrainJob."""


def refused(doing: str, namespace: str, error: Any) -> SeatrialError:
    """Return the error for a refusal of the API server (`error` is the client's ApiException), with
    the next step.
    """
    own_words: str | None = None
    with suppress(ValueError, TypeError, AttributeError, KeyError):
        own_words = short(json.loads(error.body)["message"])
    message = own_words or f"{error.status} {error.reason}"
    match error.status:
        case 401:
            return MissingError.of("not-logged-in", doing=doing, message=message)
        case 403:
            return MissingError.of(
                "forbidden", doing=f"{doing} in namespace {namespace}", problem=message
            )
        case 404 if not own_words:  # the API path no longer exists
            return UnknownKindError.of(
                "kind-unknown",
                problem=f"cannot {doing}: the cluster does not know that kind any more",
                install="",
            )
        case 404 if "namespaces" in message:
            return MissingError.of(
                "namespace-missing", doing=doing, message=message, namespace=namespace
            )
        case _ if "trainingRuntime must be created" in message:
            return RuntimeUnseenError.of("api-server-refused", doing=doing, message=message)
        case _:
            return LaunchError.of("api-server-refused", doing=doing, message=message)


def short(error: object) -> str:
    text = one_line(error)
    return text if len(text) < 400 else f"{text[:400]}..."


def connect(context: str | None) -> Any:
    """Return the API client of the kubeconfig's context, or of the pod that this runs in.

    Raises MissingError.
    """
    from kubernetes import client, config

    # The library read the variable at its import
    kubeconfig = os.environ.get("KUBECONFIG") or "~/.kube/config"
    configuration = client.Configuration()
    configuration.retries = False  # our own retries log what they wait for
    try:
        if not context and config.incluster_config.SERVICE_HOST_ENV_NAME in os.environ:
            config.load_incluster_config(client_configuration=configuration)
        else:
            with _plugin_errors(asks=_require_plugin(kubeconfig, context)):
                config.load_kube_config(
                    kubeconfig, context=context, client_configuration=configuration
                )
    except (config.ConfigException, OSError) as error:
        raise MissingError(_lacking(kubeconfig, context)) from error
    except (ValueError, TypeError, KeyError, AttributeError, YAMLError) as error:
        raise MissingError.of(
            "no-kubeconfig", problem=f"the kubeconfig cannot be read: {short(error)}"
        ) from error
    return client.ApiClient(configuration)


@contextmanager
def _plugin_errors(asks: bool) -> Iterator[None]:
    """Raise MissingError if the login plugin fails, which the library only logs.

    On a terminal the library lets the plugin print, so standard output is hidden unless the plugin
    `asks` the user.
    """
    errors = BufferingHandler(_MOST_ERRORS)
    errors.setLevel(logging.ERROR)
    root = logging.getLogger()
    root.addHandler(errors)
    try:
        # The library checks this stream to detect a terminal
        with nullcontext() if asks else redirect_stdout(io.StringIO()):
            yield
    finally:
        root.removeHandler(errors)
    if errors.buffer:
        words = errors.buffer[0].getMessage().removeprefix("exec: ")
        # The library's message, which lacks the plugin's output
        problem = (
            "its words are above"
            if "NoneType" in words
            else Secrets.of(os.environ).out_of_text(short(words))
        )
        raise MissingError.of("login-plugin-failed", problem=problem)


def _require_plugin(kubeconfig: str, context: str | None) -> bool:
    """Return whether the login plugin of the context may ask the user something.

    Raises MissingError if the plugin is missing, since the library would ignore that.
    """
    from kubernetes import config

    contexts, active = config.list_kube_config_contexts(kubeconfig)
    chosen = next((each for each in contexts if each["name"] == context), active)
    users = config.kube_config.KubeConfigMerger(kubeconfig).config["users"]
    user = users.get_with_name(chosen["context"]["user"])["user"].value or {}
    plugin = user.get("exec") or {}
    command = plugin.get("command")
    # A path may be relative to the kubeconfig
    if command and "/" not in command and not shutil.which(command):
        raise MissingError.of("login-plugin-missing", program=command)
    return (
        plugin.get("interactiveMode") != "Never"
        and os.path.basename(command or "") not in _ASKS_NOTHING
    )


def _lacking(kubeconfig: str, context: str | None) -> Reason:
    """Return the reason if the kubeconfig lacks the context, with the contexts that it has."""
    from kubernetes import config

    try:
        contexts, _ = config.list_kube_config_contexts(kubeconfig)
    except (config.ConfigException, OSError) as error:
        return Reason.of(
            "no-kubeconfig",
            problem=f"{short(error)} (KUBECONFIG, ~/.kube/config), and this is no pod",
        )
    known = f"known: {', '.join(sorted(each['name'] for each in contexts))}"
    problem = f"platform.context {context!r} is not in the kubeconfig" if context else "no context"
    return Reason.of("kube-context-unknown", problem=problem, known=known)


@dataclass(frozen=True, slots=True)
class Permission:
    """Verbs on a resource; `why` says what fails without them.

    `optional`: a run works without them.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    cluster_wide: bool = False
    optional: bool = False


class Api:
    """One cluster's API server, in one namespace."""

    def __init__(self, settings: KubernetesPlatform) -> None:
        self.context = settings.context
        self.namespace = settings.namespace

    @cached_property
    def client(self) -> Any:
        """The API client. Raises MissingError without a cluster."""
        return connect(self.context)

    @cached_property
    def _discovery(self) -> Discovery:
        return Discovery(self.client, TIMEOUT_S)

    def resource(self, kind: Kind) -> Any:
        with self.explained(f"find {kind.kind}"):
            for version in filter(None, (kind.api_version, kind.older)):
                if resource := self._discovery.resource(replace(kind, api_version=version)):
                    return resource
        raise UnknownKindError.of(
            "kind-unknown",
            problem=f"the cluster does not know {kind.kind} ({kind.api_version})",
            install=f": install {kind.needs}" if kind.needs else "",
        )

    def create(self, manifest: Object, *, dry_run: bool = False) -> Object:
        """Submit an object; the API server rejects unknown fields.

        `dry_run`: validate it without storing it.
        """
        kind = Kind(manifest["apiVersion"], manifest["kind"])
        name = f"{kind.kind} {manifest['metadata']['name']}"
        resource = self.resource(kind)
        with self.explained(f"create {name}"):
            query = [("fieldValidation", "Strict"), *([("dryRun", "All")] if dry_run else [])]
            return plain(
                resource.create(
                    body=manifest, namespace=self.namespace, query_params=query, **LIMIT
                )
            )

    def own(self, child: Object, parent: Object) -> None:
        """Make `parent` the owner of `child`, so that it is deleted with the parent."""
        metadata = parent["metadata"]
        owner = {
            "apiVersion": parent["apiVersion"],
            "kind": parent["kind"],
            "name": metadata["name"],
        }
        patch = {"metadata": {"ownerReferences": [{**owner, "uid": metadata["uid"]}]}}
        kind = Kind(child["apiVersion"], child["kind"])
        name = child["metadata"]["name"]
        self.patch(f"set the owner of {kind.kind} {name}", kind, name, patch)

    def patch(self, doing: str, kind: Kind, name: str, patch: Object) -> None:
        """Apply a merge patch to an object; None removes a field. `doing` describes the action in
        errors.
        """
        form = "application/merge-patch+json"
        with self.explained(doing):
            self.resource(kind).patch(
                body=patch, name=name, namespace=self.namespace, content_type=form, **LIMIT
            )

    def delete_all(
        self,
        kind: Kind,
        selector: str,
        field_selector: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        """Delete the objects that match the selectors, and their dependents; a kind unknown to the
        cluster is no error.

        `grace_s` 0 removes pods without waiting for their kubelet.
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
        """Return one object by name, or None."""
        return next(iter(self.list(kind, field_selector=f"metadata.name={name}")), None)

    def list_everywhere(self, kind: Kind) -> list[Object]:
        """Return the objects of all namespaces."""
        resource = self.resource(kind)
        with self.explained(f"list {kind.kind} in all namespaces"):
            return list(plain(resource.get(**LIMIT))["items"])

    def list(
        self, kind: Kind, selector: str | None = None, field_selector: str | None = None
    ) -> list[Object]:
        """Return the objects that the selectors find, in the namespace if their kind has one."""
        resource = self.resource(kind)
        with self.explained(f"list {kind.kind}"):
            listing = resource.get(
                namespace=self.namespace,
                label_selector=selector,
                field_selector=field_selector,
                **LIMIT,
            )
            return list(plain(listing)["items"])

    def version(self) -> str:
        """Return the API server's version.

        Raises MissingError or LaunchError where it cannot be reached.
        """
        with self.explained("ask for the version"):
            from kubernetes import client

            return str(client.VersionApi(self.client).get_code(**LIMIT).git_version)

    def knows(self, kind: Kind) -> None:
        """Raise MissingError if the cluster does not know the kind in our version, with what to
        install.
        """
        try:
            self.resource(kind)
        except UnknownKindError as error:
            with self.explained(f"find {kind.kind}"):
                versions = self._discovery.versions(kind)
            if not versions:
                raise
            raise UnknownKindError.of(
                "kind-unknown",
                problem=f"the cluster has {kind.kind} as {', '.join(versions)}, and we speak "
                f"{kind.api_version}",
                install=": install a release that serves it",
            ) from error

    def may(self, verb: str, right: Permission) -> bool:
        """Return whether the current user may use the verb of a permission."""
        from kubernetes import client

        resource, _, sub = right.resource.partition("/")
        attributes = {
            "namespace": "" if right.cluster_wide else self.namespace,
            "verb": verb,
            "group": right.group,
            "resource": resource,
            "subresource": sub,
        }
        review = {"spec": {"resourceAttributes": attributes}}
        with self.explained("ask for permissions"):
            api = client.AuthorizationV1Api(self.client)
            return bool(api.create_self_subject_access_review(review, **LIMIT).status.allowed)

    def log_end(self, pod: str) -> str:
        """Return the last lines of a pod's log, on one line; empty without a log."""
        from kubernetes import client

        with suppress(Exception):  # it only adds detail to another error
            core = client.CoreV1Api(self.client)
            text = core.read_namespaced_pod_log(
                pod, self.namespace, tail_lines=_LAST_LINES, _request_timeout=10
            )
            return " | ".join(line.strip() for line in redacted(text.splitlines()) if line.strip())
        return ""

    def log_tail(self, pod: str, container: str, timeout_s: float) -> bytes:
        """Return the end of a container's log, each line with its time."""
        from kubernetes import client

        core = client.CoreV1Api(self.client)
        with self.explained(f"read the log of pod {pod}"):
            stream = core.read_namespaced_pod_log(
                pod,
                self.namespace,
                container=container,
                timestamps=True,
                tail_lines=_TAIL_LINES,
                # A chunk at a time: there is no other bound on what a line holds
                _preload_content=False,
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
        except (ApiException, HTTPError, OSError) as error:
            if getattr(error, "status", None):
                raise refused(doing, self.namespace, error) from error
            # TLS failed: there is no status
            problem = error.reason if isinstance(error, ApiException) else error
            raise LaunchError.of(
                "api-server-unreachable",
                doing=doing,
                host=self.client.configuration.host,
                error=short(problem),
            ) from error


def plain(instance: Any) -> Object:
    plain: Object = instance.to_dict()
    return plain
