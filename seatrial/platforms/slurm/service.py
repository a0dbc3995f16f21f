"""Nodes of a Slurm cluster in and out of service, by Slurm's commands."""

from collections.abc import Mapping, Sequence

from seatrial.config.cluster import Cluster
from seatrial.config.qualify import Qualify
from seatrial.model.errors import InputError
from seatrial.platforms.service import ServiceNode, taken
from seatrial.platforms.slurm import SlurmPlatform, hosts_in
from seatrial.platforms.slurm.gate import GATE, reason_of, state_change
from seatrial.platforms.slurm.isolate import OWN, Drain
from seatrial.platforms.slurm.jobs import switches
from seatrial.platforms.slurm.login import login_of, rows
from seatrial.text.printable import printable

TIME_LIMIT = "00:05:00"  # time limit of a test: a short job does not delay planned jobs
_QUEUE_TIMEOUT_S = 60.0  # short, since the nodes were just idle
_START_TIMEOUT_S = 120.0
_FAILED = ": failed "  # marks the drain reason of a node at the gate that has failed a test
_HAS_NODES = "RUNNING,COMPLETING,CONFIGURING,SUSPENDED"
_MOST_SHOWN = 200  # most characters of a reason


class SlurmService:
    """Slurm as a scheduler, for a user who may drain and resume nodes.

    Settings under `qualify` override those of the platform.
    """

    def __init__(self, cluster: Cluster) -> None:
        assert isinstance(cluster.platform, SlurmPlatform)
        self._cluster = cluster
        self._settings = cluster.platform
        self._qualify = cluster.qualify or Qualify()
        self._login = login_of(self._settings)
        self._gate = self._qualify.gate or GATE

    def nodes(self) -> list[ServiceNode]:
        """Return the nodes of the partition that the platform's settings allow, each once."""
        settings = self._settings
        partition = self._qualify.partition or settings.partition
        command = ["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"]
        if partition:
            command.append(f"--partition={partition}")
        if settings.nodelist:
            command.append(f"--nodes={settings.nodelist}")
        left_out = set(hosts_in(settings.exclude or ""))
        states: dict[str, tuple[str, str]] = {
            name: (state, reason.strip())
            for name, state, reason in rows(self._login.run(command), 3)
            if name and name not in left_out
        }
        groups = leaves(switches(self._login, states))
        jobs = self._jobs()
        nodes = []
        for name, (state, reason) in states.items():
            group = groups.get(name, "")
            why = "" if reason == "none" else _shown(reason)
            if state == "idle":  # exactly: not idle*, planned, reserved or draining
                node = ServiceNode(name, "idle", group)
            elif state != "drained":
                node = ServiceNode(name, "busy", group, jobs.get(name) or why or _shown(state))
            else:
                node = ServiceNode(
                    name,
                    "gated" if reason.startswith(self._gate) else "out",
                    group,
                    why,
                    is_ours=reason.startswith(OWN),
                    has_failed=_FAILED in reason,
                )
            nodes.append(node)
        return nodes

    def _jobs(self) -> dict[str, str]:
        """Return the job on each node, such as "job 4711", by node name, except tests of
        seatrial.
        """
        printed = self._login.run(
            ["squeue", "--noheader", f"--states={_HAS_NODES}", "--format=%i|%N|%j"]
        )
        jobs: dict[str, str] = {}
        for job, nodes, called in rows(printed, 3):
            if not called.startswith("seatrial-"):
                shown = printable(job)[:40]
                for name in hosts_in(nodes):
                    jobs[name] = f"job {shown}"
        return jobs

    def take(self, names: Sequence[str]) -> Cluster:
        """Return the cluster limited to these nodes, without settings that would delay a small job:
        switches, reservations and a long time limit.
        """
        settings = self._settings
        qualify = self._qualify
        return taken(
            self._cluster,
            names,
            nodelist=",".join(names),
            exclude=None,
            switches=None,
            reservation=None,
            partition=qualify.partition or settings.partition,
            qos=qualify.qos or settings.qos,
            account=qualify.account or settings.account,
            time_limit=TIME_LIMIT,
            queue_timeout_s=_QUEUE_TIMEOUT_S,
            start_timeout_s=_START_TIMEOUT_S,
        )

    def put_out(self, name: str, run_id: str, code: str) -> None:
        """Drain a node; a node at the gate stays drained, with the failure as its reason.

        A node that is drained for another reason is left unchanged.
        """
        reason = reason_of(self._login, name)
        if reason.startswith(self._gate):
            failure = f"{self._gate}{_FAILED}{code} in run {run_id}"
            self._login.run(state_change(name, "drain", failure))
        elif not reason:
            Drain(self._login).isolate(name, run_id, code)

    def let_in(self, name: str) -> None:
        """Resume a node that seatrial drained or that waits at the gate.

        Raises InputError for a node that is drained for another reason, or not at all.
        """
        reason = reason_of(self._login, name)
        if not reason.startswith((self._gate, OWN)):
            raise InputError(
                f"node {name}: does not wait at the gate; Slurm's reason is "
                f"{reason[:200] or 'none'!r}"
            )
        self._login.run(state_change(name, "resume"))


def _shown(text: str) -> str:
    return printable(text)[:_MOST_SHOWN]


def leaves(groups: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Return the leaf switch of each node: the smallest switch or block that it belongs to.

    `groups` are the nodes of each switch, by its name.
    """
    leaf_by_node: dict[str, str] = {}

    def size(name: str) -> int:
        return len(groups[name])

    for name in sorted(groups, key=size, reverse=True):
        for node in groups[name]:
            leaf_by_node[node] = name
    return leaf_by_node


service = SlurmService
