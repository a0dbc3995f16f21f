"""Ask a registry for an image (OCI distribution API, credentials of docker login).

Spec: https://github.com/opencontainers/distribution-spec/blob/main/spec.md; tokens:
https://distribution.github.io/distribution/spec/auth/token/.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import requests
from requests.utils import parse_dict_header

from seatrial.builders.stored import StoredImage, UnreachableError
from seatrial.model.errors import MissingError
from seatrial.text.addresses import is_loopback
from seatrial.text.lines import one_line

TIMEOUT_S = 10
_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


Credentials = tuple[str, str]  # user name, password; "<token>" for a refresh token
FindCredentials = Callable[[str], Credentials | None]  # by the registry's host


@dataclass(frozen=True, slots=True)
class Name:
    """Parts of a reference: `registry` in credentials, `host` to ask, `path`, and tag or digest."""

    registry: str
    host: str
    path: str
    tag: str

    @property
    def url(self) -> str:
        return f"{'http' if _is_here(self.host) else 'https'}://{self.host}/v2/{self.path}"


def read_name(reference: str) -> Name:
    """Split a reference as docker does: no host is Docker Hub, no tag is latest."""
    from docker.auth import resolve_repository_name
    from docker.utils import parse_repository_tag

    bare, at, digest = reference.partition("@")
    repository, tag = parse_repository_tag(bare)
    registry, path = resolve_repository_name(repository)
    host = registry
    if registry == "docker.io":
        host = "registry-1.docker.io"
        path = path if "/" in path else f"library/{path}"
    return Name(registry, host, path, digest if at else tag or "latest")


def _is_here(host: str) -> bool:
    """Return whether the registry is on this machine: docker uses plain HTTP there only."""
    return is_loopback(host.rpartition(":")[0] or host)


def docker_credentials(registry: str) -> Credentials | None:
    """Return the login of docker or a credential helper (~/.docker/config.json)."""
    from docker.auth import load_config
    from docker.errors import DockerException

    try:
        credentials = load_config().resolve_authconfig(registry)
    except DockerException as error:
        raise UnreachableError.of(
            "registry-credential-helper", registry=registry, problem=str(error)
        ) from error
    if not credentials:
        return None
    login = {name.lower(): value for name, value in credentials.items() if value}
    if token := login.get("identitytoken"):
        return "<token>", token
    user, password = login.get("username"), login.get("password")
    return (user, password) if user and password else None


def look_up(
    reference: str, credentials: FindCredentials = docker_credentials
) -> StoredImage | None:
    """Ask the registry for digest and architectures of the image; None when it has no such image.

    Raises UnreachableError when the registry does not answer or refuses access.
    """
    name = read_name(reference)
    try:
        with requests.Session() as session:
            answer = _get(session, f"{name.url}/manifests/{name.tag}", name, credentials)
            if answer.status_code == 404:
                return None
            if answer.status_code in (401, 403):
                raise _login_needed(name, "does not show the image to this machine")
            answer.raise_for_status()
            digest = answer.headers.get("Docker-Content-Digest")
            digest = digest or f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
            manifest = answer.json()
            if "manifests" in manifest:
                members = [entry.get("platform", {}) for entry in manifest["manifests"]]
            else:
                configuration = f"{name.url}/blobs/{manifest['config']['digest']}"
                answer = _get(session, configuration, name, credentials)
                members = [answer.json()] if answer.ok else []
            architectures = {member.get("architecture", "unknown") for member in members}
            # Attestations are entries of no architecture
            return StoredImage(digest, tuple(sorted(architectures - {"unknown"})))
    except (requests.RequestException, ValueError, KeyError, TypeError) as error:
        raise UnreachableError.of(
            "registry-unreachable", registry=name.host, problem=_short(error)
        ) from error


def _get(
    session: requests.Session, url: str, name: Name, credentials: FindCredentials
) -> requests.Response:
    headers = {"Accept": ", ".join(_INDEXES + _MANIFESTS)}
    ask = partial(session.get, url, headers=headers, timeout=TIMEOUT_S)
    answer = ask()
    if answer.status_code != 401:
        return answer
    session.headers["Authorization"] = _authorization(
        answer.headers.get("WWW-Authenticate", ""), name, credentials
    )
    return ask()


def _authorization(challenge: str, name: Name, credentials: FindCredentials) -> str:
    """Return the header that answers the registry's challenge."""
    login = credentials(name.registry)
    scheme, _, rest = challenge.partition(" ")
    if scheme.lower() != "bearer":
        if login is None:
            raise _login_needed(name, "requires a login")
        return str(requests.Request("GET", name.url, auth=login).prepare().headers["Authorization"])
    fields: dict[str, str | None] = parse_dict_header(rest)  # type: ignore[no-untyped-call]
    realm = fields.get("realm") or ""
    if not realm.startswith("https://") and not _is_here(name.host):
        raise UnreachableError.of(
            "registry-token-insecure", registry=name.host, address=repr(realm)
        )
    query = {
        "service": fields.get("service") or name.host,
        "scope": f"repository:{name.path}:pull",
    }
    if login and login[0] == "<token>":
        form = {
            "grant_type": "refresh_token",
            "refresh_token": login[1],
            "client_id": "seatrial",
            **query,
        }
        answer = requests.post(realm, data=form, timeout=TIMEOUT_S)
    else:
        answer = requests.get(realm, params=query, auth=login, timeout=TIMEOUT_S)
    if answer.status_code in (401, 403):
        raise _login_needed(name, "does not accept the login")
    answer.raise_for_status()
    document = answer.json()
    return f"Bearer {document.get('token') or document['access_token']}"


def _login_needed(name: Name, refusal: str) -> UnreachableError:
    return UnreachableError.of(
        "registry-login", registry=name.host, refusal=refusal, login=name.registry
    )


def _short(error: Exception) -> str:
    reason: Any = error.args[0] if error.args else error
    # Requests wraps urllib3, which wraps the cause
    while getattr(reason, "reason", None) is not None:
        reason = reason.reason
    text = one_line(reason or error)
    return text.rpartition(">: ")[2] or text


def existing(reference: str) -> StoredImage:
    """Look an image up that someone else has made.

    Raises MissingError when its registry does not have it.
    """
    stored = look_up(reference)
    if stored is None:
        raise MissingError.of("image-missing", image=reference)
    return stored
