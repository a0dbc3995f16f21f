"""Reach a pod's sshd through the API server, by a port-forward stream that looks like a socket.

A pod that is gone or has ended, and a kubelet or sshd that does not answer, raise OSError, as
connecting a socket does; an API server that refuses or is silent raises LaunchError.
"""

import copy
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any, cast

from seatrial.model.errors import LaunchError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms.kubernetes.api import POD, Api
from seatrial.platforms.kubernetes.ending import termination_message
from seatrial.text.lines import first_line, one_line

_TRIES = 4  # an API server that restarts is back after some seconds
_PAUSE_S = 2.0
_FAREWELL_S = 1.0
_STATUS = re.compile(r"Handshake status (\d{3})")
# The API server's message if the node's kubelet does not answer
_KUBELET = "error dialing backend"
_limit_s: ContextVar[float | None] = ContextVar("limit of a handshake", default=None)


class _Stream:
    """The socket end of a port-forward stream, which it keeps alive."""

    def __init__(self, forward: Any, port: int) -> None:
        self._forward = forward
        self._socket = forward.socket(port)
        self._socket.setblocking(True)

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut down sending, and wait for the other side to end, since unread data would break its
        thread.
        """
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(_FAREWELL_S)
            while self._socket.recv(65536):
                pass
        self._forward.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def dial_pod(api: Api, pod: str, port: int, timeout_s: float) -> socket.socket:
    """Return a stream to `port` of `pod`.

    Raises OSError if the pod or its node is to blame, LaunchError if the API server is.
    """
    forward = _open(api, pod, port, timeout_s)
    stream = _Stream(forward, port)
    try:
        stream.settimeout(timeout_s)
        # The kubelet reports errors only when the stream is used. An SSH server sends first.
        if not stream.recv(1, socket.MSG_PEEK):
            problem = first_line(forward.error(port)) or "the stream was closed"
            raise OSError(_ending(api, pod) or f"pod {pod}: {problem}")
    except BaseException:
        stream.close()
        raise
    return cast(socket.socket, stream)


def _open(api: Api, pod: str, port: int, timeout_s: float) -> Any:
    from kubernetes import client
    from kubernetes.client.exceptions import ApiException
    from kubernetes.stream import portforward

    for attempt in range(1, _TRIES + 1):
        # A separate client, since the library modifies it while dialling, and many dial at once.
        core = client.CoreV1Api(copy.copy(api.client))
        begun = time.monotonic()
        try:
            with _handshakes_within(timeout_s):
                return portforward(
                    core.connect_get_namespaced_pod_portforward, pod, api.namespace, ports=str(port)
                )
        except ApiException as error:
            if time.monotonic() - begun >= timeout_s:
                # The API server asks the kubelet first; this raises if the API server itself is
                # silent
                api.version()
                silent = (
                    f"no stream within {timeout_s:g} s: the kubelet of its node does not answer"
                )
                raise OSError(f"pod {pod}: {silent}") from error
            text = one_line(error.reason or error)
            status = int(match[1]) if (match := _STATUS.search(text)) else 0
            refused = status in (401, 403)
            # A kubelet answers 404 or 500 for a pod that has ended.
            if not refused and (ended := _ending(api, pod)):
                raise OSError(ended) from error
            if status == 404:
                raise OSError(f"pod {pod} is gone") from error
            if _KUBELET in text:
                raise OSError(f"pod {pod}: the kubelet of its node does not answer") from error
            if refused or attempt == _TRIES:
                raise LaunchError.of("port-forward-failed", pod=pod, text=text[:300]) from error
        time.sleep(_PAUSE_S)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _ending(api: Api, pod: str) -> Reason | None:
    """Describe the end of the pod; None while it runs, or if that is unknown."""
    try:
        return termination_message(api.find(POD, pod), pod)
    except SeatrialError:
        return None


@contextmanager
def _handshakes_within(timeout_s: float) -> Iterator[None]:
    """Limit the time of WebSocket handshakes within the context; the library has no option for
    that.
    """
    _limit_handshakes()
    before = _limit_s.set(timeout_s)
    try:
        yield
    finally:
        _limit_s.reset(before)


@cache
def _limit_handshakes() -> None:
    from kubernetes.stream import ws_client

    class Limited(ws_client.WebSocket):  # type: ignore[misc]
        """A WebSocket whose handshake has a time limit."""

        def connect(self, url: str, **options: Any) -> None:
            super().connect(url, timeout=_limit_s.get(), **options)
            self.settimeout(None)

    ws_client.WebSocket = Limited
