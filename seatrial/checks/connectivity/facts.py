"""Nodes whose facts show a fault or differ from the others: clocks, host names, mpirun,
GPUs. Pure.
"""

import statistics
from collections import defaultdict

from seatrial.causes import cause_in
from seatrial.checks.connectivity.stages import Contacts
from seatrial.checks.contract import sure
from seatrial.checks.failures import log_reason
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, caused
from seatrial.model.result import Suspect
from seatrial.model.setup import NodeHardware
from seatrial.model.testbed import Testbed
from seatrial.remote.node_setup import NodeConnection
from seatrial.text.hostlist import host_list


def without_mpirun(mpirun: str, contacts: Contacts) -> list[Suspect]:
    """Return nodes that have no mpirun."""
    lacking = [name for name, contact in contacts.items() if not contact.facts["mpirun"]]
    return sure(dict.fromkeys(lacking, Reason.of("mpirun-missing", mpirun=mpirun, where="on it")))


def same_hostname(contacts: Contacts) -> list[Reason]:
    """Return a doubt for each host name that several nodes report.

    Open MPI identifies nodes by host name alone, and one of the nodes may report a wrong name.
    """
    nodes = defaultdict(list)
    for name, contact in contacts.items():
        nodes[contact.hostname].append(name)
    return [
        Reason.of("hostname-duplicate", nodes=host_list(names), hostname=hostname)
        for hostname, names in nodes.items()
        if len(names) > 1
    ]


def models_of(contacts: Contacts) -> dict[str, str]:
    """Return the model of each node's GPUs, or of its processors where it has none."""
    return {name: NodeHardware.of(contact.facts).model for name, contact in contacts.items()}


def clock_skews(contacts: Contacts) -> list[Measurement]:
    """Return each node's clock minus the median node's, in seconds."""
    return [
        Measurement(
            metric="clock_skew", value=skew, unit="s", subject=Subject("node", name), better=None
        )
        for name, skew in _skews(contacts).items()
    ]


def skewed(contacts: Contacts, limit_s: float) -> list[Suspect]:
    """Return nodes whose clock differs from the median by more than the limit and the measurement
    error.
    """
    return sure(
        {
            name: Reason.of("clock-skew", skew=f"{skew:+.2f}", limit_s=f"{limit_s:g}")
            for name, skew in _skews(contacts).items()
            if abs(skew) - contacts[name].clock_error_s > limit_s
        }
    )


def _skews(contacts: Contacts) -> dict[str, float]:
    """Return the difference of each clock to the median one, in seconds."""
    if not contacts:
        return {}
    middle = statistics.median(contact.clock_offset_s for contact in contacts.values())
    return {name: contact.clock_offset_s - middle for name, contact in contacts.items()}


def short_of_gpus(testbed: Testbed, contacts: Contacts) -> list[Suspect]:
    """Return nodes with fewer GPUs than the testbed expects, or whose GPUs cannot be counted."""
    expected = {node.name: node.gpus for node in testbed.nodes}
    return sure(
        {
            name: _gpus_found(contact, expected[name])
            for name, contact in contacts.items()
            if (contact.facts["gpus"] or 0) < expected[name]
        }
    )


def without_gpus(testbed: Testbed, contacts: Contacts) -> Reason | None:
    """Return the reason if GPUs are expected and every node reports 0; else None."""
    expected = {node.gpus for node in testbed.nodes}
    if (
        not contacts
        or 0 in expected
        or any(contact.facts["gpus"] != 0 for contact in contacts.values())
    ):
        return None
    return Reason.of("gpus-none", nodes=len(contacts), expected=min(expected))


def _gpus_found(contact: NodeConnection, expected: int) -> Reason:
    """Return why a node has fewer GPUs than expected, or cannot count them."""
    if contact.facts["gpus"] is None:
        problem = str(contact.facts.get("gpu_problem") or "")
        cause = cause_in(problem)
        reason = Reason.of(
            "gpus-uncountable", problem=problem or "nvidia-smi fails or does not answer within 30 s"
        )
        return caused(reason, log_reason(cause) if cause else None)
    return Reason.of("gpus-missing", gpus=contact.facts["gpus"], expected=expected)
