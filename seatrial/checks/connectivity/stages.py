"""The stages of connectivity that are also tried again later: every node answers, and reaches its peers."""

import logging
from collections.abc import Mapping

from seatrial.checks.connectivity.findings import Findings
from seatrial.checks.connectivity.reachability import blame, pairs_to_try
from seatrial.checks.connectivity.section import Connectivity
from seatrial.config.run import Run
from seatrial.model.errors import FloodError, RemoteError
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import unplaced
from seatrial.remote.node_setup import NodeConnection, reach_peers, set_up_node
from seatrial.remote.ssh import on_each

log = logging.getLogger("seatrial.connectivity")


def settings_of(run: Run) -> Connectivity:
    """The suite's section; it is part of every suite."""
    return run.suite.section(Connectivity) or Connectivity()


def contact_nodes(findings: Findings, timeout_s: float) -> dict[str, NodeConnection]:
    """Every node answers on its port with its pinned host key."""
    testbed = findings.testbed
    greeted = on_each(testbed.nodes, lambda node: set_up_node(testbed, node, timeout_s))
    contacts = {name: answer for name, answer in greeted.items() if isinstance(answer, NodeConnection)}
    failed = {n: unplaced(answer.reason) for n, answer in greeted.items() if isinstance(answer, RemoteError)}
    log.info("%d of %d nodes answer on port %d", len(contacts), len(testbed.nodes), testbed.head.port)
    findings.blame_nodes(failed)
    findings.measurements += [
        Measurement("ssh_connect", contact.connect_ms, "ms", Subject("node", name), better=None)
        for name, contact in contacts.items()
    ]
    return contacts


def try_pairs(findings: Findings, contacts: Mapping[str, NodeConnection], timeout_s: float) -> None:
    """Every node reaches its peers over SSH, tried from inside and all at once."""
    testbed = findings.testbed
    by_name = {node.name: node for node in testbed.nodes}
    peers = pairs_to_try(list(by_name), testbed.run_id)
    answers = on_each(
        testbed.nodes,
        lambda node: reach_peers(testbed, contacts[node.name], [by_name[peer] for peer in peers[node.name]], timeout_s),
    )
    findings.blame_nodes({name: answer.reason for name, answer in answers.items() if isinstance(answer, FloodError)})
    tried = {
        (name, peer): answer.reason if isinstance(answer, RemoteError) else answer[peer]
        for name, answer in answers.items()
        if not isinstance(answer, FloodError)
        for peer in peers[name]
    }
    log.info("%d of %d pairs reach each other", sum(not error for error in tried.values()), len(tried))
    blamed = blame(tried)
    if blamed.setup:
        findings.doubts.append(blamed.setup)
    findings.blame(blamed.suspects, blamed.set_aside)
