"""Contact nodes, and have them contact each other: at first, after something broke, and for
repeats.
"""

import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pydantic import Field

from seatrial.checks.connectivity.findings import Findings
from seatrial.checks.connectivity.rates import Streams, measurements
from seatrial.checks.connectivity.reachability import Pair, TriedPairs, blame, merged
from seatrial.checks.connectivity.throughput import ONE_BY_ONE_UP_TO, Plan, explore, once_more
from seatrial.checks.contract import (
    CheckContext,
    Problem,
    Repeated,
    TimeLeft,
    log_repeat,
    sure,
    unanswered,
)
from seatrial.checks.metrics import Doubt
from seatrial.checks.taken_nodes import excuses
from seatrial.config.run import Run
from seatrial.config.yamlfile import Strict
from seatrial.model.errors import FloodError, LaunchError, NodesError, RemoteError
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, join, placed, unplaced
from seatrial.model.result import Suspect
from seatrial.model.testbed import Node, Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.node_probe import Inventory, ask_inventory
from seatrial.remote.node_setup import NodeConnection, SharedFacts, set_up_node
from seatrial.remote.peers import log_in_to_peers, reach_peers, try_streams
from seatrial.remote.ssh import answered, fan_out, on_each
from seatrial.text.hostlist import host_list
from seatrial.text.words import some_of

# Most peers that one node tries; with more, the control host would send gigabytes of lists
MAX_PEERS = 2048
PAIRS_PER_CORE = 128  # if all nodes share one machine's cores: some seconds of work for sshd
TREE_RADIX = 64  # of the tree in which Open MPI's daemons start each other (routed_radix, plm_rsh)
WITNESSES = 3  # number of nodes that repeat a failed login of another node
MAX_SECOND_LOGINS = 16  # most failed logins that are repeated
Contacts = Mapping[str, NodeConnection]  # connections by node name
Peers = Mapping[str, Sequence[str]]  # the peers that each node tries
Logins = dict[str, list[str]]  # the nodes that each node logs in to
log = logging.getLogger("seatrial.connectivity")
# Asks a node about peers; returns errors by peer, empty for a success
Question = Callable[[Testbed, NodeConnection, Sequence[Node]], Mapping[str, Reason]]


class Connectivity(Strict):
    """Time limits for answers of nodes, and the largest difference between their clocks."""

    timeout_s: float = Field(
        30, gt=0, le=600, description="seconds for one node, or one pair, to answer"
    )
    max_clock_skew_s: float = Field(
        1.0, gt=0, description="seconds between a node's clock and the median node's"
    )


def peers_to_reach(names: Sequence[str], seed: str, shared_cores: int | None = None) -> Peers:
    """Return the peers that each node connects to: all others, starting with its successor to
    spread the load.

    With more than MAX_PEERS, or if all nodes share `shared_cores`, a sample: the successor in a
    ring and random ones, which depend on `seed` (the run id) so that a run can be reproduced by
    hand.
    """
    most = MAX_PEERS
    if shared_cores is not None:
        most = shared_cores * PAIRS_PER_CORE // max(1, len(names))
    count = min(len(names) - 1, max(2, most))
    chosen = random.Random(seed)
    peers = {}
    for index, name in enumerate(names):
        following = [*names[index + 1 :], *names[:index]]
        if count < len(following):
            following = [following[0], *chosen.sample(following[1:], count - 1)]
        peers[name] = following
    return peers


