"""A registry on loopback that speaks the OCI distribution API as far as builders use it, with
docker's token login.
"""

import base64
import hashlib
import json
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from tests.integration.loopback import web_server

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"

# Stands in for docker: says what it was called with, and pushes an image of its own.
_DOCKER = """#!{python}
import json, os, sys, time, urllib.request
words = sys.argv[1:]
if words[:2] == ["buildx", "version"]:
    sys.exit(0)
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps(words) + "\\n")
print("#1 [1/3] FROM x", flush=True)
if "FAIL" in os.environ:
    sys.exit(os.environ["FAIL"])
if "HANG" in os.environ:
    open(os.environ["HANG"], "w").write(str(os.getpid()))
    time.sleep(60)
option = lambda name: next(word.split("=", 1)[1] for word in words if word.startswith(name + "="))
host, path = option("--tag").split("/", 1)
path, tag = path.rsplit(":", 1)
body = json.dumps({{"config": {{"digest": "sha256:0"}}, "calls": len(open(os.environ["CALLS"]).readlines())}}).encode()
kind = {{"Content-Type": "application/vnd.oci.image.manifest.v1+json"}}
url = f"http://{{host}}/v2/{{path}}/manifests/{{tag}}"
answer = urllib.request.urlopen(urllib.request.Request(url, body, kind, method="PUT"))
digest = answer.headers["Docker-Content-Digest"]
with open(option("--metadata-file"), "w") as file:
    json.dump({{"containerimage.digest": digest}}, file)
print("pushed", digest)
"""


def stand_in_for_docker(folder: Path) -> Path:
    """Where it lies, for PATH.

    It adds its calls to the file that CALLS names; FAIL and HANG make it do that.
    """
    program = folder / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(_DOCKER.format(python=sys.executable))
    program.chmod(0o755)
    return program.parent


@dataclass
class Registry:
    """What it holds and what it was asked; `login` is user and password, None for a registry that
    is open.
    """

    login: tuple[str, str] | None = None
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    port: int = 0

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def put(self, path: str, tag: str, kind: str, document: dict[str, Any]) -> str:
        return self.keep(path, tag, kind, json.dumps(document).encode())

    def keep(self, path: str, tag: str, kind: str, content: bytes) -> str:
        digest = digest_of(content)
        self.manifests[path, tag] = self.manifests[path, digest] = (kind, content)
        return digest

    def add(self, path: str, tag: str, architecture: str = "amd64") -> str:
        """An image of one architecture; its digest."""
        config = json.dumps(
            {"architecture": architecture, "os": "linux", "made": secrets.token_hex(4)}
        ).encode()
        self.blobs[digest_of(config)] = config
        described = {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest_of(config),
        }
        return self.put(
            path, tag, MANIFEST, {"schemaVersion": 2, "config": described, "layers": []}
        )


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    handler = type("Handler", (_Handler,), {"registry": registry})
    with web_server(handler) as registry.port:
        yield registry


class _Handler(BaseHTTPRequestHandler):
    registry: ClassVar[Registry]
    protocol_version = "HTTP/1.1"
    uploads: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        body = self._body()
        self.registry.asked.append(f"{self.command} {self.path}")
        path = urlsplit(self.path).path
        if path == "/token":
            self._token()
        elif self._is_known():
            self._answer(path, body)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_GET

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _token(self) -> None:
        login = self.registry.login
        credentials = self.headers.get("Authorization", "").removeprefix("Basic ")
        if login and base64.b64decode(credentials).decode() != ":".join(login):
            self._send(401, b"{}")
        else:
            self._send(200, json.dumps({"token": self.registry.token}).encode())

    def _is_known(self) -> bool:
        if (
            not self.registry.login
            or self.headers.get("Authorization") == f"Bearer {self.registry.token}"
        ):
            return True
        challenge = f'Bearer realm="http://{self.registry.host}/token",service="test",scope="repository:x:pull"'
        self._send(401, b"{}", **{"WWW-Authenticate": challenge})
        return False

    def _answer(self, path: str, body: bytes) -> None:
        match = re.fullmatch(r"/v2/(.+)/(manifests|blobs)/(.+)", path)
        if path == "/v2/":
            self._send(200, b"{}")
        elif match and match[3].startswith("uploads/"):
            self._upload(match[1], match[3].removeprefix("uploads/"), body)
        elif match and match[2] == "manifests" and self.command == "PUT":
            kind = self.headers["Content-Type"]
            self._send(
                201,
                b"",
                **{"Docker-Content-Digest": self.registry.keep(match[1], match[3], kind, body)},
            )
        elif (
            match
            and match[2] == "manifests"
            and (held := self.registry.manifests.get((match[1], match[3])))
        ):
            digest = {"Docker-Content-Digest": digest_of(held[1])}
            self._send(200, held[1], **{"Content-Type": held[0], **digest})
        elif match and (blob := self.registry.blobs.get(match[3])) is not None:
            self._send(200, blob)
        else:
            self._send(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')

    def _upload(self, path: str, number: str, body: bytes) -> None:
        number = number or secrets.token_hex(4)
        self.uploads[number] = self.uploads.get(number, b"") + body
        location = {"Location": f"/v2/{path}/blobs/uploads/{number}"}
        if digests := parse_qs(urlsplit(self.path).query).get("digest"):
            content = self.uploads.pop(number)
            assert digest_of(content) == digests[0]
            self.registry.blobs[digests[0]] = content
            self._send(201, b"", **{"Docker-Content-Digest": digests[0], **location})
        else:
            self._send(
                202, b"", **{"Range": f"0-{max(0, len(self.uploads[number]) - 1)}", **location}
            )

    def _send(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass
