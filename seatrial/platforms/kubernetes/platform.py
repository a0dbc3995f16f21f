"""The Kubernetes platform: launch, teardown and leftovers of testbeds made of pods."""

import logging
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from seatrial.errors import MissingError, SeatrialError
from seatrial.keys import new_key_pair
from seatrial.platforms import Leftover, Rendered
from seatrial.platforms import state as states
from seatrial.platforms.kubernetes.api import NODE, POD, SECRET, SERVICE, Api, Watches
from seatrial.platforms.kubernetes.bringup import BringUp
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.doctor import ailments
from seatrial.platforms.kubernetes.forward import dial_pod
from seatrial.platforms.kubernetes.launchers import launcher_for
from seatrial.platforms.kubernetes.machines import check
from seatrial.platforms.kubernetes.objects import key_files, objects
from seatrial.platforms.kubernetes.plan import OWNER, RUN_ID, Object, Plan, plan, selector
from seatrial.platforms.kubernetes.topology import place
from seatrial.run import Run
from seatrial.testbed import Node, Testbed

if TYPE_CHECKING:
    from seatrial.cluster import Cluster

log = logging.getLogger("seatrial.launch")

_FOLDER = "kubernetes"
_WORKDIR = "/tmp/seatrial"  # on the nodes
_GONE_S = 25.0  # for the pods to end at teardown; the entry point leaves at once on TERM
_INDEX = "batch.kubernetes.io/job-completion-index"


