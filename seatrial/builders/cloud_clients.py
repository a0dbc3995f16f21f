"""Google's own clients, and the login they share. gcloud's variable for another endpoint is honoured."""

import os
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.auth.credentials import Credentials as GoogleCredentials
    from google.cloud.devtools.cloudbuild_v1 import CloudBuildClient
    from google.cloud.storage import Client

    from seatrial.builders.registry import Credentials

_ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBUILD"  # https://HOST/, or http:// to a stand-in
_HOST = "https://cloudbuild.googleapis.com/"


class GoogleClients:
    """Clients of one project, each made when it is first used."""

    def __init__(self, project: str) -> None:
        self._project = project

    @cached_property
    def builds(self) -> "CloudBuildClient":
        from google.cloud.devtools.cloudbuild_v1 import CloudBuildClient
        from google.cloud.devtools.cloudbuild_v1.services.cloud_build.transports import CloudBuildRestTransport

        scheme, _, host = (os.environ.get(_ENDPOINT) or _HOST).rstrip("/").partition("://")
        return CloudBuildClient(
            transport=CloudBuildRestTransport(host=host, url_scheme=scheme, credentials=self._credentials)
        )

    @cached_property
    def storage(self) -> "Client":
        from google.cloud.storage import Client

        return Client(project=self._project, credentials=self._credentials)

    @cached_property
    def _credentials(self) -> "GoogleCredentials":
        """Application default credentials; none to a stand-in without TLS, where a token would be read by anyone."""
        import google.auth
        from google.auth.credentials import AnonymousCredentials

        if os.environ.get(_ENDPOINT, "").startswith("http://"):
            return AnonymousCredentials()
        credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
        return credentials

    def registry_login(self, registry: str) -> "Credentials | None":
        """What docker knows; of Google's registries, and of no others, else the account that builds."""
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request

        from seatrial.builders.registry import docker_credentials

        known = docker_credentials(registry)
        if known or not (registry == "gcr.io" or registry.endswith((".gcr.io", ".pkg.dev"))):
            return known
        with suppress(GoogleAuthError):
            self._credentials.refresh(Request())
            return "oauth2accesstoken", self._credentials.token
        return None
