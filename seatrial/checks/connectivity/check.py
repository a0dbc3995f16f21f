"""Step `connectivity`: does every node answer, reach every other, run MPI, and carry the same
software and traffic?
"""

import itertools
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.checks.connectivity.facts import (
    clock_skews,
    models_of,
    same_hostname,
    short_of_gpus,
    skewed,
    without_gpus,
    without_mpirun,
)
from seatrial.checks.connectivity.findings import NAME, Findings
from seatrial.checks.connectivity.inventory import broken_gpus, impaired_gpus, remarks
from seatrial.checks.connectivity.rates import measurements
from seatrial.checks.connectivity.slow_paths import slow_paths
from seatrial.checks.connectivity.slow_streams import summary
from seatrial.checks.connectivity.stages import (
    Connectivity,
    Contacts,
    ask_inventories,
    contact_nodes,
    plan_of,
    repeat_streams,
    settings_of,
    try_logins,
    try_reach,
)
from seatrial.checks.connectivity.throughput import explore
from seatrial.checks.connectivity.versions import Versions, odd_ones, old_drivers, unknown
from seatrial.checks.contract import (
    CheckContext,
    CheckType,
    PlannedNodes,
    PlannedPart,
    StepResult,
    sure,
)
from seatrial.checks.failures import starved_reason
from seatrial.checks.metrics import CONNECTIVITY_METRICS
from seatrial.config.architecture import Facts
from seatrial.config.run import Run
from seatrial.model.errors import MissingError, NodesError, RemoteError
from seatrial.model.reason import Reason, uncoded
from seatrial.model.testbed import Testbed
from seatrial.remote.command import MAX_OUTPUT_BYTES
from seatrial.remote.mpi import mpirun
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.peers import try_streams
from seatrial.remote.probes.facts import NCCL_TESTS
from seatrial.remote.ranks import rank_of
from seatrial.remote.ssh import allow_many_connections
from seatrial.text.hostlist import host_list
from seatrial.text.words import count, some_of

_BYTES_PER_RANK = 4096  # output of a rank: a host name, and warnings of mpirun
MAX_TRIES = 40  # most mpirun calls of a search: enough for ten bad nodes among a thousand
Attempt = Callable[[Testbed], Reason | None]  # runs MPI; returns why it fails, or None
Guilty = tuple[str, Reason]  # a node, and why MPI fails with it
log = logging.getLogger("seatrial.connectivity")
# Share of nodes that must agree before deviating ones are taken out: 2 of 3, 3 of 4
_CLEAR_MAJORITY = 0.66


@dataclass(frozen=True, slots=True)
class HostnameResult:
    """The result of one `mpirun hostname`; `missing` are the nodes without a right line for each
    slot.
    """

    result: MpiResult
    missing: tuple[str, ...]

    @property
    def why(self) -> Reason | None:
        """The reason why nodes are missing; None if none is."""
        if not self.missing:
            return None
        if self.result.cause:
            return uncoded(self.result.cause)
        if self.result.timed_out:
            return Reason.of(
                "mpirun-hostname-failed", ended=f"did not end within {self.result.seconds:.0f} s"
            )
        return Reason.of(
            "mpirun-hostname-failed",
            ended=f"ended with status {self.result.exit_status} and did not show it",
        )


def show_hosts(
    testbed: Testbed, hostnames: Mapping[str, str], timeout_s: float, log_file: Path
) -> HostnameResult:
    """Run `hostname` once per slot.

    `hostnames` are the names that the nodes report, by node name. A rank's line counts for its own
    node only. Raises RemoteError.
    """
    nodes = [node.name for node in testbed.nodes for _ in range(node.slots)]
    shown = set()

    def complete(line: str) -> bool:
        rank = rank_of(line)
        if rank is not None and rank < len(nodes) and line.strip() == hostnames[nodes[rank]]:
            shown.add(rank)
        return len(shown) == len(nodes)

    most = MAX_OUTPUT_BYTES + _BYTES_PER_RANK * testbed.world_size
    result = mpirun(
        testbed,
        ["hostname"],
        timeout_s=timeout_s,
        is_done=complete,
        log_file=log_file,
        max_bytes=most,
    )
    missing = dict.fromkeys(name for rank, name in enumerate(nodes) if rank not in shown)
    return HostnameResult(result, tuple(missing))


