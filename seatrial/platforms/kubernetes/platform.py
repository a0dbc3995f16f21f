"""The Kubernetes platform: launch, teardown and leftovers of testbeds made of pods."""

import logging
import platform as this_machine
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from seatrial.builders import platforms_of
from seatrial.catalog import known_hardware
from seatrial.config.architecture import node_architecture, wrong_architecture
from seatrial.config.image import Recipe
from seatrial.config.run import Run
from seatrial.model.errors import InputError, MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms import Leftover, Rendered
from seatrial.platforms import state as states
from seatrial.platforms.container import ENTRY_FILES, KEY_FILES, entry_files, key_files
from seatrial.platforms.kubernetes.api import EVENT, NODE, POD, SECRET, Api, RuntimeUnseenError
from seatrial.platforms.kubernetes.bringup import BringUp
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.ending import (
    blameless_reason,
    leftovers,
    own_pod,
    wait_for_deletion,
)
from seatrial.platforms.kubernetes.forward import dial_pod
from seatrial.platforms.kubernetes.kueue import WORKLOAD
from seatrial.platforms.kubernetes.launchers import LAUNCHERS, kind_of, kinds, needs, objects
from seatrial.platforms.kubernetes.logs import EVENTS, POD_LOGS, events_text, write_pod_logs
from seatrial.platforms.kubernetes.machines import MACHINES, Machine
from seatrial.platforms.kubernetes.plan import (
    KIND,
    TENDED_BY,
    KubernetesPlan,
    Object,
    plan,
    selector,
)
from seatrial.platforms.kubernetes.pod import NODE_ROLE, ROLE
from seatrial.platforms.kubernetes.topology import address, names, ordered, topology_groups
from seatrial.platforms.kubernetes.waiting import is_up, placed
from seatrial.platforms.testbed import node_of, testbed_of, trial_run
from seatrial.remote.ssh import new_key_pair, pinned_keys
from seatrial.system.private import write_private
from seatrial.system.rawlog import write_log
from seatrial.text.redact import Secrets, looks_secret

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

try:
    from yaml import CSafeDumper as Dumper  # libyaml's dumper is many times faster
except ImportError:  # PyYAML was built without it
    from yaml import SafeDumper as Dumper  # type: ignore[assignment]


log = logging.getLogger("seatrial.launch")

_TRIES = 10  # tries of a submission, a second apart
_OURS = ("SEATRIAL_", "PET_", "JOB_COMPLETION_INDEX")


