"""Builder `cloud-build`: Google Cloud Build by Google's own client.

The log is read from the object that the build writes to its log bucket, as gcloud does. Where that may not be read
(another project's bucket, VPC-SC, logging CLOUD_LOGGING_ONLY) the kept log holds the link to it instead.
"""

import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.builders import Built, Stored
from seatrial.builders.cloud_request import reference, request
from seatrial.builders.cloud_source import upload
from seatrial.builders.config import CloudBuild
from seatrial.builders.failures import explain
from seatrial.builders.plan import Plan
from seatrial.builders.registry import Credentials, docker_credentials, look_up
from seatrial.errors import InputError, LaunchError, MissingError

if TYPE_CHECKING:
    from google.auth.credentials import Credentials as GoogleCredentials
    from google.cloud.devtools.cloudbuild_v1 import Build, CloudBuildClient
    from google.cloud.storage import Client

log = logging.getLogger("seatrial.image")

POLL_S = 1.0
PATIENCE_S = 120  # how long Google may be out of reach before a build that runs there is given up
_ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBUILD"  # as gcloud reads it: https://HOST/, or http:// to a stand-in
_HOST = "https://cloudbuild.googleapis.com/"


class CloudBuildImage:
    """Images of a repository that Cloud Build pushes to."""

    def __init__(self, config: CloudBuild) -> None:
        self._config = config

    def reference(self, tag: str) -> str:
        return reference(self._config, tag)

    def render(self, plan: Plan) -> str:
        submitted = {"parent": self._parent, "build": request(self._config, plan.tag)}
        return json.dumps(submitted, indent=2) + "\n"

    def exists(self, reference: str) -> Stored | None:
        return look_up(reference, self._registry_login)

    def build(self, plan: Plan, log_file: Path) -> Built:
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError
        from requests import RequestException

        try:
            return self._build(plan, log_file)
        except GoogleAuthError as error:
            raise MissingError(f"Google's login is missing: {error}; gcloud auth application-default login") from error
        except (GoogleAPIError, RequestException) as error:
            raise LaunchError(f"image {plan.reference}: Cloud Build: {explain(_told(error))}") from error

    def _build(self, plan: Plan, log_file: Path) -> Built:
        from google.cloud.devtools.cloudbuild_v1 import Source, StorageSource

        deadline = time.monotonic() + self._config.timeout_s
        wanted = _message(request(self._config, plan.tag), self._config)
        wanted.source = Source(storage_source=StorageSource(**upload(self._storage, plan, self._config)))
        submitted = self._client.create_build(
            request={"parent": self._parent, "build": wanted}, retry=None, timeout=60
        ).metadata.build
        name = f"{self._parent}/builds/{submitted.id}"
        log.info("Cloud Build %s: %s", submitted.id, submitted.log_url or name)
        try:
            done = self._wait(plan, name, log_file, deadline)
        except BaseException:
            self._cancel(name)
            raise
        return self._outcome(plan, done, log_file)

    def _wait(self, plan: Plan, name: str, log_file: Path, deadline: float) -> "Build":
        """The build once it has ended, its log copied meanwhile."""
        from google.cloud.devtools.cloudbuild_v1 import Build

        running = {Build.Status.STATUS_UNKNOWN, Build.Status.PENDING, Build.Status.QUEUED, Build.Status.WORKING}
        reader = _Log(self._storage, log_file)
        while True:
            found = self._patiently(lambda: self._client.get_build(request={"name": name}, timeout=30))
            reader.copy(found)
            if found.status not in running:
                return found
            if time.monotonic() > deadline:
                limit = self._config.timeout_s
                raise LaunchError(
                    f"image {plan.reference}: timeout: not built within {limit} s ({found.status.name}), so the build"
                    f" was cancelled; next: raise image.timeout_s, or take a larger machine ({log_file})"
                )
            time.sleep(POLL_S)

    def _patiently(self, ask: "Callable[[], Build]") -> "Build":
        """The answer; a lost connection is no lost build."""
        from google.api_core.exceptions import ServerError
        from requests import ConnectionError as NotConnected
        from requests import Timeout

        since = time.monotonic()
        while True:
            try:
                return ask()
            except (ServerError, NotConnected, Timeout):
                if time.monotonic() - since > PATIENCE_S:
                    raise
                time.sleep(POLL_S)

    def _cancel(self, name: str) -> None:
        try:
            self._client.cancel_build(request={"name": name}, retry=None, timeout=15)
            log.warning("Cloud Build %s: cancelled", name)
        except Exception as error:
            log.error("Cloud Build %s may still run: it cannot be cancelled: %s", name, error)

    def _outcome(self, plan: Plan, done: "Build", log_file: Path) -> Built:
        from google.cloud.devtools.cloudbuild_v1 import Build

        if done.status is not Build.Status.SUCCESS:
            told = [done.failure_info.type_.name, done.failure_info.detail, done.status_detail]
            said = "\n".join([_text(log_file), *told, f"status: {done.status.name}"])
            status = f"Cloud Build ended as {done.status.name}"
            raise LaunchError(f"image {plan.reference}: {status}: {explain(said)} ({done.log_url or log_file})")
        digest = next((image.digest for image in done.results.images if image.name == plan.reference), None)
        if not digest:
            raise LaunchError(
                f"image {plan.reference}: Cloud Build succeeded and told no digest of it; is it in images?"
            )
        return Built(plan.reference, digest, ("amd64",), fresh=True)

    @property
    def _parent(self) -> str:
        return f"projects/{self._config.own_project}/locations/{self._config.own_region}"

    @cached_property
    def _client(self) -> "CloudBuildClient":
        from google.cloud.devtools.cloudbuild_v1 import CloudBuildClient
        from google.cloud.devtools.cloudbuild_v1.services.cloud_build.transports import CloudBuildRestTransport

        scheme, _, host = (os.environ.get(_ENDPOINT) or _HOST).rstrip("/").partition("://")
        return CloudBuildClient(
            transport=CloudBuildRestTransport(host=host, url_scheme=scheme, credentials=self._credentials)
        )

    @cached_property
    def _storage(self) -> "Client":
        from google.cloud.storage import Client

        return Client(project=self._config.own_project, credentials=self._credentials)

    @cached_property
    def _credentials(self) -> "GoogleCredentials":
        """Application default credentials; none to a stand-in without TLS, where a token would be read by anyone."""
        import google.auth
        from google.auth.credentials import AnonymousCredentials

        if os.environ.get(_ENDPOINT, "").startswith("http://"):
            return AnonymousCredentials()
        found, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
        return found

    def _registry_login(self, registry: str) -> Credentials | None:
        """What docker knows; of Google's registries else the account that builds."""
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request

        known = docker_credentials(registry)
        if known or not registry.endswith((".pkg.dev", "gcr.io")):
            return known
        with suppress(GoogleAuthError):
            self._credentials.refresh(Request())
            return "oauth2accesstoken", self._credentials.token
        return None


