"""etcd, the API server, the controller manager and the scheduler, all in the cluster's machine."""

import base64
import json
import secrets
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.e2e.kubernetes.machine import Machine
from tests.site import PATIENCE_S

PORT = 6443
# Who may come in, and the groups they are in. Rights follow from Kubernetes' own roles; "nobody"
# has none.
USERS = {
    "admin": "system:masters",
    "nobody": "",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
}


def prepare(machine: Machine, nodes: tuple[str, ...]) -> None:
    """Write what the servers read: tokens, service account keys."""
    users = USERS | {f"system:node:{node}": "system:nodes" for node in nodes}
    tokens = {user: secrets.token_hex(16) for user in users}
    lines = [f'{tokens[user]},{user},{user},"{groups}"\n' for user, groups in users.items()]
    (machine.state / "tokens.csv").write_text("".join(lines))
    (machine.state / "tokens.json").write_text(json.dumps(tokens))
    private, public = _rsa_pair()
    (machine.state / "accounts.key").write_bytes(private)
    (machine.state / "accounts.pub").write_bytes(public)


def start(machine: Machine) -> None:
    """Start everything; returns when the API answers and the kubeconfigs are written."""
    start_api(machine)
    start_controllers(machine)


def start_api(machine: Machine) -> None:
    """Start etcd and the API server alone: objects are checked and kept, and nothing becomes of
    them.
    """
    flags = ["--unsafe-no-fsync", "--data-dir=/run/cluster/etcd", "--log-level=warn"]
    machine.spawn("etcd", "/run/tools/etcd", *flags)
    start_apiserver(machine)
    for user in json.loads((machine.state / "tokens.json").read_text()):
        write_kubeconfig(machine, user)


def start_controllers(machine: Machine) -> None:
    """Start what makes something of the objects: the controller manager and the scheduler."""
    # Managed clusters allow them more than the defaults, by which 512 pods take half a minute,
    # whoever asks for them.
    rates = ["--kube-api-qps=200", "--kube-api-burst=400"]
    common = ["--leader-elect=false", "--authorization-always-allow-paths=*", *rates]
    machine.spawn(
        "kube-controller-manager",
        "/run/tools/kube-controller-manager",
        *common,
        f"--kubeconfig={inside(kubeconfig(machine, 'system:kube-controller-manager'))}",
        "--use-service-account-credentials",
        "--service-account-private-key-file=/run/cluster/accounts.key",
        "--root-ca-file=/run/cluster/certificates/apiserver.crt",
        "--node-monitor-period=2s",
        "--node-monitor-grace-period=20s",  # tests that lose a node do not want to wait for 50
    )
    machine.spawn(
        "kube-scheduler",
        "/run/tools/kube-scheduler",
        *common,
        f"--kubeconfig={inside(kubeconfig(machine, 'system:kube-scheduler'))}",
    )


def start_apiserver(machine: Machine) -> None:
    machine.spawn(
        "kube-apiserver",
        "/run/tools/kube-apiserver",
        f"--bind-address={machine.address(1)}",
        f"--secure-port={PORT}",
        f"--advertise-address={machine.address(1)}",
        "--cert-dir=/run/cluster/certificates",
        "--etcd-servers=http://127.0.0.1:2379",
        "--token-auth-file=/run/cluster/tokens.csv",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=/run/cluster/accounts.pub",
        "--service-account-signing-key-file=/run/cluster/accounts.key",
        f"--service-cluster-ip-range={machine.address(0, 128)}/17",
        "--endpoint-reconciler-type=none",
        "--kubelet-preferred-address-types=InternalIP",  # nobody here resolves the names of nodes
        # Webhooks are reached by their endpoints; there is no kube-proxy
        "--enable-aggregator-routing",
        "--allow-privileged",
    )
    _wait_until_ready(machine)


def restart_apiserver(machine: Machine) -> None:
    """As a crash would: every connection breaks, and it is back some seconds later."""
    machine.kill("kube-apiserver")
    start_apiserver(machine)


def kubeconfig(machine: Machine, user: str) -> Path:
    return machine.state / f"kubeconfig-{user.replace(':', '-')}"


def inside(path: Path) -> str:
    """The path that a file of the machine's folder has inside."""
    return f"/run/cluster/{path.name}"


def token(machine: Machine, user: str) -> str:
    return str(json.loads((machine.state / "tokens.json").read_text())[user])


def write_kubeconfig(machine: Machine, user: str) -> None:
    authority = base64.b64encode(
        (machine.state / "certificates" / "apiserver.crt").read_bytes()
    ).decode()
    server = f"https://{machine.address(1)}:{PORT}"
    cluster = {"server": server, "certificate-authority-data": authority}
    name = f"seatrial-{machine.number}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token(machine, user)}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    kubeconfig(machine, user).write_text(json.dumps(config))


def _wait_until_ready(machine: Machine, timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not _answers(machine):
        assert time.monotonic() < deadline, (
            f"no API after {timeout_s} s: {machine.log('kube-apiserver')}"
        )
        time.sleep(0.1)


def _answers(machine: Machine) -> bool:
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=ssl._create_unverified_context()),
    )
    try:
        with opener.open(f"https://{machine.address(1)}:{PORT}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _rsa_pair() -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private, public
