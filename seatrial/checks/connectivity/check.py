"""Step `connectivity`: does every node answer, reach every other, run MPI, and carry the same software and traffic?"""

import logging
import time
from collections.abc import Mapping
from itertools import count

from seatrial.checks.connectivity.findings import NAME, Findings
from seatrial.checks.connectivity.inventory import broken_gpus, impaired_gpus, old_drivers, remarks
from seatrial.checks.connectivity.mpireach import HostnameResult, guilty_nodes, show_hosts
from seatrial.checks.connectivity.nodefacts import (
    clock_skews,
    models_of,
    same_hostname,
    short_of_gpus,
    skewed,
    without_gpus,
    without_mpirun,
)
from seatrial.checks.connectivity.rates import measurements, summary
from seatrial.checks.connectivity.repeat import repeat_streams
from seatrial.checks.connectivity.section import Connectivity
from seatrial.checks.connectivity.stages import (
    ask_inventories,
    contact_nodes,
    is_crowded,
    plan_of,
    settings_of,
    try_logins,
    try_reach,
)
from seatrial.checks.connectivity.throughput import explore
from seatrial.checks.connectivity.versions import odd_ones, unknown
from seatrial.checks.contract import CheckContext, CheckType, Facts, Metric, StepResult
from seatrial.checks.planned import PlannedNodes, PlannedPart
from seatrial.config.run import Run
from seatrial.model.baseline import Tolerance
from seatrial.model.errors import MissingError, NodesError, RemoteError
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.testbed import Testbed
from seatrial.remote.node_setup import NodeConnection
from seatrial.remote.ssh import allow_many_connections
from seatrial.remote.streams import try_streams
from seatrial.text.hostlist import host_list
from seatrial.text.words import some_of

log = logging.getLogger("seatrial.connectivity")

_CLEAR_MAJORITY = 0.66  # share of nodes that must agree before the others are taken out: 2 of 3, 3 of 4


def connectivity(context: CheckContext) -> StepResult:
    """Try every path that the later steps use; nodes that fail are named and taken out.

    Raises MissingError when mpirun is on none of the nodes.
    """
    started, run, testbed = time.monotonic(), context.run, context.testbed
    allow_many_connections()
    findings = Findings(testbed, node_count=len(testbed.nodes))
    contacts = contact_nodes(findings, settings_of(run).timeout_s)
    try:
        _judge_facts(findings, contacts, run)
        _judge_inventory(findings, contacts)
        if len(findings.testbed.nodes) > 1:
            try_reach(findings, contacts, settings_of(run).timeout_s)
            if not is_crowded(findings.testbed):  # else MPI, which makes the same logins, tries them
                try_logins(findings, contacts, settings_of(run).timeout_s)
            _try_links(findings, contacts, run)
        _try_mpi(findings, contacts, run)
    except (MissingError, RemoteError) as error:
        if isinstance(error, MissingError) and not findings.problems:
            raise
        findings.problems.append(error.reason)
    finally:
        for contact in contacts.values():
            contact.transport.close()
    findings.seconds = time.monotonic() - started
    notes = [*unknown({name: contact.versions for name, contact in contacts.items()}), *findings.notes]
    facts = {name: contact.facts for name, contact in contacts.items()}
    fingerprint = _fingerprint(findings.testbed, facts)
    return StepResult(findings.check(), findings.testbed, facts, fingerprint, tuple(notes), findings)


def _fingerprint(testbed: Testbed, facts: Facts) -> dict[str, str]:
    """The head's software, version by package."""
    if not testbed.nodes:
        return {}
    versions = facts[testbed.head.name]["versions"]
    return {package: version for package, version in versions.items() if version}


def _judge_facts(findings: Findings, contacts: Mapping[str, NodeConnection], run: Run) -> None:
    """Clocks together, the same software everywhere, every GPU there, mpirun installed."""
    needs_mpirun = findings.testbed.launcher is None
    if needs_mpirun and contacts and not any(contact.facts["mpirun"] for contact in contacts.values()):
        where = f"in image {run.image}" if run.image else "on every node"
        raise MissingError(Reason.of("mpirun-missing", mpirun=findings.testbed.mpirun, where=where))
    if reason := without_gpus(findings.testbed, contacts):
        raise MissingError(reason)
    findings.measurements += clock_skews(contacts)
    versions = {name: contact.versions for name, contact in contacts.items()}
    suspects = [
        *(without_mpirun(findings.testbed.mpirun, contacts) if needs_mpirun else ()),
        *same_hostname(contacts),
        *skewed(contacts, settings_of(run).max_clock_skew_s),
        *short_of_gpus(findings.testbed, contacts),
        *odd_ones(versions, models_of(contacts)),
    ]
    # A cluster in the middle of an upgrade has no healthy side: all are named, and only a few odd ones taken out.
    findings.blame(suspects, {suspect.name for suspect in suspects if suspect.confidence >= _CLEAR_MAJORITY})