class Kubernetes:
    """Nodes as pods of one cluster, in one namespace.

    Raises InputError if parts of the cluster file do not fit together.
    """

    def __init__(self, cluster: "Cluster") -> None:
        assert isinstance(cluster.platform, KubernetesPlatform)
        for problem in _problems(cluster, cluster.platform):
            raise InputError(problem)
        self._cluster = cluster
        self._settings = cluster.platform
        self._api = Api(cluster.platform)
        self._launcher = LAUNCHERS[cluster.platform.launcher]

    def render(self, run: Run) -> Rendered:
        """Render the manifests as YAML, by kind, without the secrets, which each run creates."""
        planned = plan(run)
        secret_files = dict.fromkeys((*KEY_FILES, *ENTRY_FILES), "<made for each run>")
        files = {}
        for manifest in objects(planned, secret_files):
            kind = manifest["kind"].lower()
            files[f"{kind}.yaml"] = yaml.dump(manifest, Dumper=_Plain, sort_keys=False, width=120)
        reached = {name: (name, name) for name in run.cluster.node_names()}
        return Rendered(files, self._testbed_of(planned, reached, ""))

    def launch(self, run: Run) -> Testbed:
        """Create keys and objects, the owner of the others last, and wait until every sshd answers.

        Raises MissingError, before creating anything, if the cluster lacks a kind, and LaunchError
        if the pods cannot get ready.
        """
        run_key = new_key_pair()
        host_key = new_key_pair()
        planned = plan(run, states.this_owner(KIND), own_pod(self._api))
        files = {**key_files(run_key, host_key), **entry_files()}
        *owned, parent = submitted = objects(planned, files)
        needed = [kind_of(manifest) for manifest in submitted]
        if self._settings.queue:
            needed.append(WORKLOAD)
        for kind in needed:  # before anything is made
            self._api.knows(kind)
        folder = states.make_folder(run.run_id, KIND)
        states.remember(folder, run.cluster)
        for name in ("id_ed25519", "known_hosts"):
            write_private(folder / name, files[name])
        for manifest in owned:
            self._api.create(manifest)
        made = self._submit(parent)
        for manifest in owned:
            self._api.own(manifest, made)
        bring_up = BringUp(self._api, planned, self._launcher, made)
        return self._testbed(planned, bring_up.wait(), host_key.public, logging.WARNING)

    def _submit(self, parent: Object) -> Object:
        """Create the object that owns the others; retry while the Trainer's webhook does not see
        the new runtime.
        """
        for _ in range(_TRIES):
            with suppress(RuntimeUnseenError):
                return self._api.create(parent)
            time.sleep(1)
        return self._api.create(parent)

    def attach(self, run_id: str) -> Testbed:
        """Return the testbed of the pods that are up. Raises InputError if there are none."""
        folder = states.run_folder(run_id, KIND)
        nodes = self._api.list(POD, f"{selector(run_id)},{ROLE}={NODE_ROLE}")
        pods = [pod for pod in nodes if is_up(pod)]
        if not pods:
            raise InputError(f"run {run_id}: no node of it is up")
        planned = plan(trial_run(self._cluster, run_id))
        pinned = pinned_keys(states.read_file(folder, "known_hosts"))
        return self._testbed(planned, pods, pinned["*"])

    def _testbed(
        self,
        planned: KubernetesPlan,
        pods: Sequence[Object],
        host_key: str,
        level: int = logging.DEBUG,
    ) -> Testbed:
        """Return the testbed of these pods, in topology order.

        `level` is the log level for a missing right to read nodes.
        """
        labels = self._node_labels(level)
        in_order = ordered(pods, labels)
        called = dict(zip(names(in_order), in_order, strict=True))
        by_name = self._settings.host_names
        reached = {
            name: (pod["metadata"]["name"], address(pod, by_name=by_name))
            for name, pod in called.items()
        }
        labels_of = {
            name: labels.get(pod["spec"].get("nodeName", ""), {}) for name, pod in called.items()
        }
        return replace(
            self._testbed_of(planned, reached, host_key), groups=topology_groups(labels_of)
        )

    def _testbed_of(
        self, planned: KubernetesPlan, reached: Mapping[str, tuple[str, str]], host_key: str
    ) -> Testbed:
        """Return the testbed of the nodes in `reached`: (pod, address) by node name."""
        cluster = planned.run.cluster
        nodes = []
        pod_of = {}
        for name, (pod, at) in reached.items():
            nodes.append(node_of(cluster, name, at, host_key))
            pod_of[name] = pod

        def dial(node: Node, timeout_s: float) -> socket.socket:
            return dial_pod(self._api, pod_of[node.name], node.port, timeout_s)

        return testbed_of(
            cluster,
            planned.run.run_id,
            tuple(nodes),
            user="root",
            key_file=states.run_folder(planned.run.run_id, KIND) / states.KEY_FILE,
            dial=dial,
            workdir=f"/tmp/seatrial/{planned.run.run_id}",
            network=None if self._settings.host_network else "eth0",
            env=MACHINES[self._settings.machine].nccl_env,
            blameless_reason=lambda node: blameless_reason(
                self._api, planned, self._launcher, pod_of[node.name], node.name
            ),
        )

    def _node_labels(self, level: int = logging.DEBUG) -> dict[str, Mapping[str, str]]:
        """Return the labels of every node; without the right to read nodes, {}, so that hosts keep
        the order of the pods.
        """
        try:
            nodes = self._api.list(NODE)
        except SeatrialError as error:
            log.log(level, "the hostfile is not in topology order: %s", error)
            return {}
        labels = {}
        for node in nodes:
            metadata = node["metadata"]
            labels[metadata["name"]] = metadata.get("labels", {})
        return labels

    def collect(self, run_id: str, folder: Path, timeout_s: float, secrets: Secrets) -> None:
        """Write the logs of all pods, read for at most `timeout_s`, and the events of the run."""
        if not states.run_folder(run_id, KIND).exists():
            return  # nothing was submitted
        deadline = time.monotonic() + timeout_s
        pods = ordered(self._api.list(POD, selector(run_id)), self._node_labels())
        write_pod_logs(self._api, pods, folder / POD_LOGS, deadline, secrets)
        write_log(folder / EVENTS, events_text(self._api.list(EVENT), run_id), secrets)

    def keep(self, run_id: str, seconds: float) -> bool:
        """Remove the mark from the run's Secret that ends its pods with this process.

        Return false if no pod has a node yet.
        """
        if not placed(self._api.list(POD, selector(run_id))):
            return False  # pods that wait for a node would start unwatched
        for secret in self._api.list(SECRET, selector(run_id)):
            metadata = secret["metadata"]
            # Remove the mark, so that the pods no longer end with that pod
            if TENDED_BY in (metadata.get("annotations") or {}):
                name = metadata["name"]
                no_mark = {"metadata": {"annotations": {TENDED_BY: None}}}
                self._api.patch(f"annotate Secret {name}", SECRET, name, no_mark)
        states.keep(states.run_folder(run_id, KIND), seconds)
        return True

    def teardown(self, run_id: str) -> None:
        """Delete everything with the run's label, and wait until the pods are gone.

        Refusals for kinds of other launchers are ignored; for other kinds, the first refusal is
        raised after all were tried.
        """
        refused: list[SeatrialError] = []
        for kind in kinds():
            try:
                self._api.delete_all(kind, selector(run_id))
            except SeatrialError as error:
                # Kinds of other launchers may be forbidden or unavailable. Deleting hundreds of
                # pods takes longer than a request may: whether they are gone is checked below.
                is_fatal = kind != POD or isinstance(error, MissingError)
                if is_fatal and needs(self._launcher, kind):
                    refused.append(error)
        states.remove_folder(states.run_folder(run_id, KIND))
        if refused:
            raise refused[0]
        wait_for_deletion(self._api, run_id)

    def leftovers(self) -> list[Leftover]:
        return leftovers(self._api, self._launcher)

    def missing(self) -> list[Reason]:
        # Imported only here, so that rendering starts fast
        from seatrial.platforms.kubernetes.doctor import problems

        return problems(self._api, self._cluster, self._settings)


