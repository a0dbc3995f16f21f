"""Builder `cloud-build`: Google Cloud Build through Google's client: submit, copy the log, wait,
cancel.

The log is read from the object that the build writes to its log bucket, as gcloud does. Where that
may not be read (VPC-SC, logging CLOUD_LOGGING_ONLY) the kept log holds the link to it instead.
"""

import codecs
import json
import logging
import os
import re
import tarfile
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from seatrial.builders.cloud_build_recipe import reference, request, timeout_s
from seatrial.builders.failures import build_failure, over_time
from seatrial.builders.plan import BuildPlan
from seatrial.builders.stored import BuiltImage, StoredImage
from seatrial.config.image import CloudBuild
from seatrial.model.errors import InputError, LaunchError, MissingError
from seatrial.system.extras import has_module, how_to_install
from seatrial.system.rawlog import RawLog
from seatrial.text.lines import one_line
from seatrial.text.redact import Secrets

if TYPE_CHECKING:
    from google.auth.credentials import Credentials as GoogleCredentials
    from google.cloud.devtools.cloudbuild_v1 import Build, CloudBuildClient
    from google.cloud.storage import Bucket, Client

    from seatrial.builders.registry import Credentials

log = logging.getLogger("seatrial.image")

_ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBUILD"  # https://HOST/, or http:// to a stand-in
_HOST = "https://cloudbuild.googleapis.com/"
POLL_S = 1.0
PATIENCE_S = 120  # how long Google may be out of reach before a build that runs there is given up


class GoogleClients:
    """Clients of one project, each made when it is first used."""

    def __init__(self, project: str) -> None:
        """Import Google's packages. Raises MissingError if they are not installed."""
        if not (
            has_module("google.cloud.storage") and has_module("google.cloud.devtools.cloudbuild_v1")
        ):
            raise MissingError.of(
                "extra-missing", what="builder: cloud-build", remedy=how_to_install("google")
            )
        self._project = project

    @cached_property
    def builds(self) -> "CloudBuildClient":
        from google.cloud.devtools.cloudbuild_v1 import CloudBuildClient
        from google.cloud.devtools.cloudbuild_v1.services.cloud_build.transports import (
            CloudBuildRestTransport,
        )

        scheme, _, host = (os.environ.get(_ENDPOINT) or _HOST).rstrip("/").partition("://")
        return CloudBuildClient(
            transport=CloudBuildRestTransport(
                host=host, url_scheme=scheme, credentials=self._credentials
            )
        )

    @cached_property
    def storage(self) -> "Client":
        from google.cloud.storage import Client

        return Client(project=self._project, credentials=self._credentials)

    @cached_property
    def _credentials(self) -> "GoogleCredentials":
        """Application default credentials; none for a stand-in without TLS, where a token could be
        read.
        """
        import google.auth
        from google.auth.credentials import AnonymousCredentials

        if os.environ.get(_ENDPOINT, "").startswith("http://"):
            return AnonymousCredentials()
        credentials, _ = google.auth.default(
            scopes=["https://www.googleapis.com/auth/cloud-platform"]
        )
        return credentials

    def registry_login(self, registry: str) -> "Credentials | None":
        """Return docker's login; for Google's registries without one, the account that builds."""
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request

        from seatrial.builders.registry import docker_credentials

        login = docker_credentials(registry)
        if login or not (registry == "gcr.io" or registry.endswith((".gcr.io", ".pkg.dev"))):
            return login
        with suppress(GoogleAuthError):
            self._credentials.refresh(Request())
            return "oauth2accesstoken", self._credentials.token
        return None


