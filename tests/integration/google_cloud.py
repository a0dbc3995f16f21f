"""Cloud Build v1 and Cloud Storage on loopback, as far as their REST surface is used; builds go as
scripted.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from google.cloud.devtools.cloudbuild_v1 import Build

from tests.integration.loopback import web_server
from tests.integration.registry import Registry

_AS_SENT = {"always_print_fields_with_no_presence": False}
_METADATA = "type.googleapis.com/google.devtools.cloudbuild.v1.BuildOperationMetadata"


@dataclass
class GoogleCloud:
    """What it was sent, and how builds go: `script` is (status, what is added to the log) by poll,
    the last one stays.

    A build that ends as SUCCESS is pushed to `registry`.
    """

    registry: Registry
    script: list[tuple[str, str]]
    failure: dict[str, str] = field(default_factory=dict)
    # By the beginning of "METHOD PATH"
    refuses: dict[str, tuple[int, str]] = field(default_factory=dict)
    buckets: dict[str, str] = field(default_factory=dict)  # the project that owns each
    objects: dict[tuple[str, str], bytes] = field(default_factory=dict)
    submitted: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # path, Build
    cancelled: list[str] = field(default_factory=list)
    polls: int = 0
    port: int = 0

    def build(self) -> dict[str, Any]:
        """The build as it stands, after one more poll."""
        status, text = self.script[min(self.polls, len(self.script) - 1)]
        if self.polls < len(self.script) and text:
            self.objects["logs", "log-build-1.txt"] = (
                self.objects.get(("logs", "log-build-1.txt"), b"") + text.encode()
            )
        self.polls += 1
        built: dict[str, Any] = {
            **self.described(),
            "status": "CANCELLED" if self.cancelled else status,
        }
        if status == "SUCCESS":
            name, _, tag = self.image().rpartition(":")
            host, _, path = name.partition("/")
            assert host == self.registry.host
            built["results"] = {
                "images": [{"name": self.image(), "digest": self.registry.add(path, tag)}]
            }
        if status == "FAILURE":
            built["failureInfo"] = self.failure
        return built

    def described(self) -> dict[str, Any]:
        sent = self.submitted[-1][1]
        return {
            **sent,
            "id": "build-1",
            "projectId": "p",
            "logsBucket": "gs://logs",
            "logUrl": "https://console/build-1",
        }

    def image(self) -> str:
        """The first image, its substitutions filled in, as Cloud Build does it."""
        sent = self.submitted[-1][1]
        substitutions: dict[str, str] = sent["substitutions"]
        return re.sub(r"\$\{(\w+)\}", lambda match: substitutions[match[1]], str(sent["images"][0]))


@contextmanager
def serving_google(cloud: GoogleCloud) -> Iterator[GoogleCloud]:
    handler = type("Handler", (_Handler,), {"cloud": cloud})
    with web_server(handler) as cloud.port:
        yield cloud


class _Handler(BaseHTTPRequestHandler):
    cloud: ClassVar[GoogleCloud]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urlsplit(self.path)
        path, query = (
            unquote(url.path),
            {name: values[0] for name, values in parse_qs(url.query).items()},
        )
        refused = next(
            (v for k, v in self.cloud.refuses.items() if f"{self.command} {path}".startswith(k)),
            None,
        )
        if refused:
            self._send(
                refused[0],
                {
                    "error": {
                        "code": refused[0],
                        "message": refused[1],
                        "status": "PERMISSION_DENIED",
                    }
                },
            )
        elif path.startswith("/v1/"):
            self._cloud_build(path, body)
        else:
            self._storage(path, query, body)

    do_POST = do_PUT = do_GET

    def _cloud_build(self, path: str, body: bytes) -> None:
        if self.command == "POST" and path.endswith("/builds"):
            self.cloud.submitted.append((path, _as_read(body)))
            build = {**self.cloud.described(), "status": "QUEUED"}
            self._send(
                200, {"name": "operations/1", "metadata": {"@type": _METADATA, "build": build}}
            )
        elif path.endswith("/builds/build-1:cancel"):
            self.cloud.cancelled.append(path)
            self._send(200, self.cloud.described())
        elif path.endswith("/builds/build-1"):
            self._send(200, self.cloud.build())
        else:
            self._send(404, {"error": {"code": 404, "message": f"no {path}"}})

    def _storage(self, path: str, query: dict[str, str], body: bytes) -> None:
        buckets, objects = self.cloud.buckets, self.cloud.objects
        if (match := re.fullmatch(r"/upload/storage/v1/b/([^/]+)/o", path)) and match[1] in buckets:
            metadata, content = _multipart(self.headers["Content-Type"], body)
            objects[match[1], metadata["name"]] = content
            self._send(
                200,
                {"bucket": match[1], "name": metadata["name"], "generation": "1700000000000001"},
            )
        elif match := re.fullmatch(r"/download/storage/v1/b/([^/]+)/o/(.+)", path):
            self._download(objects.get((match[1], match[2])))
        elif path == "/storage/v1/b" and self.command == "POST":
            buckets[json.loads(body)["name"]] = query["project"]
            self._send(200, {"name": json.loads(body)["name"]})
        elif path == "/storage/v1/b":
            self._send(
                200,
                {
                    "items": [
                        {"name": name}
                        for name, owner in buckets.items()
                        if owner == query["project"]
                    ]
                },
            )
        elif (match := re.fullmatch(r"/storage/v1/b/([^/]+)", path)) and match[1] in buckets:
            self._send(200, {"name": match[1]})
        else:
            self._send(404, {"error": {"code": 404, "message": f"no {path}"}})

    def _download(self, content: bytes | None) -> None:
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        if content is None:
            self._send(404, {"error": {"code": 404, "message": "no such object"}})
        elif start >= len(content):
            self._send(416, {"error": {"code": 416, "message": "nothing there"}})
        else:
            part = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self._reply(206, content[start:], {"Content-Type": "text/plain", "Content-Range": part})

    def _send(self, status: int, document: dict[str, Any]) -> None:
        self._reply(status, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _as_read(body: bytes) -> dict[str, Any]:
    """A Build as the API reads it: an enum may come as a number or by name, a field it does not
    know is refused.
    """
    build: dict[str, Any] = json.loads(
        Build.to_json(Build.from_json(body), use_integers_for_enums=False, **_AS_SENT)
    )
    return build


def _multipart(kind: str, body: bytes) -> tuple[dict[str, Any], bytes]:
    """The two parts of a multipart upload: the object's metadata and its content."""
    boundary = re.search(r'boundary="?([^";]+)', kind)
    assert boundary, kind
    _, metadata, content, _ = body.split(b"--" + boundary[1].encode())
    return json.loads(metadata.split(b"\r\n\r\n", 1)[1]), content.split(b"\r\n\r\n", 1)[
        1
    ].removesuffix(b"\r\n")
