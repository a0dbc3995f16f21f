"""Reach a pod's sshd through the API server, by a port-forward stream that looks like a socket. No route needed."""

import socket
from typing import Any, cast

from seatrial.platforms.kubernetes.api import Api


class _Stream:
    """The socket end of a port-forward stream; the stream lives as long as this does."""

    def __init__(self, forward: Any, port: int) -> None:
        self._forward = forward
        self._socket = forward.socket(port)
        self._socket.setblocking(True)

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._forward.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def dial_pod(api: Api, pod: str, port: int, timeout_s: float) -> socket.socket:
    """A stream to `port` of `pod`. Raises OSError, as connecting a socket does."""
    from kubernetes import client
    from kubernetes.client.exceptions import ApiException
    from kubernetes.stream import portforward

    try:
        core = client.CoreV1Api(api.client)
        forward = portforward(core.connect_get_namespaced_pod_portforward, pod, api.namespace, ports=str(port))
    except ApiException as error:
        raise OSError(f"the API server opens no stream to pod {pod}: {_why(error)}") from error
    stream = _Stream(forward, port)
    stream.settimeout(timeout_s)
    # What the kubelet has to say against it comes when the stream is used. An SSH server speaks first.
    if not stream.recv(1, socket.MSG_PEEK):
        stream.close()
        raise OSError(f"pod {pod} does not answer: {_first_line(forward.error(port)) or 'the stream was closed'}")
    return cast(socket.socket, stream)


def _first_line(text: str | None) -> str:
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), "")


def _why(error: Any) -> str:
    """The WebSocket's handshake has the status in its text: 404 where the pod is gone."""
    text = " ".join(str(error.reason or error).split())
    return "the pod is gone" if "404" in text else text[:300]
