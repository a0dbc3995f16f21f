"""The gate of a Slurm cluster: drained nodes that a test opens for itself alone, by a reservation
that only it may use.

Slurm starts no job on a drained node. So the nodes are reserved for the user of the test, resumed,
and drained again with their own reason when the test is over, whatever came of it: what is let in
is resumed after that. Where the test was killed, the reservation keeps other jobs away until the
run's leftovers are removed.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from seatrial.model.errors import InputError, LaunchError
from seatrial.platforms.slurm import expanded
from seatrial.platforms.slurm.login import CommandError, Login
from seatrial.platforms.slurm.script import job_name

# How the reasons of nodes begin that wait for a test, where the cluster file says no other
GATE = "seatrial gate"
_NODES = re.compile(r"(?:^|\s)Nodes=(\S{1,10000})")
# Scontrol takes lists, ranges and ALL as well
_ONE_NODE = re.compile(r"(?!all$)[a-z0-9][a-z0-9._-]*", re.IGNORECASE)
_CLOSED = ("drained", "draining", "drng", "drain")


def reason_of(login: Login, node: str) -> str:
    """Return Slurm's reason of a node that is out of service; empty while it is in service.

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
    """Drain the nodes of the run's reservation again and remove it; none is no error.

    `reasons` are those that the nodes had; a node without one waits at the gate too.
    """
    name = job_name(run_id)
    try:
        shown = login.run(["scontrol", "--oneliner", "show", "reservation", name])
    except CommandError:  # there is none of that name
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
