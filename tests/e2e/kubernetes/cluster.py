"""A real Kubernetes cluster: `with up() as cluster` brings it up and leaves nothing behind."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.kubernetes import addons, build, cgroups, control, dns, images, nodes, store
from tests.e2e.kubernetes.build import Unavailable
from tests.e2e.kubernetes.machine import Machine
from tests.site import PATIENCE_S

NODES = ("node-0", "node-1")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that is up. `kubeconfig` is an administrator's."""

    kubeconfig: Path
    nodes: tuple[str, ...]
    tools: Path
    # None: somebody else's cluster, whose machines cannot be touched
    machine: Machine | None = None
    image: str = images.CPU

    @property
    def pull_policy(self) -> str:
        """Of the image: our own nodes have it already, and somebody else's pull it where it is not
        there yet.
        """
        return "Never" if self.machine else "IfNotPresent"

    def kubectl(
        self,
        *arguments: str,
        stdin: str = "",
        kubeconfig: Path | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> str:
        """Run kubectl; its standard output. AssertionError with what it said when it fails."""
        command = [
            str(self.tools / "kubectl"),
            "--kubeconfig",
            str(kubeconfig or self.kubeconfig),
            *arguments,
        ]
        environment = {
            key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")
        }
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env=environment,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def get(self, *query: str) -> dict[str, Any]:
        """`kubectl get` as data."""
        document: dict[str, Any] = json.loads(self.kubectl("get", *query, "--output", "json"))
        return document

    def apply(self, *objects: object) -> None:
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--filename", "-", stdin=json.dumps(document))

    def define(self, file: Path, timeout_s: float = PATIENCE_S) -> None:
        """Make the CRDs of a file known; objects of theirs can be made once this returns."""
        self.kubectl("apply", "--server-side", f"--filename={file}")
        deadline = time.monotonic() + timeout_s
        # kubectl's own wait breaks on null
        while not _all_established(self.get(f"--filename={file}")):
            assert time.monotonic() < deadline, f"the API server does not take {file.name}"
            time.sleep(0.2)

    @property
    def own(self) -> Machine:
        """The machine under it, for what only the owner of a cluster can do."""
        assert self.machine, "this cluster is not ours to break"
        return self.machine

    def stop_kubelet(self, node: str) -> None:
        """Make the node fall silent; it is NotReady 20 s later. Its containers live on."""
        self.own.signal(f"kubelet-{node}", signal.SIGSTOP)

    def resume_kubelet(self, node: str) -> None:
        self.own.signal(f"kubelet-{node}", signal.SIGCONT)

    def restart_apiserver(self) -> None:
        """As a crash would: every connection breaks. Returns when it answers again."""
        control.restart_apiserver(self.own)

    def on_node(self, node: str, *command: str) -> str:
        """Run a command in the node's namespaces, such as tc or ctr; its standard output."""
        return self.own.run(*command, node=node)

    @property
    def kubeconfig_without_rights(self) -> Path:
        """Of a user who may log in and do nothing else."""
        return control.kubeconfig(self.own, "nobody")


def _all_established(definitions: dict[str, Any]) -> bool:
    """Whether these CRDs, or this one, can be used."""
    ready = {"type": "Established", "status": "True"}.items()
    statuses = [
        definition.get("status", {}) for definition in definitions.get("items", [definitions])
    ]
    return all(
        any(ready <= each.items() for each in status.get("conditions") or ()) for status in statuses
    )


@contextmanager
def up() -> Iterator[Cluster]:
    """A cluster that ends with the block, and with this process however that ends.

    Raises:
        Unavailable: this machine cannot have one.
    """
    machine = Machine()
    with build.exclusive(machine.lock):
        try:
            yield start(machine, keep=False)
        finally:
            machine.stop()


@contextmanager
def api_server(number: int = 2) -> Iterator[Cluster]:
    """A cluster without nodes, controllers and scheduler, for objects that are submitted without
    effect.

    Raises:
        Unavailable: this machine cannot have one.
    """
    build.require_root()
    tools = build.programs(build.API_SERVER)
    machine = Machine(number)
    with build.exclusive(machine.lock):
        machine.stop()
        try:
            machine.start(tools, keep=False)
            control.prepare(machine, ())
            control.start_api(machine)
            cluster = Cluster(control.kubeconfig(machine, "admin"), (), tools, machine)
            cluster.kubectl(
                "wait", "--for=create", "namespace/default", f"--timeout={PATIENCE_S:.0f}s"
            )
            # No controller makes it; pods are refused without
            cluster.kubectl("create", "serviceaccount", "default")
            yield cluster
        finally:
            machine.stop()


def start(machine: Machine, *, keep: bool) -> Cluster:
    """Bring a cluster up in place of what the last one has left.

    Raises:
        Unavailable: this machine cannot have one.
    """
    build.require_system()
    tools = build.programs()
    addons.folder(addons.COREDNS)
    loaded = store.prepared(tools / "pause")
    machine.stop()
    machine.start(tools, keep=keep)
    try:
        control.prepare(machine, NODES)
        control.start(machine)
        dns.start(machine)
        nodes.start(machine, NODES, loaded)
        cluster = Cluster(control.kubeconfig(machine, "admin"), NODES, tools, machine)
        cluster.kubectl(
            "wait", "--for=create", "serviceaccount/default", f"--timeout={PATIENCE_S:.0f}s"
        )
        for name in NODES:
            wait_for_node(cluster, name)
        (machine.state / "nodes.json").write_text(json.dumps(NODES))
    except BaseException:
        machine.stop()
        raise
    return cluster


def running(machine: Machine) -> Cluster | None:
    """The cluster that somebody has brought up and kept."""
    names = machine.state / "nodes.json"
    if not machine.pid or not names.exists():
        return None
    return Cluster(
        control.kubeconfig(machine, "admin"),
        tuple(json.loads(names.read_text())),
        build.programs(),
        machine,
    )


def wait_for_node(cluster: Cluster, node: str, timeout_s: float = PATIENCE_S) -> None:
    """Give the node its GPUs and wait until it is Ready."""
    deadline = time.monotonic() + timeout_s
    while node not in cluster.kubectl("get", "nodes", "--output", "name"):
        assert time.monotonic() < deadline, cluster.own.log(f"kubelet-{node}")
        time.sleep(0.2)
    cluster.kubectl("patch", "node", node, "--subresource", "status", "--patch", nodes.gpus())
    cluster.kubectl(
        "wait", "--for", "condition=Ready", f"node/{node}", f"--timeout={timeout_s:.0f}s"
    )


def leftovers(machine: Machine) -> list[str]:
    """What a cluster has on this machine outside its own namespaces."""
    links = [machine.link] if Path("/sys/class/net", machine.link).exists() else []
    folders = [str(machine.state)] if machine.state.exists() else []
    mounts = [
        line for line in Path("/proc/mounts").read_text().splitlines() if str(machine.state) in line
    ]
    return links + folders + mounts + [str(group) for group in cgroups.left(machine.cgroup)]


__all__ = [
    "Cluster",
    "Unavailable",
    "api_server",
    "leftovers",
    "running",
    "start",
    "up",
    "wait_for_node",
]