def guilty_nodes(testbed: Testbed, attempt: Attempt) -> list[Guilty]:
    """Find the nodes that break MPI by bisection: first the head alone, then the head with halves
    of the others.

    Empty if MPI fails with no part alone, or after `MAX_TRIES`. Raises MissingError if mpirun fails
    on each single node that is tried: then mpirun is broken, not a node.
    """
    head, *others = testbed.names
    why = attempt(_alone(testbed, head))
    if why:
        if all(attempt(_alone(testbed, other)) for other in others[:2]):
            raise MissingError.of("mpirun-broken", cause=why)
        return [(head, why)]
    guilty: list[Guilty] = []
    waiting = [others] if others else []  # groups to try together with the head
    for _ in range(MAX_TRIES):
        if not waiting:
            return guilty
        names = waiting.pop(0)
        why = attempt(testbed.without(set(others).difference(names)))
        if why and len(names) == 1:
            guilty.append((names[0], why))
        elif why:
            middle = len(names) // 2
            waiting = [names[:middle], names[middle:], *waiting]
    return [] if waiting else guilty


def _alone(testbed: Testbed, name: str) -> Testbed:
    return testbed.part([name], testbed.label)


def connectivity(context: CheckContext) -> StepResult:
    """Try every path that the later steps use; nodes that fail are named and taken out.

    Raises MissingError when mpirun is on none of the nodes.
    """
    started = time.monotonic()
    run = context.run
    testbed = context.testbed
    allow_many_connections()
    findings = Findings(testbed, node_count=len(testbed.nodes))
    contacts = contact_nodes(findings, settings_of(run).timeout_s)
    try:
        _judge_facts(findings, contacts, run)
        probed = bool(findings.testbed.python)
        if probed:
            _judge_inventory(findings, contacts)
        if probed and len(findings.testbed.nodes) > 1:
            try_reach(findings, contacts, settings_of(run).timeout_s)
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
    notes = (*unknown(_versions_of(contacts)), *findings.notes)
    facts = {name: contact.facts for name, contact in contacts.items()}
    versions = facts[findings.testbed.head.name]["versions"] if findings.testbed.nodes else {}
    fingerprint = {package: version for package, version in versions.items() if version}
    testbed = with_nccl_tests(findings.testbed, facts)
    return StepResult(
        check=findings.check(),
        testbed=testbed,
        facts=facts,
        fingerprint=fingerprint,
        notes=notes,
        kept=findings,
    )


def with_nccl_tests(testbed: Testbed, facts: Facts) -> Testbed:
    """Return the testbed with the folder of nccl-tests, if it is in one of the usual places."""
    if not testbed.nodes or not testbed.has_gpus:
        return testbed
    folder = str(facts[testbed.head.name]["nccl_tests"]).rpartition("/")[0]
    beside_path = NCCL_TESTS.split(":")[1:]
    if folder in beside_path:
        return replace(testbed, nccl_tests=folder)
    return testbed


def _versions_of(contacts: Contacts) -> dict[str, Versions]:
    return {name: contact.versions for name, contact in contacts.items()}


def _judge_facts(findings: Findings, contacts: Contacts, run: Run) -> None:
    """Check that clocks agree, the same software is everywhere, every GPU is there, and mpirun is
    installed.
    """
    testbed = findings.testbed
    lacking = without_mpirun(testbed.mpirun, contacts) if testbed.launcher is None else []
    if lacking and len(lacking) == len(contacts):
        where = f"in image {run.image}" if run.image else "on every node"
        raise MissingError.of("mpirun-missing", mpirun=testbed.mpirun, where=where)
    reason = without_gpus(testbed, contacts)
    if reason:
        raise MissingError(reason)
    findings.measurements += clock_skews(contacts)
    findings.doubts += same_hostname(contacts)
    suspects = [
        *lacking,
        *skewed(contacts, settings_of(run).max_clock_skew_s),
        *short_of_gpus(testbed, contacts),
        *odd_ones(_versions_of(contacts), models_of(contacts)),
    ]
    # In the middle of an upgrade no side is healthy: deviating nodes are named, and taken out only
    # if they are few.
    findings.blame(
        suspects, {suspect.name for suspect in suspects if suspect.confidence >= _CLEAR_MAJORITY}
    )


