"""Which nodes are at fault by what they tell of themselves: mpirun, host name, clock, GPUs. Pure."""

import statistics
from collections.abc import Mapping

from seatrial.model.measurement import Measurement, Subject
from seatrial.model.node_hardware import NodeHardware
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.testbed import Testbed
from seatrial.remote.node_setup import NodeConnection

Contacts = Mapping[str, NodeConnection]  # by node name


def without_mpirun(mpirun: str, contacts: Contacts) -> list[Suspect]:
    """Nodes that have no mpirun."""
    return [
        Suspect("node", name, 1.0, Reason.of("mpirun-missing", mpirun=mpirun, where="on it"))
        for name, contact in contacts.items()
        if not contact.facts["mpirun"]
    ]


def same_hostname(contacts: Contacts) -> list[Suspect]:
    """Open MPI tells nodes apart by host name alone, so the second node of a name is lost to it."""
    first: dict[str, str] = {}
    return [
        Suspect("node", name, 0.6, Reason.of("hostname-duplicate", other=other, hostname=contact.hostname))
        for name, contact in contacts.items()
        if (other := first.setdefault(contact.hostname, name)) != name
    ]


def models_of(contacts: Contacts) -> dict[str, str]:
    """The model of each node's GPUs, or of its processors where it has none."""
    return {name: NodeHardware.of(contact.facts).model for name, contact in contacts.items()}


def clock_skews(contacts: Contacts) -> list[Measurement]:
    """How far each node's clock is off the median node's, in seconds."""
    return [
        Measurement("clock_skew", skew, "s", Subject("node", name), better=None)
        for name, skew in _skews(contacts).items()
    ]


def skewed(contacts: Contacts, limit_s: float) -> list[Suspect]:
    """Nodes whose clock is off from the median node's by more than the limit, beyond what the measurement can err."""
    return [
        Suspect("node", name, 1.0, Reason.of("clock-skew", skew=f"{skew:+.2f}", limit_s=f"{limit_s:g}"))
        for name, skew in _skews(contacts).items()
        if abs(skew) - contacts[name].clock_error_s > limit_s
    ]


def _skews(contacts: Contacts) -> dict[str, float]:
    if not contacts:
        return {}
    middle = statistics.median(contact.clock_offset_s for contact in contacts.values())
    return {name: contact.clock_offset_s - middle for name, contact in contacts.items()}


def short_of_gpus(testbed: Testbed, contacts: Contacts) -> list[Suspect]:
    """Nodes with fewer GPUs than the testbed has them down for, or whose GPUs cannot be counted."""
    expected = {node.name: node.gpus for node in testbed.nodes}
    return [
        Suspect("node", name, 1.0, _gpus_found(contact, expected[name]))
        for name, contact in contacts.items()
        if expected[name] and (contact.facts["gpus"] is None or contact.facts["gpus"] < expected[name])
    ]


def without_gpus(testbed: Testbed, contacts: Contacts) -> str | None:
    """Why nothing can be measured on GPUs that were promised: no node has one. None where any has, or cannot tell."""
    expected = {node.gpus for node in testbed.nodes}
    if not contacts or 0 in expected or any(contact.facts["gpus"] != 0 for contact in contacts.values()):
        return None
    return Reason.of("gpus-none", nodes=len(contacts), expected=min(expected))


def _gpus_found(contact: NodeConnection, expected: int) -> str:
    if contact.facts["gpus"] is None:
        return Reason.of("gpus-uncountable")
    return Reason.of("gpus-missing", gpus=contact.facts["gpus"], expected=expected)
