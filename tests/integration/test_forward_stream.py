"""Opening a stream to a pod ends in time, whoever is silent: the API server, or a kubelet behind
it.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from seatrial.model.errors import LaunchError
from seatrial.platforms.kubernetes.api import LIMIT, Api
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.forward import dial_pod
from tests.integration.loopback import web_server


class WithoutKubelets(BaseHTTPRequestHandler):
    """An API server whose kubelets are silent: it waits for them until its client has gone."""

    def do_GET(self) -> None:
        if self.path != "/version/":
            self.rfile.read(1)
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        fields = (
            "major",
            "minor",
            "gitVersion",
            "gitCommit",
            "gitTreeState",
            "buildDate",
            "goVersion",
            "compiler",
            "platform",
        )
        self.wfile.write(json.dumps(dict.fromkeys(fields, "1")).encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def silent_server() -> Iterator[int]:
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setitem(LIMIT, "_request_timeout", 0.5)
    return Api(KubernetesPlatform(kind="kubernetes"))


def points_to(folder: Path, port: int) -> None:
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    server = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    config = {
        "clusters": [server],
        "contexts": [context],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    }
    (folder / "kubeconfig").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("server", "error", "message"),
    [
        (
            partial(web_server, WithoutKubelets),
            OSError,  # the node's fault
            r"pod p: no stream within 0\.3 s: the kubelet of its node does not answer",
        ),
        (silent_server, LaunchError, r"the API server http://127\.0\.0\.1:\d+ does not answer"),
    ],
    ids=["kubelet", "API server"],
)
def test_silent_kubelet_or_api_server_is_named_after_the_timeout(
    api: Api,
    tmp_path: Path,
    server: Callable[[], AbstractContextManager[int]],
    error: type[Exception],
    message: str,
) -> None:
    started = time.monotonic()
    with server() as port:
        points_to(tmp_path, port)
        with pytest.raises(error, match=message):
            dial_pod(api, "p", 222, 0.3)
        assert time.monotonic() - started < 60  # of a silence without end