def _judge_inventory(findings: Findings, contacts: Mapping[str, NodeConnection]) -> None:
    """The state of every GPU, and what nodes that should be alike have otherwise."""
    inventories = ask_inventories(findings, contacts)
    broken = broken_gpus(inventories)
    findings.impaired += impaired_gpus(inventories)
    findings.notes += [
        *remarks(inventories, models_of(contacts)),
        *old_drivers({name: contact.versions for name, contact in contacts.items()}),
    ]
    findings.blame(broken, {suspect.name for suspect in broken})


def _try_links(findings: Findings, contacts: Mapping[str, NodeConnection], run: Run) -> None:
    """What TCP carries from and to every node; the comparison with its peers names the slow ones."""
    testbed, timeout_s = findings.testbed, settings_of(run).timeout_s
    plan = plan_of(run, testbed)
    try:
        streams = explore(plan, lambda pairs: try_streams(testbed, contacts, pairs, timeout_s))
    except NodesError as floods:
        findings.blame_nodes(floods.evidence)
        _try_links(findings, contacts, run)
        return
    findings.measurements += measurements(streams)
    findings.streams, findings.model_by_node = dict(streams), models_of(contacts)
    log.info("links: %s", summary(streams, findings.model_by_node))
    if missing := plan.not_measured(streams):
        findings.doubts.append(Reason.of("tcp-not-measured", missing=len(missing), links=some_of(missing)))


def _try_mpi(findings: Findings, contacts: Mapping[str, NodeConnection], run: Run) -> None:
    """`mpirun hostname` shows every node once per slot; nodes without which it would are taken out."""
    tries = count()
    hostnames = {name: contact.hostname for name, contact in contacts.items()}

    def show(testbed: Testbed) -> HostnameResult:
        number = next(tries)
        log_file = run.logs / (f"mpirun-hostname-{number}.log" if number else "mpirun-hostname.log")
        timeout_s = settings_of(run).timeout_s + len(testbed.nodes) * 0.5
        return show_hosts(testbed, hostnames, timeout_s, log_file)

    untried_logins = is_crowded(findings.testbed)
    while findings.testbed.nodes:
        shown = show(findings.testbed)
        if not shown.missing:
            ranks, seconds = findings.testbed.world_size, shown.result.seconds
            log.info("mpirun: %d ranks on %d nodes (%.1f s)", ranks, len(findings.testbed.nodes), seconds)
            return
        if untried_logins:
            untried_logins, tried = False, len(findings.testbed.nodes)
            try_logins(findings, contacts, settings_of(run).timeout_s)
            if len(findings.testbed.nodes) < tried:
                continue
        guilty = guilty_nodes(findings.testbed, lambda testbed: show(testbed).why)
        if not guilty:
            findings.problems.append(Reason.of("mpi-hosts-missing", missing=host_list(shown.missing), cause=shown.why))
            return
        findings.blame(
            (Suspect("node", name, 0.9, Reason.of("mpi-fails-with-node", cause=why)) for name, why in guilty),
            dict(guilty),
        )


def _plan(section: Connectivity, nodes: PlannedNodes) -> list[PlannedPart]:
    """Four rounds of questions, each as long as `timeout_s` at most: nodes, pairs, streams and MPI."""
    what = "every node answers, reaches the others and runs MPI; clocks, software, TCP streams"
    each_node_s = 0.5  # of mpirun
    return [PlannedPart(what, 10 + 0.1 * nodes.count, 4 * section.timeout_s + each_node_s * nodes.count)]


# Half a second of TCP on a busy machine gets what its processors leave; a link that is throttled or fell back to a
# lower speed loses a factor of ten and more.
TCP = Tolerance(sigma=0.5, cap=8.0, coarse=True)

CONNECTIVITY = CheckType(
    name=NAME,
    section=Connectivity,
    description="always part of a run",
    run=connectivity,
    default=Connectivity(),
    after="launch",
    metrics={
        "tcp_egress": Metric("MB/s", "the best TCP stream from the node to another one (1e6 bytes)", TCP),
        "tcp_ingress": Metric("MB/s", "the best TCP stream to the node from another one (1e6 bytes)", TCP),
        "tcp_stream": Metric("MB/s", "one TCP stream over a link; recorded, not judged"),
        "ssh_connect": Metric("ms", "the time until an SSH connection is up; recorded, not judged"),
        "clock_skew": Metric("s", "the node's clock minus the median node's; recorded, not judged"),
    },
    repeat=repeat_streams,
    plan=_plan,
    logs=("mpirun-hostname",),
)
