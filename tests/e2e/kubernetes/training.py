"""Kubeflow's training operator, version 1: PyTorchJob with its real controller.

Needs the cluster's DNS.
"""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.kubernetes import addons
from tests.e2e.kubernetes.cluster import Cluster
from tests.e2e.kubernetes.machine import Machine
from tests.site import PATIENCE_S

SECRET = "training-operator-webhook-cert"
WEBHOOKS = "validator.training-operator.kubeflow.org"
NAME = addons.TRAINING_OPERATOR.name
# The operator knows /tmp by heart; it gets a /tmp of its own.
START = f'mount --bind /run/cluster/{NAME}-tmp /tmp; exec "$@"'
# Workers wait for the master's name; the operator's own way would pull an image from outside.
WAIT_FOR_MASTER = """\
- name: init-pytorch
  image: {{.InitContainerImage}}
  imagePullPolicy: Never
  command: [sh, -c, "until getent hosts {{.MasterAddr}}; do sleep 0.2; done"]
"""


@contextmanager
def training_operator(cluster: Cluster) -> Iterator[None]:
    """The CRDs and the operator; PyTorchJobs start once this is entered.

    Raises:
        Unavailable: the operator cannot be built here.
    """
    machine = cluster.own
    folder = addons.bring_in(machine, addons.TRAINING_OPERATOR)
    define(cluster)
    cluster.apply(*_objects())
    try:
        _start(machine, folder, cluster.image)
        _wait_until_ready(cluster)
        yield
    finally:
        machine.kill(NAME)
        cluster.kubectl("delete", "validatingwebhookconfiguration", WEBHOOKS)
        cluster.kubectl("delete", "namespace", "kubeflow")


def define(cluster: Cluster) -> None:
    """Make PyTorchJobs known to the cluster.

    Raises:
        Unavailable: the operator's module cannot be had here.
    """
    cluster.define(addons.files(addons.TRAINING_OPERATOR) / "kubeflow.org_pytorchjobs.yaml")


def _objects() -> list[dict[str, object]]:
    """What the operator's certificates go into.

    An empty list of webhooks: it would be reached by a Service.
    """
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": "kubeflow"},
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": WEBHOOKS},
            "webhooks": [],
        },
    ]


def _start(machine: Machine, folder: str, image: str) -> None:
    temporary = machine.state / f"{NAME}-tmp"
    temporary.mkdir(exist_ok=True)
    (temporary / "wait-for-master.yaml").write_text(WAIT_FOR_MASTER)
    machine.spawn(
        NAME,
        *("unshare", "--mount", "bash", "-c", START, NAME),
        f"{folder}/{NAME}",
        "-kubeconfig=/run/cluster/kubeconfig-admin",
        "-enable-scheme=pytorchjob",
        f"-pytorch-init-container-image={image}",
        "-pytorch-init-container-template-file=/tmp/wait-for-master.yaml",
    )


def _wait_until_ready(cluster: Cluster, timeout_s: float = PATIENCE_S) -> None:
    """Bring its certificate to where a kubelet would mount it; only then do the controllers
    start.
    """
    deadline = time.monotonic() + timeout_s
    while not (data := _secret(cluster)):
        assert time.monotonic() < deadline, cluster.own.log(NAME)
        time.sleep(0.2)
    mounted = cluster.own.state / f"{NAME}-tmp" / "k8s-webhook-server" / "serving-certs"
    mounted.mkdir(parents=True, exist_ok=True)
    for name, content in data.items():
        Path(mounted, name).write_bytes(base64.b64decode(content))
    while "Starting workers" not in cluster.own.log(NAME, 1000):
        assert time.monotonic() < deadline, cluster.own.log(NAME)
        time.sleep(0.2)


def _secret(cluster: Cluster) -> dict[str, str]:
    text = cluster.kubectl("get", "secret", SECRET, "--namespace", "kubeflow", "--output", "json")
    data: dict[str, str] = json.loads(text).get("data", {})
    return data
