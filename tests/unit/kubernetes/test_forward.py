"""Whose fault it is when a pod cannot be reached: the pod's, or the way to it.

Answers are played back.
"""

import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kubernetes.client.exceptions import ApiException

from seatrial.model.errors import LaunchError, SeatrialError
from seatrial.platforms.kubernetes import forward
from seatrial.platforms.kubernetes.api import Api
from seatrial.platforms.kubernetes.plan import Kind

RUNNING: dict[str, Any] = {"metadata": {"name": "p"}, "status": {"phase": "Running"}}
KILLED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
DEAD = {
    "metadata": {"name": "p"},
    "status": {"phase": "Running", "containerStatuses": [{"state": KILLED}]},
}


def api(pod: dict[str, Any] | SeatrialError | None) -> Api:
    """An API server that shows `pod` for every name, or raises it."""

    def find(kind: Kind, name: str) -> dict[str, Any] | None:
        if isinstance(pod, SeatrialError):
            raise pod
        return pod

    return cast(Api, SimpleNamespace(client=SimpleNamespace(), namespace="trials", find=find))


API = api(RUNNING)


class Forward:
    """What the library returns: one end of a socket pair, and what the kubelet said against the
    stream.
    """

    def __init__(self, first: bytes, error: str | None = None) -> None:
        self.near, self.far = socket.socketpair()
        self.message = error
        self.far.sendall(first)
        if not first:
            self.far.close()

    def socket(self, port: int) -> socket.socket:
        return self.near

    def error(self, port: int) -> str | None:
        return self.message

    def close(self) -> None:
        self.near.close()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """Plays back what opening a stream comes to, the last one again and again; returns the pods
    that were dialled.
    """
    opened: list[Forward] = []

    def play(*outcomes: Exception | Forward) -> list[str]:
        left, dialled = list(outcomes), []

        def portforward(method: Any, pod: str, namespace: str, ports: str) -> Forward:
            dialled.append(pod)
            outcome = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(outcome, Exception):
                raise outcome
            opened.append(outcome)
            return outcome

        monkeypatch.setattr("kubernetes.stream.portforward", portforward)
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        return dialled

    yield play
    for each in opened:
        each.near.close()
        each.far.close()


def refused(text: str) -> ApiException:
    return ApiException(status=0, reason=text)


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (refused("Handshake status 404 Not Found -+-+- {}"), "pod p is gone"),
        (
            refused("Handshake status 500 -+-+- error dialing backend: dial tcp: no route"),
            "the kubelet of its node",
        ),
        (Forward(b"", "error forwarding port 222: connection refused"), "connection refused"),
        (Forward(b""), "the stream was closed"),
    ],
)
def test_stream_errors_behind_the_api_server_blame_the_node(
    answers: Callable[..., list[str]], outcome: Exception | Forward, message: str
) -> None:
    answers(outcome)
    with pytest.raises(OSError, match=message):
        forward.dial_pod(API, "p", 222, 1)


NO_SANDBOX = 'Handshake status 500 Internal Server Error -+-+- pod not found ("p_trials")'


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (DEAD, r"^pod p ended with status 137 \(OOMKilled\)$"),
        (
            {
                "metadata": {},
                "status": {"phase": "Failed", "reason": "Evicted", "message": "no disk"},
            },
            "p: Evicted: no disk",
        ),
        ({"metadata": {}, "status": {"phase": "Succeeded"}}, "pod p has succeeded"),
        (None, "pod p is gone"),
    ],
)
@pytest.mark.parametrize(
    "outcome", [lambda: refused(NO_SANDBOX), lambda: Forward(b"", "connection refused")]
)
def test_ended_pod_is_reported_whatever_error_its_kubelet_returns(
    answers: Callable[..., list[str]],
    outcome: Callable[[], Any],
    pod: dict[str, Any] | None,
    message: str,
) -> None:
    dialled = answers(outcome())
    with pytest.raises(OSError, match=message):
        forward.dial_pod(api(pod), "p", 222, 1)
    assert len(dialled) == 1


def test_an_unreadable_pod_blames_the_path_to_the_cluster(
    answers: Callable[..., list[str]],
) -> None:
    answers(refused("[Errno 111] Connection refused"))
    with pytest.raises(LaunchError, match="the API server opens no stream to pod p"):
        forward.dial_pod(api(LaunchError("the API server does not answer")), "p", 222, 1)


@pytest.mark.parametrize(
    ("outcome", "tries"),
    [
        (refused("Handshake status 401 Unauthorized"), 1),
        (refused("Handshake status 403 Forbidden, pod seatrial-20260404-1"), 1),
        (refused("[Errno 111] Connection refused"), 4),
        (refused("Handshake status 503 Service Unavailable"), 4),
    ],
)
def test_errors_of_the_api_server_blame_no_node_and_are_retried_if_temporary(
    answers: Callable[..., list[str]], outcome: Exception, tries: int
) -> None:
    dialled = answers(outcome)
    with pytest.raises(LaunchError, match="the API server opens no stream to pod p"):
        forward.dial_pod(API, "p", 222, 1)
    assert len(dialled) == tries


def test_an_api_server_that_is_back_is_used_and_nothing_of_the_ssh_server_is_lost(
    answers: Callable[..., list[str]],
) -> None:
    answers(refused("[Errno 111] Connection refused"), stream := Forward(b"SSH-2.0-OpenSSH"))
    with forward.dial_pod(API, "p", 222, 1) as sock:
        assert sock.recv(100) == b"SSH-2.0-OpenSSH"
        stream.far.close()


def test_a_server_that_says_nothing_leaves_no_stream_open(
    answers: Callable[..., list[str]],
) -> None:
    stream = Forward(b"x")
    stream.near.recv(1)
    answers(stream)
    with pytest.raises(TimeoutError):
        forward.dial_pod(API, "p", 222, 0.05)
    assert stream.near.fileno() == -1