def peers_to_log_in_to(names: Sequence[str], shared_cores: int | None = None) -> Logins:
    """Return the logins of MPI: from the head to every node, and along the tree of its daemons.

    If all nodes share the cores of one machine, along the tree only. The head is the first of
    `names`.
    """
    logins: Logins = {}
    for index, name in enumerate(names[1:], 1):
        parent = names[(index - 1) // TREE_RADIX]
        if shared_cores is None and parent != names[0]:
            logins.setdefault(names[0], []).append(name)
        logins.setdefault(parent, []).append(name)
    return logins


def second_logins(names: Sequence[str], failed: Iterable[Pair]) -> Peers:
    """Return further logins to the targets of failed ones, to distinguish a bad node from a bad
    link.

    `failed` are pairs (from, to). The nodes that follow the target in `names`, cyclically, try the
    login too.
    """
    logins: Logins = {}
    place = {name: index for index, name in enumerate(names)}
    for first, target in list(failed)[:MAX_SECOND_LOGINS]:
        at = place[target]
        following = [*names[at + 1 :], *names[:at]]
        witnesses = [name for name in following if name != first]
        for witness in witnesses[:WITNESSES]:
            logins.setdefault(witness, []).append(target)
    return logins


def settings_of(run: Run) -> Connectivity:
    """Return the section `connectivity` of the suite, which every suite has."""
    return run.suite.section(Connectivity) or Connectivity()


def plan_of(run: Run, testbed: Testbed) -> Plan:
    """Return the plan of TCP streams for the day of the run, by which a node's partner changes."""
    return Plan(testbed.names, testbed.shared_cores is not None, run.day)


def contact_nodes(findings: Findings, timeout_s: float) -> dict[str, NodeConnection]:
    """Connect to every node with its pinned host key, and blame those that do not answer.

    Return the connections by node, which the caller closes. Nodes without Python are blamed but
    stay among the connections; if no node has Python, the probes are skipped instead.
    """
    testbed = findings.testbed
    shared_facts = None
    if is_crowded(testbed) and not testbed.has_gpus:  # GPUs differ between nodes
        shared_facts = SharedFacts()
    greeted = on_each(
        testbed.nodes,
        lambda node: set_up_node(testbed, node, timeout_s, shared_facts),
        fan_out(testbed),
    )
    contacts = answered(greeted)
    failed = {name: unplaced(why) for name, why in unanswered(greeted).items()}
    log.info(
        "%d of %d nodes answer on port %d", len(contacts), len(testbed.nodes), testbed.head.port
    )
    findings.blame_nodes(failed)
    lacking = [name for name, contact in contacts.items() if contact.versions.get("python") == ""]
    if len(lacking) < len(contacts):
        missing = Reason.of("node-python-missing", python=testbed.python)
        findings.blame_nodes(dict.fromkeys(lacking, missing))
    elif lacking:
        findings.testbed = replace(findings.testbed, python="")
        findings.notes.append(Reason.of("probes-left-out"))
    findings.measurements += [
        Measurement(
            metric="ssh_connect",
            value=contact.connect_ms,
            unit="ms",
            subject=Subject("node", name),
            better=None,
        )
        for name, contact in contacts.items()
    ]
    return contacts


def is_crowded(testbed: Testbed) -> bool:
    """Return whether too many nodes share the cores of one machine to repeat work on each."""
    return testbed.shared_cores is not None and len(testbed.nodes) > ONE_BY_ONE_UP_TO


def ask_inventories(findings: Findings, contacts: Contacts) -> dict[str, Inventory]:
    """Ask the remaining nodes for their hardware; a remark names those that do not answer.

    Where many nodes share one machine, only the first is asked.
    """
    testbed = findings.testbed
    nodes = testbed.nodes
    if is_crowded(testbed):  # all nodes are the same machine
        nodes = nodes[:1]
    answers = on_each(
        nodes, lambda node: ask_inventory(testbed, contacts[node.name].transport), fan_out(testbed)
    )
    silent = unanswered(answers)
    if silent:
        findings.notes.append(Reason.of("inventory-unknown", nodes=some_of(silent)))
    return answered(answers)


def try_pairs(findings: Findings, contacts: Contacts, timeout_s: float) -> None:
    """Check from the nodes that each reaches the sshd of its peers, and that the logins of MPI
    work.
    """
    if not findings.testbed.python:  # without Python only mpirun itself tries logins
        return
    try_reach(findings, contacts, timeout_s)
    try_logins(findings, contacts, timeout_s)


def try_reach(findings: Findings, contacts: Contacts, timeout_s: float) -> None:
    """Check that every node reaches its peers' sshd; in a large testbed, of a sample of them."""
    testbed = findings.testbed  # without nodes that did not answer
    peers = peers_to_reach(testbed.names, testbed.run_id, testbed.shared_cores)
    reach = partial(reach_peers, timeout_s=timeout_s)
    reached = _ask_nodes(findings, contacts, peers, reach)
    working = reached.count - len(reached.failed)
    log.info("%d of %d pairs reach each other", working, reached.count)
    _judge(findings, reached)


def try_logins(findings: Findings, contacts: Contacts, timeout_s: float) -> None:
    """Check that the logins of MPI work.

    If some fail, other nodes log in to the same targets, to show whether the target is bad.
    """
    testbed = findings.testbed
    names = testbed.names
    log_in = partial(log_in_to_peers, timeout_s=timeout_s)
    peers = peers_to_log_in_to(names, testbed.shared_cores)
    logins = _ask_nodes(findings, contacts, peers, log_in)
    working = logins.count - len(logins.failed)
    log.info("%d of %d logins between nodes work", working, logins.count)
    if logins.failed:
        more = _ask_nodes(findings, contacts, second_logins(names, logins.failed), log_in)
        logins = merged(logins, more)
    _judge(findings, logins)


def _ask_nodes(
    findings: Findings, contacts: Contacts, peers: Peers, question: Question
) -> TriedPairs:
    """Ask nodes about their peers, and return what was tried; blame nodes that flood their output.

    Nodes that left the testbed are neither asked nor asked about. A node that does not answer
    counts as failed with all of its peers.
    """
    testbed = findings.testbed
    by_name = testbed.by_name

    def ask(node: Node) -> Mapping[str, Reason]:
        there = [by_name[peer] for peer in peers[node.name] if peer in by_name]
        return question(testbed, contacts[node.name], there)

    asked = [by_name[name] for name in peers if name in by_name]
    answers = on_each(asked, ask, at_once=fan_out(testbed))
    floods = {}
    counted = {}
    failed = {}
    for name, answer in answers.items():
        if isinstance(answer, FloodError):
            floods[name] = answer.reason
            continue
        counted[name] = peers[name]
        if isinstance(answer, RemoteError):
            errors: Mapping[str, Reason] = dict.fromkeys(peers[name], answer.reason)
        else:
            errors = answer
        for peer, error in errors.items():
            if error:
                failed[name, peer] = error
    findings.blame_nodes(floods)
    return TriedPairs(counted, failed)


def _judge(findings: Findings, tried: TriedPairs) -> None:
    """Add the suspects of the failed pairs, or a doubt if nothing works, and set nodes aside."""
    blamed = blame(tried)
    if blamed.setup:
        findings.doubts.append(blamed.setup)
    findings.blame(blamed.suspects, blamed.set_aside)


@dataclass(frozen=True, slots=True)
class RollCall:
    """The testbed without nodes that no longer answer or reach the others.

    `suspects` are to blame; nodes that the platform took away (preempted, deleted) are not among
    them. `problems` name all lost nodes.
    """

    testbed: Testbed
    suspects: tuple[Suspect, ...] = ()
    problems: tuple[Reason, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict on lost nodes; nodes that the platform took away are no failure of the
        cluster.
        """
        if self.suspects:
            return Verdict.FAIL
        return Verdict.INCONCLUSIVE

    def reason(self, broken: Reason) -> Reason:
        """Join `broken` with the problems; without suspects, the platform's reason comes first."""
        if self.suspects:
            return join((broken, *self.problems))
        return join((*self.problems, broken))


def roll_call(run: Run, testbed: Testbed) -> RollCall:
    """Contact every node again after something broke, to find nodes or links that have died.

    If the nodes cannot be reached from here, all of them count as present.
    """
    findings = Findings(testbed)
    timeout_s = settings_of(run).timeout_s
    contacts = {}
    try:
        contacts = contact_nodes(findings, timeout_s)
        if len(findings.testbed.nodes) > 1:
            try_pairs(findings, contacts, timeout_s)
    except LaunchError as error:
        log.warning("the nodes cannot be asked whether they are still there: %s", error)
        return RollCall(testbed)
    finally:
        for contact in contacts.values():
            contact.transport.close()
    return _without_taken(testbed, findings)


def _without_taken(testbed: Testbed, findings: Findings) -> RollCall:
    """Return the roll call; nodes that the platform took away are not suspects."""
    taken = excuses(findings.suspects, testbed)
    blamed = tuple(suspect for suspect in findings.suspects if suspect not in taken)
    names_by_reason = defaultdict(list)  # one reason for all nodes of a job that ended
    for suspect, why in taken.items():
        names_by_reason[why].append(suspect.name)
    names = {suspect.name for suspect in taken}
    problems = [
        problem
        for problem in (*findings.problems, *findings.doubts)
        if names.isdisjoint(problem.places)
    ]
    problems += [placed(host_list(sorted(gone)), why) for why, gone in names_by_reason.items()]
    return RollCall(testbed=findings.testbed, suspects=blamed, problems=tuple(problems))


def conclude_repeat(
    run: Run, testbed: Testbed, repeated: Repeated, verdict: Verdict, reason: Reason
) -> None:
    """Add the outcome of one repeat to `repeated`; if it broke, also the nodes that are lost.

    If nodes are lost, no more repeats follow.
    """
    ended_early = verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE)
    if ended_early or repeated.over:
        now = roll_call(run, testbed)
        if now.problems:
            verdict = now.verdict
            reason = now.reason(reason)
            repeated.suspects += now.suspects
            repeated.over = True
    repeated.add_outcome(Problem(verdict, reason))


def _of_whole_rounds(streams: Streams, planned: Sequence[Pair]) -> list[Measurement]:
    """Return the rates of the nodes whose planned pairs were all measured.

    Without its best neighbour, a healthy node would look slow.
    """
    lacking = {name for pair in planned if pair not in streams for name in pair}
    return [m for m in measurements(streams) if m.subject.name not in lacking]


def repeat_streams(
    context: CheckContext, doubts: Sequence[Doubt], repeated: Repeated, left: TimeLeft
) -> None:
    """Repeat the streams between each doubtful node and its planned partners, both ways.

    A node or link that was slow only once is no longer blamed. If nodes do not answer, a roll call
    follows.
    """
    run = context.run
    testbed = context.testbed
    in_doubt = {doubt.measurement.subject.name for doubt in doubts}
    doubtful = [name for name in testbed.names if name in in_doubt]
    if not doubtful:
        return
    log_repeat(f"TCP of {some_of(doubtful, 3)}", doubts)
    plan = plan_of(run, testbed)
    nth = max(d.taken for d in doubts)
    batches = once_more(plan, doubtful, nth)
    planned = [pair for batch in batches for pair in batch]
    needed = {name for pair in planned for name in pair}
    timeout_s = settings_of(run).timeout_s
    nodes = [node for node in testbed.nodes if node.name in needed]
    greeted = on_each(nodes, lambda node: set_up_node(testbed, node, timeout_s))
    contacts = answered(greeted)

    def measure(pairs: Sequence[Pair]) -> Streams:
        """Measure the pairs of nodes that both answer, while there is time."""
        if left.over:
            return {}
        there = [pair for pair in pairs if contacts.keys() >= set(pair)]
        return try_streams(testbed, contacts, there, timeout_s)

    findings = context.recall(Findings)
    try:
        first = findings.streams if findings else {}
        streams = explore(plan, measure, batches, first)
    except NodesError as floods:
        repeated.suspects += sure(floods.evidence)
        repeated.add_outcome(Problem(Verdict.FAIL, floods.reason))
        return
    finally:
        for contact in contacts.values():
            contact.transport.close()
    if findings:
        findings.try_again(streams)
        repeated.check = findings.check()
    repeated.measurements += _of_whole_rounds(streams, planned)
    silent = [*unanswered(greeted).values()]
    if silent:
        conclude_repeat(run, testbed, repeated, Verdict.INCONCLUSIVE, join(silent[:3]))