class LogCopy:
    """Copy of the build's log in a file, as far as it has been written."""

    def __init__(self, client: "Client", log_file: Path) -> None:
        self._client = client
        self._log = RawLog(log_file, Secrets.of(os.environ), append=True)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._read = 0
        self._readable = True

    def copy(self, build: "Build") -> None:
        from google.api_core.exceptions import Forbidden, GoogleAPIError, Unauthorized
        from google.auth.exceptions import GoogleAuthError
        from requests import RequestException

        bucket, _, folder = build.logs_bucket.removeprefix("gs://").partition("/")
        if not self._readable or not bucket:
            return
        blob = self._client.bucket(bucket).blob(f"{folder}/log-{build.id}.txt".lstrip("/"))
        try:
            self._add(
                blob.download_as_bytes(
                    start=self._read, raw_download=True, checksum=None, timeout=30
                )
            )
        except (Forbidden, Unauthorized):
            self._readable = False
            self._add(f"The log cannot be read from here; it is at {build.log_url}\n".encode())
        except (GoogleAPIError, GoogleAuthError, RequestException):
            return  # nothing there, nothing new, or out of reach for a moment

    def _add(self, text: bytes) -> None:
        self._read += len(text)
        self._debug(self._log.write(self._decoder.decode(text)))

    def close(self) -> None:
        """Write the rest that is held back for redaction."""
        self._debug(self._log.close())

    @staticmethod
    def _debug(text: str) -> None:
        for line in text.splitlines():
            log.debug("%s", line)


class CloudBuildImage:
    """Images of a repository that Cloud Build pushes to."""

    def __init__(self, config: CloudBuild) -> None:
        self._config = config

    @cached_property
    def _google(self) -> GoogleClients:
        """Google's clients; rendering does not need them.

        Raises MissingError without Google's packages.
        """
        return GoogleClients(self._config.own_project)

    def reference(self, tag: str) -> str:
        return reference(self._config, tag)

    def render(self, plan: BuildPlan) -> str:
        submitted = {"parent": self._parent, "build": request(self._config, plan.tag)}
        return json.dumps(submitted, indent=2) + "\n"

    def exists(self, reference: str) -> StoredImage | None:
        from seatrial.builders.registry import look_up

        return look_up(reference, self._google.registry_login)

    def build(self, plan: BuildPlan, log_file: Path) -> BuiltImage:
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError, TransportError
        from requests import RequestException

        try:
            return self._build(plan, log_file)
        except (GoogleAPIError, RequestException, TransportError) as error:
            status = getattr(error, "grpc_status_code", None) or getattr(error, "code", "")
            output = f"{getattr(status, 'name', status)} {error}"
            raise LaunchError(
                build_failure(plan.reference, "Cloud Build", output, self._parent)
            ) from error
        except GoogleAuthError as error:
            raise MissingError.of("google-login-missing", problem=str(error)) from error

    def _build(self, plan: BuildPlan, log_file: Path) -> BuiltImage:
        from google.cloud.devtools.cloudbuild_v1 import Source, StorageSource

        limit_s = timeout_s(self._config)
        deadline = time.monotonic() + limit_s
        message = _message(request(self._config, plan.tag), self._config)
        message.source = Source(
            storage_source=StorageSource(**upload(self._google.storage, plan, self._config))
        )
        submitted = self._google.builds.create_build(
            request={"parent": self._parent, "build": message}, retry=None, timeout=60
        ).metadata.build
        name = f"{self._parent}/builds/{submitted.id}"
        log.info(
            "Cloud Build %s, at most %d s: %s", submitted.id, limit_s, submitted.log_url or name
        )
        try:
            done = self._wait(plan, name, log_file, deadline)
        except BaseException:
            self._cancel(name)
            raise
        return self._outcome(plan, done, log_file)

    def _wait(self, plan: BuildPlan, name: str, log_file: Path, deadline: float) -> "Build":
        """Wait for the end of the build, and copy its log meanwhile."""
        from google.cloud.devtools.cloudbuild_v1 import Build

        running = {
            Build.Status.STATUS_UNKNOWN,
            Build.Status.PENDING,
            Build.Status.QUEUED,
            Build.Status.WORKING,
        }
        with closing(LogCopy(self._google.storage, log_file)) as reader:
            while True:
                build = self._state(name)
                reader.copy(build)
                if build.status not in running:
                    return build
                if time.monotonic() > deadline:
                    where = f"{build.status.name}, {log_file}"
                    raise LaunchError(over_time(plan.reference, timeout_s(self._config), where))
                time.sleep(POLL_S)

    def _state(self, name: str) -> "Build":
        """Ask for the build until there is an answer: a lost connection or an expired token does
        not lose it.
        """
        from google.api_core.exceptions import ServerError, TooManyRequests
        from google.auth.exceptions import GoogleAuthError
        from requests import RequestException

        since = time.monotonic()
        while True:
            try:
                return self._google.builds.get_build(request={"name": name}, timeout=30)
            except (ServerError, TooManyRequests, RequestException, GoogleAuthError):
                if time.monotonic() - since > PATIENCE_S:
                    raise
                time.sleep(POLL_S)

    def _cancel(self, name: str) -> None:
        try:
            self._google.builds.cancel_build(request={"name": name}, retry=None, timeout=15)
            log.warning("Cloud Build %s: cancelled", name)
        except Exception as error:
            log.error("Cloud Build %s may still run: it cannot be cancelled: %s", name, error)

    def _outcome(self, plan: BuildPlan, done: "Build", log_file: Path) -> BuiltImage:
        from google.cloud.devtools.cloudbuild_v1 import Build

        if done.status is not Build.Status.SUCCESS:
            details = [done.failure_info.type_.name, done.failure_info.detail, done.status_detail]
            copied = log_file.read_text(errors="replace") if log_file.exists() else ""
            output = "\n".join([copied, *details, f"status: {done.status.name}"])
            status = f"Cloud Build ended as {done.status.name}"
            raise LaunchError(
                build_failure(plan.reference, status, output, done.log_url or log_file)
            )
        digest = next(
            (image.digest for image in done.results.images if image.name == plan.reference), None
        )
        if not digest:
            raise LaunchError.of(
                "image-no-digest",
                image=plan.reference,
                builder="Cloud Build",
                log=str(log_file),
            )
        return BuiltImage(plan.reference, digest, plan.architectures, fresh=True)

    @property
    def _parent(self) -> str:
        return f"projects/{self._config.own_project}/locations/{self._config.own_region}"


