"""Builder `cloud-build`: Google Cloud Build by Google's own client: submit, copy the log, wait, cancel."""

import json
import logging
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.builders import BuiltImage, StoredImage
from seatrial.builders.cloud_clients import GoogleClients
from seatrial.builders.cloud_log import LogCopy
from seatrial.builders.cloud_request import reference, request, timeout_s
from seatrial.builders.cloud_source import upload
from seatrial.builders.failures import build_failure
from seatrial.builders.plan import BuildPlan
from seatrial.config.image import CloudBuild
from seatrial.model.errors import InputError, LaunchError, MissingError
from seatrial.model.reason import Reason

if TYPE_CHECKING:
    from google.cloud.devtools.cloudbuild_v1 import Build

log = logging.getLogger("seatrial.image")

POLL_S = 1.0
PATIENCE_S = 120  # how long Google may be out of reach before a build that runs there is given up


class CloudBuildImage:
    """Images of a repository that Cloud Build pushes to."""

    def __init__(self, config: CloudBuild) -> None:
        self._config = config
        self._google = GoogleClients(config.own_project)

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
            raise LaunchError(build_failure(plan.reference, "Cloud Build", _error_text(error), self._parent)) from error
        except GoogleAuthError as error:
            raise MissingError(Reason.of("google-login-missing", problem=str(error))) from error

    def _build(self, plan: BuildPlan, log_file: Path) -> BuiltImage:
        from google.cloud.devtools.cloudbuild_v1 import Source, StorageSource

        limit_s = timeout_s(self._config)
        deadline = time.monotonic() + limit_s
        message = _message(request(self._config, plan.tag), self._config)
        message.source = Source(storage_source=StorageSource(**upload(self._google.storage, plan, self._config)))
        submitted = self._google.builds.create_build(
            request={"parent": self._parent, "build": message}, retry=None, timeout=60
        ).metadata.build
        name = f"{self._parent}/builds/{submitted.id}"
        log.info("Cloud Build %s, at most %d s: %s", submitted.id, limit_s, submitted.log_url or name)
        try:
            done = self._wait(plan, name, log_file, deadline)
        except BaseException:
            self._cancel(name)
            raise
        return self._outcome(plan, done, log_file)

    def _wait(self, plan: BuildPlan, name: str, log_file: Path, deadline: float) -> "Build":
        """The build once it has ended, its log copied meanwhile."""
        from google.cloud.devtools.cloudbuild_v1 import Build

        running = {Build.Status.STATUS_UNKNOWN, Build.Status.PENDING, Build.Status.QUEUED, Build.Status.WORKING}
        with closing(LogCopy(self._google.storage, log_file)) as reader:
            while True:
                build = self._patiently(lambda: self._google.builds.get_build(request={"name": name}, timeout=30))
                reader.copy(build)
                if build.status not in running:
                    return build
                if time.monotonic() > deadline:
                    raise LaunchError(
                        Reason.of(
                            "image-build-time-limit",
                            image=plan.reference,
                            timeout_s=timeout_s(self._config),
                            log=f"{build.status.name}, {log_file}",
                        )
                    )
                time.sleep(POLL_S)

    def _patiently(self, ask: "Callable[[], Build]") -> "Build":
        """The answer; a lost connection is no lost build, nor is a token that cannot be refreshed for a moment."""
        from google.api_core.exceptions import ServerError, TooManyRequests
        from google.auth.exceptions import GoogleAuthError
        from requests import RequestException

        since = time.monotonic()
        while True:
            try:
                return ask()
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
            output = "\n".join([_text(log_file), *details, f"status: {done.status.name}"])
            status = f"Cloud Build ended as {done.status.name}"
            raise LaunchError(build_failure(plan.reference, status, output, done.log_url or log_file))
        digest = next((image.digest for image in done.results.images if image.name == plan.reference), None)
        if not digest:
            raise LaunchError(
                Reason.of("image-no-digest", image=plan.reference, builder="Cloud Build", log=str(log_file))
            )
        return BuiltImage(plan.reference, digest, plan.architectures, fresh=True)

    @property
    def _parent(self) -> str:
        return f"projects/{self._config.own_project}/locations/{self._config.own_region}"


def _message(request_fields: dict[str, Any], config: CloudBuild) -> "Build":
    """The request as the client's own type, which knows every field that is legal."""
    from google.cloud.devtools.cloudbuild_v1 import Build
    from google.protobuf.json_format import ParseError

    try:
        build: Build = Build.from_json(json.dumps(request_fields))
        return build
    except ParseError as error:
        raise InputError(f"{config.folder / 'cloudbuild.yaml'}: {' '.join(str(error).split())}") from error


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


def _error_text(error: Exception) -> str:
    status = getattr(error, "grpc_status_code", None) or getattr(error, "code", "")
    return f"{getattr(status, 'name', status)} {error}"


def builder(config: CloudBuild) -> CloudBuildImage:
    return CloudBuildImage(config)