class _Log:
    """The build's log, copied to a file as far as it has been written."""

    def __init__(self, client: "Client", log_file: Path) -> None:
        self._client = client
        self._file = log_file
        self._read = 0
        self._readable = True

    def copy(self, build: "Build") -> None:
        from google.api_core.exceptions import GoogleAPICallError, NotFound
        from google.api_core.exceptions import RequestRangeNotSatisfiable as NothingNew
        from requests import RequestException

        bucket, _, folder = build.logs_bucket.removeprefix("gs://").partition("/")
        if not self._readable or not bucket:
            return
        blob = self._client.bucket(bucket).blob(f"{folder}/log-{build.id}.txt".lstrip("/"))
        try:
            self._add(blob.download_as_bytes(start=self._read, raw_download=True, checksum=None, timeout=30))
        except (NotFound, NothingNew, RequestException):
            return
        except GoogleAPICallError as error:
            self._readable = error.code is not None and error.code >= 500
            if not self._readable:
                self._add(f"The log cannot be read from here; it is at {build.log_url}\n".encode())

    def _add(self, text: bytes) -> None:
        self._read += len(text)
        with self._file.open("ab") as file:
            file.write(text)
        for line in text.decode(errors="replace").splitlines():
            log.debug("%s", line)


def _message(wanted: dict[str, Any], config: CloudBuild) -> "Build":
    """The request as the client's own type, which knows every field that is legal."""
    from google.cloud.devtools.cloudbuild_v1 import Build
    from google.protobuf.json_format import ParseError

    try:
        build: Build = Build.from_json(json.dumps(wanted))
        return build
    except ParseError as error:
        raise InputError(f"{config.folder / 'cloudbuild.yaml'}: {' '.join(str(error).split())}") from error


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


def _told(error: Exception) -> str:
    status = getattr(error, "grpc_status_code", None) or getattr(error, "code", "")
    return f"{getattr(status, 'name', status)} {error}"


def builder(config: CloudBuild) -> CloudBuildImage:
    return CloudBuildImage(config)