class Kubernetes:
    """Nodes as pods of one cluster, in one namespace."""

    def __init__(self, cluster: "Cluster", settings: KubernetesPlatform) -> None:
        self._cluster = cluster
        self._settings = settings
        self._api = Api(settings)
        self._launcher = launcher_for(settings.launcher)

    def render(self, run: Run) -> Rendered:
        made = {"<file>": "<made for each run>"}
        submitted = objects(plan(run, owner="<host of the run>"), made)
        return Rendered({f"{thing['kind'].lower()}.yaml": _yaml(thing) for thing in submitted})

    def launch(self, run: Run) -> Testbed:
        if not run.cluster.image:
            raise MissingError("image: is required on Kubernetes; the nodes run its sshd, Open MPI and torch")
        self._api.knows(self._launcher.kind)  # before anything is made
        folder = states.make_folder(run.run_id, _FOLDER)
        run_key, host_key = new_key_pair(), new_key_pair()
        key_file = folder / "id_ed25519"
        key_file.touch(mode=0o600)
        key_file.write_text(run_key.private)
        planned = plan(run, owner=socket.gethostname())
        *owned, parent = objects(planned, key_files(run_key, host_key))
        for thing in owned:
            self._api.create(thing)
        made = self._api.create(parent)
        for thing in owned:
            self._api.own(thing, {**made, "apiVersion": parent["apiVersion"], "kind": parent["kind"]})
        pods = BringUp(self._api, planned, self._launcher, made).wait()
        return self._testbed(planned, pods, host_key.public, key_file)

    def _testbed(self, planned: Plan, pods: Sequence[Object], host_key: str, key_file: Path) -> Testbed:
        cluster, places = planned.run.cluster, self._places()
        ordered = sorted(pods, key=lambda pod: (place(places.get(pod["spec"]["nodeName"], {})), _index(pod)))
        names = _names(ordered)
        nodes = tuple(
            Node(name, pod["status"]["podIP"], cluster.ssh_port, cluster.slots, host_key, cluster.gpus)
            for name, pod in zip(names, ordered, strict=True)
        )
        pod_of = {name: pod["metadata"]["name"] for name, pod in zip(names, ordered, strict=True)}

        def dial(node: Node, timeout_s: float) -> socket.socket:
            return dial_pod(self._api, pod_of[node.name], node.port, timeout_s)

        interface = cluster.mpi.interface or (None if self._settings.host_network else "eth0")
        return Testbed(
            run_id=planned.run.run_id,
            nodes=nodes,
            user="root",
            key_file=key_file,
            dial=dial,
            workdir=f"{_WORKDIR}/{planned.run.run_id}",
            mpirun=cluster.mpi.mpirun,
            mpirun_args=cluster.mpi.args,
            network=interface,
            env=tuple(cluster.env.items()),
        )

    def _places(self) -> dict[str, Mapping[str, str]]:
        """The labels of every node; without the right to look, hosts stay in the order of the pods."""
        try:
            return {node["metadata"]["name"]: node["metadata"].get("labels", {}) for node in self._api.list(NODE)}
        except SeatrialError as error:
            log.warning("the hostfile is not in topology order: %s", error)
            return {}

    def teardown(self, run_id: str) -> None:
        for kind in (self._launcher.kind, POD, SERVICE, SECRET):
            self._api.delete_all(kind, selector(run_id))
        states.remove_folder(states.root_folder(_FOLDER) / run_id)
        deadline = time.monotonic() + _GONE_S
        with Watches(self._api) as watches:
            watches.add(POD, label_selector=selector(run_id))
            left = {pod["metadata"]["name"] for pod in self._api.list(POD, selector(run_id))}
            while left and time.monotonic() < deadline:
                change = watches.next(0.5)
                if change and change.change == "DELETED":
                    left.discard(change.object["metadata"]["name"])
        if left:
            log.warning("%d pods of %s are still ending: %s", len(left), run_id, ", ".join(sorted(left)[:4]))

    def leftovers(self) -> list[Leftover]:
        found: dict[str, Object] = {}
        for kind in (self._launcher.kind, SECRET):
            try:
                for thing in self._api.list(kind, selector()):
                    found.setdefault(thing["metadata"]["labels"][RUN_ID], thing)
            except MissingError:
                continue
        return [
            Leftover(run_id, _age_s(thing), f"objects in namespace {self._settings.namespace}")
            for run_id, thing in found.items()
            if self._is_abandoned(run_id, thing)
        ]

    def _is_abandoned(self, run_id: str, thing: Object) -> bool:
        """Whether nobody tends it: its process is gone from this host, or it is past any host's deadline."""
        if thing["metadata"].get("annotations", {}).get(OWNER) == socket.gethostname():
            folder = states.root_folder(_FOLDER) / run_id
            return not folder.exists() or states.is_abandoned(folder)
        return _age_s(thing) > self._settings.queue_timeout_s + self._settings.deadline_s

    def missing(self) -> list[str]:
        return ailments(self._api, self._cluster, self._settings)


def platform(cluster: "Cluster") -> Kubernetes:
    """The platform that the cluster file describes. Raises InputError where its parts do not fit together."""
    assert isinstance(cluster.platform, KubernetesPlatform)
    check(cluster, cluster.platform)
    return Kubernetes(cluster, cluster.platform)


def _names(pods: Sequence[Object]) -> list[str]:
    """Nodes are called as Kubernetes calls them, because that is whom one cordons; pods that share one, as the pod."""
    hosts = [pod["spec"]["nodeName"] for pod in pods]
    shared = len(set(hosts)) < len(hosts)
    return [pod["metadata"]["name"] for pod in pods] if shared else hosts


def _index(pod: Object) -> tuple[bool, int]:
    """A Job's index, or a Kubeflow replica's: the master, then the workers."""
    labels = pod["metadata"].get("labels", {})
    worker = labels.get("training.kubeflow.org/replica-type") == "worker"
    return worker, int(labels.get(_INDEX) or labels.get("training.kubeflow.org/replica-index") or 0)


def _age_s(thing: Object) -> float:
    made = datetime.fromisoformat(thing["metadata"]["creationTimestamp"])
    return (datetime.now(UTC) - made).total_seconds()


def _yaml(thing: Object) -> str:
    return yaml.safe_dump(thing, sort_keys=False, width=120)
