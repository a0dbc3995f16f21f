"""A login to a pod of a testbed that Helm has made."""

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import paramiko
from kubernetes import client, config
from kubernetes.stream import portforward

from seatrial.remote.ssh import KeyPair
from tests.e2e.kubernetes.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Keys:
    """What every node of a run has, and who may log in."""

    user: KeyPair
    host: KeyPair


def ssh(cluster: Cluster, namespace: str, pod: str, keys: Keys, command: str) -> str:
    """Log in on port 222 by way of the API server, run a command, and return its output."""
    with _stream(cluster, namespace, pod) as stream, paramiko.Transport(stream) as transport:
        transport.start_client(timeout=10)
        assert transport.get_remote_server_key().get_base64() == keys.host.public.split()[1]
        transport.auth_publickey(
            "root", paramiko.Ed25519Key.from_private_key(io.StringIO(keys.user.private))
        )
        channel = transport.open_session()
        channel.exec_command(command)
        output: str = channel.makefile("rb").read().decode()
        # Before anything is closed: unread bytes would break the proxy's thread
        stream.shutdown(socket.SHUT_WR)
        transport.join(5)
        return output


@contextmanager
def _stream(cluster: Cluster, namespace: str, pod: str) -> Iterator[socket.socket]:
    """A port-forward of the API server as a socket.

    The client's own closing leaves sockets and a thread behind.
    """
    with config.new_client_from_config(str(cluster.kubeconfig)) as api:
        core = client.CoreV1Api(api)
        forward = portforward(
            core.connect_get_namespaced_pod_portforward, pod, namespace, ports="222"
        )
        stream = forward.socket(222)
        stream.setblocking(True)
        try:
            yield stream
        finally:
            forward.close()
            for thread in threading.enumerate():
                if thread.name.startswith("Kubernetes port forward proxy"):
                    thread.join(5)