platform = Kubernetes


class _Plain(Dumper):
    """A dumper that writes no anchors and aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _problems(cluster: "Cluster", settings: KubernetesPlatform) -> Iterator[str]:
    """Yield settings of a cluster file that do not fit together; each begins with the field to
    change.
    """
    name = settings.machine
    profile = MACHINES[name]
    if cluster.image is None:
        yield "image: is required on Kubernetes; the nodes run its sshd and Open MPI"
    if isinstance(cluster.image, Recipe):  # the step `image` checks images that exist
        here = this_machine.machine()
        own = node_architecture(cluster, here)
        built_for = [each.split("/")[1] for each in platforms_of(cluster.image, own)]
        if wrong := wrong_architecture(cluster.image.name, built_for, cluster, here):
            yield f"image: {wrong.sentence}"
    if profile.gpus and cluster.gpus > profile.gpus:
        yield f"gpus_per_node: machine {name} has {profile.gpus}, is {cluster.gpus}"
    if profile.gpus and cluster.nodes > 1 and cluster.gpus != profile.gpus:
        yield (
            f"gpus_per_node: machine {name} has {profile.gpus}, all used where nodes are several, "
            f"is {cluster.gpus}"
        )
    if (
        profile.hardware
        and cluster.hardware.name in known_hardware()
        and cluster.hardware.name != profile.hardware
    ):
        yield f"hardware: machine {name} is {profile.hardware}, is {cluster.hardware.name}"
    yield from _network_problems(cluster, settings, profile)
    for variable in cluster.env:
        if looks_secret(variable):
            yield (
                f"env: {variable} looks like a secret and would stand in the manifest; use "
                "platform.secret_env"
            )
    for variable in (*cluster.env, *settings.secret_variables()):
        if variable.startswith(_OURS):
            yield f"env: {variable} is set by seatrial or by the launcher; leave it out"
    for variable in settings.secret_variables():
        if variable in cluster.env:
            yield f"platform.secret_env: {variable} is in env as well"


def _network_problems(
    cluster: "Cluster", settings: KubernetesPlatform, profile: Machine
) -> Iterator[str]:
    """Yield settings that do not fit the machine's networks."""
    name = settings.machine
    if settings.host_network and cluster.ssh_port == 22:
        yield (
            "ssh_port: is taken by the host's own sshd with platform.host_network; choose another"
        )
    if (
        settings.host_network
        and profile.networks
        and not settings.container.get("securityContext", {}).get("privileged")
    ):
        yield (
            "platform.host_network: needs container: {securityContext: {privileged: true}} on "
            f"machine {name}, whose RDMA devices come by networks of the pod's own otherwise"
        )
    if settings.networks and len(settings.networks) != len(profile.networks):
        yield (
            f"platform.networks: machine {name} has {len(profile.networks)} networks, is "
            f"{len(settings.networks)}"
        )
    if settings.plugin_image and not profile.init_containers:
        yield (
            f"platform.plugin_image: machine {name} has no plugin that is installed; leave it out"
        )
