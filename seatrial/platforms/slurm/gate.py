"""The gate of a Slurm cluster: drained nodes that a test opens for itself only, by a reservation.

Slurm starts no job on a drained node. So the nodes are reserved for the user of the test, resumed,
and, whatever the result, drained again with their own reason after the test; nodes that are let in
are resumed after that. If the test is killed, the reservation keeps other jobs away until the run's
leftovers are removed.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from seatrial.model.errors import InputError, LaunchError
from seatrial.platforms.slurm import expanded
from seatrial.platforms.slurm.login import CommandError, Login
from seatrial.platforms.slurm.script import job_name

# Default prefix of the drain reason of nodes that wait for a test
GATE = "seatrial gate"
_NODES = re.compile(r"(?:^|\s)Nodes=(\S{1,10000})")
# A single node name: scontrol would accept lists, ranges and ALL too
_ONE_NODE = re.compile(r"(?!all$)[a-z0-9][a-z0-9._-]*", re.IGNORECASE)
_CLOSED = ("drained", "draining", "drng", "drain")


def reason_of(login: Login, node: str) -> str:
    """Return the reason for which a node is out of service; empty if it is in service.

    Raises InputError.
    """
    if not _ONE_NODE.fullmatch(node):
        raise InputError(f"node {node!r}: must be the name of one node")
    printed = login.run(["sinfo", "--noheader", f"--nodes={node}", "--format=%E"]).strip()
    if not printed:
        raise InputError(f"node {node}: is no node of the cluster")
    return "" if printed == "none" else printed.splitlines()[0].strip()


def state_change(nodes: str, state: Literal["drain", "resume"], reason: str = "") -> list[str]:
    """Return the command that drains or resumes nodes."""
    command = ["scontrol", "update", f"nodename={nodes}", f"state={state}"]
    return [*command, f"reason={reason}"] if reason else command


def open_gate(login: Login, run_id: str, nodes: Sequence[str]) -> None:
    """Reserve drained nodes for the user of the run and resume them.

    Raises LaunchError where Slurm refuses.
    """
    reservation = [
        f"reservationname={job_name(run_id)}",
        "starttime=now",
        "duration=infinite",
        f"users={login.user}",
        f"nodes={','.join(nodes)}",
        "flags=maint,ignore_jobs",
    ]
    login.run(["scontrol", "create", "reservation", *reservation])
    login.run(state_change(",".join(nodes), "resume"))


def close_gate(login: Login, run_id: str, reasons: Mapping[str, str]) -> None:
    """Drain the nodes of the run's reservation again and remove it; do nothing if there is none.

    `reasons` are their drain reasons before; a node without one gets the gate's.
    """
    name = job_name(run_id)
    try:
        shown = login.run(["scontrol", "--oneliner", "show", "reservation", name])
    except CommandError:  # there is no such reservation
        return
    nodes = _NODES.search(shown)
    if nodes is None or f"ReservationName={name}" not in shown:
        return
    for node in expanded(nodes[1]):
        state = login.run(["sinfo", "--noheader", f"--nodes={node}", "--format=%T"]).strip()
        if not state.startswith(_CLOSED):
            login.run(state_change(node, "drain", reasons.get(node) or GATE))
    try:
        login.run(["scontrol", "delete", f"reservationname={name}"])
    except CommandError as error:
        raise LaunchError(error.reason) from error
