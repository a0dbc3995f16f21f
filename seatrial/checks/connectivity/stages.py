"""The stages of connectivity that are also tried again later: every node answers, and reaches its peers."""

import logging
from collections.abc import Callable, Mapping, Sequence

from seatrial.checks.connectivity.findings import Findings
from seatrial.checks.connectivity.pairs import Peers, peers_to_log_in_to, peers_to_reach, second_logins
from seatrial.checks.connectivity.reachability import TriedPairs, blame, merged
from seatrial.checks.connectivity.section import Connectivity
from seatrial.checks.connectivity.throughput import ONE_BY_ONE_UP_TO, Plan
from seatrial.config.run import Run
from seatrial.model.errors import FloodError, RemoteError
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, unplaced
from seatrial.model.testbed import Node, Testbed
from seatrial.remote.inventory import Inventory, ask_inventory
from seatrial.remote.node_setup import NodeConnection, SharedFacts, set_up_node
from seatrial.remote.peers import log_in_to_peers, reach_peers
from seatrial.remote.ssh import fan_out, on_each
from seatrial.text.words import some_of

log = logging.getLogger("seatrial.connectivity")


def settings_of(run: Run) -> Connectivity:
    """The suite's section; it is part of every suite."""
    return run.suite.section(Connectivity) or Connectivity()


def plan_of(run: Run, testbed: Testbed) -> Plan:
    """Which nodes exchange TCP streams on the day of the run."""
    return Plan([node.name for node in testbed.nodes], testbed.shared_cores is not None, run.day)


def contact_nodes(findings: Findings, timeout_s: float) -> dict[str, NodeConnection]:
    """Every node answers on its port with its pinned host key."""
    testbed = findings.testbed
    shared_facts = SharedFacts() if is_crowded(testbed) and not testbed.has_gpus else None  # GPUs are each node's own
    greeted = on_each(testbed.nodes, lambda node: set_up_node(testbed, node, timeout_s, shared_facts), fan_out(testbed))
    contacts = {name: answer for name, answer in greeted.items() if isinstance(answer, NodeConnection)}
    failed = {n: unplaced(answer.reason) for n, answer in greeted.items() if isinstance(answer, RemoteError)}
    log.info("%d of %d nodes answer on port %d", len(contacts), len(testbed.nodes), testbed.head.port)
    findings.blame_nodes(failed)
    findings.measurements += [
        Measurement("ssh_connect", contact.connect_ms, "ms", Subject("node", name), better=None)
        for name, contact in contacts.items()
    ]
    return contacts


def is_crowded(testbed: Testbed) -> bool:
    """Whether many nodes share the cores of one machine, so that nothing is tried twice there."""
    return testbed.shared_cores is not None and len(testbed.nodes) > ONE_BY_ONE_UP_TO


def ask_inventories(findings: Findings, contacts: Mapping[str, NodeConnection]) -> dict[str, Inventory]:
    """What the nodes that are left tell of their hardware; a remark names those that tell nothing."""
    testbed = findings.testbed
    nodes = testbed.nodes[:1] if is_crowded(testbed) else testbed.nodes  # the others are the same machine
    answers = on_each(nodes, lambda node: ask_inventory(testbed, contacts[node.name].transport), fan_out(testbed))
    if silent := [name for name, answer in answers.items() if isinstance(answer, RemoteError)]:
        findings.notes.append(Reason.of("inventory-unknown", nodes=some_of(silent)))
    return {name: answer for name, answer in answers.items() if isinstance(answer, Inventory)}


def try_pairs(findings: Findings, contacts: Mapping[str, NodeConnection], timeout_s: float) -> None:
    """Every node reaches its peers' sshd, tried from inside; then logins work where MPI logs in."""
    try_reach(findings, contacts, timeout_s)
    try_logins(findings, contacts, timeout_s)


def try_reach(findings: Findings, contacts: Mapping[str, NodeConnection], timeout_s: float) -> None:
    """Every node reaches its peers' sshd."""
    testbed = findings.testbed
    names = [node.name for node in testbed.nodes]
    peers = peers_to_reach(names, testbed.run_id, testbed.shared_cores)
    reached = _ask_nodes(findings, contacts, peers, _reach(timeout_s))
    log.info("%d of %d pairs reach each other", reached.count - len(reached.failed), reached.count)
    _judge(findings, reached)


def try_logins(findings: Findings, contacts: Mapping[str, NodeConnection], timeout_s: float) -> None:
    """Logins work where MPI logs in."""
    testbed = findings.testbed
    names = [node.name for node in testbed.nodes]
    logins = _ask_nodes(findings, contacts, peers_to_log_in_to(names, testbed.shared_cores), _log_in(timeout_s))
    log.info("%d of %d logins between nodes work", logins.count - len(logins.failed), logins.count)
    if logins.failed:
        more = _ask_nodes(findings, contacts, second_logins(names, logins.failed), _log_in(timeout_s))
        logins = merged(logins, more)
    _judge(findings, logins)


Question = Callable[[Testbed, NodeConnection, Sequence[Node]], Mapping[str, str]]  # what fails, by peer


def _reach(timeout_s: float) -> Question:
    return lambda testbed, contact, peers: reach_peers(testbed, contact, peers, timeout_s)


def _log_in(timeout_s: float) -> Question:
    def ask(testbed: Testbed, contact: NodeConnection, peers: Sequence[Node]) -> dict[str, str]:
        errors = log_in_to_peers(testbed, contact, peers, timeout_s)
        return {peer: error for peer, error in errors.items() if error}

    return ask


def _ask_nodes(
    findings: Findings, contacts: Mapping[str, NodeConnection], peers: Peers, question: Question
) -> TriedPairs:
    """What the nodes answer about their peers; a node that floods is blamed itself, and its answer does not count."""
    testbed = findings.testbed
    by_name = {node.name: node for node in testbed.nodes}
    answers = on_each(
        [by_name[name] for name in peers if name in by_name],
        lambda node: question(
            testbed, contacts[node.name], [by_name[peer] for peer in peers[node.name] if peer in by_name]
        ),
        at_once=fan_out(testbed),
    )
    findings.blame_nodes({name: answer.reason for name, answer in answers.items() if isinstance(answer, FloodError)})
    failed: dict[tuple[str, str], str] = {}
    for name, answer in answers.items():
        if isinstance(answer, FloodError):
            continue
        why = dict.fromkeys(peers[name], answer.reason) if isinstance(answer, RemoteError) else answer
        failed |= {(name, peer): error for peer, error in why.items()}
    counted = {name: peers[name] for name, answer in answers.items() if not isinstance(answer, FloodError)}
    return TriedPairs(counted, failed)


def _judge(findings: Findings, tried: TriedPairs) -> None:
    blamed = blame(tried)
    if blamed.setup:
        findings.doubts.append(blamed.setup)
    findings.blame(blamed.suspects, blamed.set_aside)