def _judge_inventory(findings: Findings, contacts: Contacts) -> None:
    """Judge the state of every GPU, and note differences between nodes of the same model."""
    inventories = findings.inventories = ask_inventories(findings, contacts)
    broken = broken_gpus(inventories)
    findings.impaired += impaired_gpus(inventories)
    findings.notes += [
        *remarks(inventories, models_of(contacts)),
        *slow_paths(inventories),
        *old_drivers(_versions_of(contacts)),
    ]
    findings.blame(broken, {suspect.name for suspect in broken})


def _try_links(findings: Findings, contacts: Contacts, run: Run) -> None:
    """Measure TCP from and to every node; slow nodes are found by comparison with the others."""
    testbed = findings.testbed
    timeout_s = settings_of(run).timeout_s
    plan = plan_of(run, testbed)
    try:
        streams = explore(plan, lambda pairs: try_streams(testbed, contacts, pairs, timeout_s))
    except NodesError as floods:
        findings.blame_nodes(floods.evidence)
        _try_links(findings, contacts, run)
        return
    findings.measurements += measurements(streams)
    findings.streams = dict(streams)
    findings.model_by_node = models_of(contacts)
    log.info("links: %s", summary(streams, findings.model_by_node))
    missing = plan.not_measured(streams)
    if missing:
        findings.doubts.append(
            Reason.of("tcp-not-measured", missing=len(missing), links=some_of(missing))
        )


def _try_mpi(findings: Findings, contacts: Contacts, run: Run) -> None:
    """Check that `mpirun hostname` shows every node once per slot; take out the nodes that break
    it.
    """
    tries = itertools.count()
    hostnames = {name: contact.hostname for name, contact in contacts.items()}

    def show(testbed: Testbed) -> HostnameResult:
        number = next(tries)
        log_file = run.logs / (f"mpirun-hostname-{number}.log" if number else "mpirun-hostname.log")
        timeout_s = settings_of(run).timeout_s + len(testbed.nodes) * 0.5
        return show_hosts(testbed, hostnames, timeout_s, log_file)

    untried_logins = bool(findings.testbed.python) and len(findings.testbed.nodes) > 1
    while findings.testbed.nodes:
        testbed = findings.testbed
        shown = show(testbed)
        tried = len(testbed.nodes)
        if not shown.missing:
            ranks = count(testbed.world_size, "rank")
            nodes = count(tried, "node")
            log.info("mpirun: %s on %s (%.1f s)", ranks, nodes, shown.result.seconds)
            return
        if shown.result.starved:
            findings.doubts.append(starved_reason(shown.result))
            return
        if untried_logins:
            untried_logins = False
            try_logins(findings, contacts, settings_of(run).timeout_s)
            if len(findings.testbed.nodes) < tried:
                continue
        guilty = guilty_nodes(testbed, lambda part: show(part).why)
        if not guilty:
            findings.problems.append(
                Reason.of("mpi-hosts-missing", missing=host_list(shown.missing), cause=shown.why)
            )
            return
        evidence = {name: Reason.of("mpi-fails-with-node", cause=why) for name, why in guilty}
        findings.blame(sure(evidence, 0.9), evidence)


def _plan(section: Connectivity, nodes: PlannedNodes) -> list[PlannedPart]:
    """Plan four rounds of questions, each up to `timeout_s`: nodes, pairs, streams and MPI."""
    summary = "every node answers, reaches the others and runs MPI; clocks, software, TCP streams"
    each_node_s = 0.5  # seconds of mpirun per node
    return [
        PlannedPart(
            summary, 10 + 0.1 * nodes.count, 4 * section.timeout_s + each_node_s * nodes.count
        )
    ]


CONNECTIVITY = CheckType(
    name=NAME,
    section=Connectivity,
    description="always part of a run",
    run=connectivity,
    default=Connectivity(),
    after="launch",
    metrics=CONNECTIVITY_METRICS,
    repeat=repeat_streams,
    plan=_plan,
    logs=("mpirun-hostname",),
)
