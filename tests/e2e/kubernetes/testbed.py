"""A testbed by hand, as plain as it gets: a Secret with a run's keys, a headless Service, an Indexed Job."""

import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import paramiko
from kubernetes import client, config
from kubernetes.stream import portforward

from seatrial.remote.ssh import KeyPair, new_key_pair
from tests.e2e.kubernetes.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Keys:
    """What every node of a run has, and who may log in."""

    user: KeyPair
    host: KeyPair

    def secret(self) -> dict[str, str]:
        return {
            "authorized_keys": self.user.public + "\n",
            "id_ed25519": self.user.private,
            "ssh_host_ed25519_key": self.host.private,
            "known_hosts": f"* {self.host.public}\n",
        }


def new_keys() -> Keys:
    return Keys(new_key_pair(), new_key_pair())


def objects(cluster: Cluster, nodes: int, keys: Keys, gpus: int = 8) -> list[dict[str, Any]]:
    """For `apply`: pods "bed-0-...", "bed-1-..." of a Job, each with all GPUs of its node."""
    container = {
        "name": "node",
        "image": cluster.image,
        "imagePullPolicy": cluster.pull_policy,
        "ports": [{"containerPort": 222}],
        "readinessProbe": {"exec": {"command": ["seatrial-ready"]}, "periodSeconds": 1},
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
        "volumeMounts": [{"name": "keys", "mountPath": "/etc/seatrial", "readOnly": True}],
    }
    pod = {
        "restartPolicy": "Never",
        "subdomain": "bed",
        "containers": [container],
        "volumes": [{"name": "keys", "secret": {"secretName": "bed", "defaultMode": 0o400}}],
        "terminationGracePeriodSeconds": 1,
    }
    job = {
        "completions": nodes,
        "parallelism": nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"metadata": {"labels": {"bed": "bed"}}, "spec": pod},
    }
    service = {"clusterIP": "None", "selector": {"bed": "bed"}, "publishNotReadyAddresses": True}
    name = {"metadata": {"name": "bed"}}
    return [
        {"apiVersion": "v1", "kind": "Secret", "stringData": keys.secret(), **name},
        {"apiVersion": "v1", "kind": "Service", "spec": service, **name},
        {"apiVersion": "batch/v1", "kind": "Job", "spec": job, **name},
    ]


def apply(cluster: Cluster, namespace: str, objects: list[dict[str, Any]]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("apply", "--namespace", namespace, "--filename", "-", stdin=text)


def wait_for_pods(cluster: Cluster, namespace: str, nodes: int, timeout_s: float = 60) -> list[dict[str, Any]]:
    """The pods by index, once all of them are Ready."""
    deadline = time.monotonic() + timeout_s
    while True:
        listing = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "--selector", "bed", "--output", "json"))
        pods: list[dict[str, Any]] = listing["items"]
        if len(pods) == nodes and all(_is_ready(pod) for pod in pods):
            return sorted(pods, key=_index)
        assert time.monotonic() < deadline, cluster.kubectl("-n", namespace, "describe", "pods")
        time.sleep(0.2)


def _index(pod: dict[str, Any]) -> int:
    return int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def ssh(cluster: Cluster, namespace: str, pod: str, keys: Keys, command: str) -> str:
    """Log in on port 222 by way of the API server, run a command, and return its output."""
    with _stream(cluster, namespace, pod) as stream, paramiko.Transport(stream) as transport:
        transport.start_client(timeout=10)
        assert transport.get_remote_server_key().get_base64() == keys.host.public.split()[1]
        transport.auth_publickey("root", paramiko.Ed25519Key.from_private_key(io.StringIO(keys.user.private)))
        channel = transport.open_session()
        channel.exec_command(command)
        output: str = channel.makefile("rb").read().decode()
        stream.shutdown(socket.SHUT_WR)  # before anything is closed: unread bytes would break the proxy's thread
        transport.join(5)
        return output


@contextmanager
def _stream(cluster: Cluster, namespace: str, pod: str) -> Iterator[socket.socket]:
    """A port-forward of the API server as a socket. The client's own closing leaves sockets and a thread behind."""
    with config.new_client_from_config(str(cluster.kubeconfig)) as api:
        core = client.CoreV1Api(api)
        forward = portforward(core.connect_get_namespaced_pod_portforward, pod, namespace, ports="222")
        stream = forward.socket(222)
        stream.setblocking(True)
        try:
            yield stream
        finally:
            forward.close()
            for thread in threading.enumerate():
                if thread.name.startswith("Kubernetes port forward proxy"):
                    thread.join(5)