def _message(request_fields: dict[str, Any], config: CloudBuild) -> "Build":
    """Convert the request to the client's type, which knows every legal field."""
    from google.cloud.devtools.cloudbuild_v1 import Build
    from google.protobuf.json_format import ParseError

    try:
        build: Build = Build.from_json(json.dumps(request_fields))
        return build
    except ParseError as error:
        raise InputError(f"{config.folder / 'cloudbuild.yaml'}: {one_line(error)}") from error


builder = CloudBuildImage


def upload(client: "Client", plan: BuildPlan, config: CloudBuild) -> dict[str, str]:
    """Upload the context to the bucket, which is made if missing; return the build's storageSource.

    A bucket of the cluster file is not looked up first: an account may write objects there without
    that right.
    """
    from google.api_core.exceptions import NotFound

    with archive(plan) as file:
        if not config.bucket:
            return _put(_default(client, config.own_project), file)
        try:
            return _put(client.bucket(config.bucket), file)
        except NotFound:
            return _put(client.create_bucket(config.bucket, timeout=60), file)


def _put(bucket: "Bucket", file: IO[bytes]) -> dict[str, str]:
    blob = bucket.blob(f"source/{time.time():.6f}-{uuid.uuid4().hex}.tgz")
    size = file.seek(0, os.SEEK_END)  # given the size, a small archive is uploaded in one request
    blob.upload_from_file(
        file, rewind=True, size=size, content_type="application/gzip", timeout=120
    )
    return {"bucket": bucket.name, "object": blob.name, "generation": str(blob.generation)}


@contextmanager
def archive(plan: BuildPlan) -> Iterator[IO[bytes]]:
    """Pack the context without owners and with only the executable bit of modes, as `context_hash`
    counts them.
    """
    context = plan.config.context
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w:gz") as tar:
            for name in plan.files:
                tar.add(context / name, name, recursive=False, filter=_anonymous)
        yield file


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    if member.isfile():
        member.mode = 0o755 if member.mode & 0o111 else 0o644
    return member


def _default(client: "Client", project: str) -> "Bucket":
    """Return the default bucket, which must belong to the project: its name can be guessed and
    taken by others.
    """
    # The name that gcloud uses; "google" is not allowed in it.
    name = re.sub(r"[:.]", "_", project).replace("google", "elgoog") + "_cloudbuild"
    bucket = client.lookup_bucket(name, timeout=30)
    if bucket is None:
        return client.create_bucket(name, timeout=60)
    if name not in {own.name for own in client.list_buckets(prefix=name, timeout=30)}:
        raise MissingError.of("bucket-foreign", bucket=name, project=project)
    return bucket
