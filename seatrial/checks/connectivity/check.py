"""Step `connectivity`: does every node answer, reach every other, run MPI, and carry the same software and traffic?"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from seatrial.checks.connectivity.findings import Findings
from seatrial.checks.connectivity.mpireach import Shown, guilty_nodes, show_hosts
from seatrial.checks.connectivity.nodefacts import clock_skews, same_hostname, short_of_gpus, skewed, without_mpirun
from seatrial.checks.connectivity.reachability import blame, pairs_to_try
from seatrial.checks.connectivity.throughput import explore, measurements, summary
from seatrial.checks.connectivity.versions import odd_ones, unknown
from seatrial.checks.connectivity.section import Connectivity
from seatrial.checks.contract import CheckType, Context, Facts, Need, StepResult
from seatrial.config.run import Run
from seatrial.model.errors import FloodError, LaunchError, MissingError, NodesError, RemoteError
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import join, rewritten, unplaced
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.node_setup import Contact, greet, reach_peers, try_streams
from seatrial.remote.ssh import allow_many_connections, on_each

log = logging.getLogger("seatrial.connectivity")

_CLEAR_MAJORITY = 0.66  # share of nodes that must agree before the others are taken out: 2 of 3, 3 of 4


def section_of(run: Run) -> Connectivity:
    """What the suite says of it; it is part of every suite."""
    return run.suite.section(Connectivity) or Connectivity()


def connectivity(run: Run, testbed: Testbed) -> StepResult:
    """Try every path that the later steps use; nodes that fail are named and taken out.

    Raises MissingError when mpirun is on none of the nodes.
    """
    started = time.monotonic()
    allow_many_connections()
    found = Findings(testbed)
    contacts = _answering(found, section_of(run).timeout_s)
    try:
        _judge_facts(found, contacts, run)
        if len(found.testbed.nodes) > 1:
            _try_pairs(found, contacts, section_of(run).timeout_s)
            _try_links(found, contacts, section_of(run).timeout_s)
        _try_mpi(found, contacts, run)
    except (MissingError, RemoteError) as error:
        if isinstance(error, MissingError) and not found.problems:
            raise
        found.problems.append(error.reason)
    finally:
        for contact in contacts.values():
            contact.transport.close()
    check = _check(found, len(testbed.nodes), time.monotonic() - started)
    notes = unknown({name: contact.versions for name, contact in contacts.items()})
    facts = {name: contact.facts for name, contact in contacts.items()}
    return StepResult(check, found.testbed, facts, _fingerprint(found.testbed, facts), tuple(notes))


def _fingerprint(testbed: Testbed, facts: Facts) -> dict[str, str]:
    """The head's software, version by package."""
    if not testbed.nodes:
        return {}
    versions = facts[testbed.head.name]["versions"]
    return {package: version for package, version in versions.items() if version}


@dataclass(frozen=True, slots=True)
class Present:
    """Who still answers and reaches the others: the testbed without those that do not.

    `suspects` are to blame; of the others the platform itself says why they went (preempted, deleted). `problems` names
    all of them.
    """

    testbed: Testbed
    suspects: tuple[Suspect, ...] = ()
    problems: tuple[str, ...] = ()


def roll_call(run: Run, testbed: Testbed) -> Present:
    """Ask every node once more, after something broke: a node or a link may have died since connectivity was tried."""
    found = Findings(testbed)
    timeout_s = section_of(run).timeout_s
    contacts: dict[str, Contact] = {}
    try:
        contacts = _answering(found, timeout_s)
        if len(found.testbed.nodes) > 1:
            _try_pairs(found, contacts, timeout_s)
    except LaunchError as error:
        log.warning("nobody can be asked whether they are still there: %s", error)
        return Present(testbed)
    finally:
        for contact in contacts.values():
            contact.transport.close()
    return _excused(testbed, found)


def _excused(testbed: Testbed, found: Findings) -> Present:
    by_name = {node.name: node for node in testbed.nodes}
    excuses = {
        suspect.name: excuse
        for suspect in found.suspects
        if suspect.name in by_name and (excuse := testbed.excuse(by_name[suspect.name]))
    }
    blamed = tuple(suspect for suspect in found.suspects if suspect.name not in excuses)
    problems = [problem for problem in found.problems if problem.partition(":")[0] not in excuses]
    return Present(found.testbed, blamed, (*problems, *(f"{name}: {why}" for name, why in excuses.items())))


def _answering(found: Findings, timeout_s: float) -> dict[str, Contact]:
    """Every node answers on its port with its pinned host key."""
    testbed = found.testbed
    greeted = on_each(testbed.nodes, lambda node: greet(testbed, node, timeout_s))
    contacts = {name: answer for name, answer in greeted.items() if isinstance(answer, Contact)}
    failed = {n: unplaced(answer.reason) for n, answer in greeted.items() if isinstance(answer, RemoteError)}
    log.info("%d of %d nodes answer on port %d", len(contacts), len(testbed.nodes), testbed.head.port)
    found.blame_nodes(failed)
    found.measurements += [
        Measurement("ssh_connect", contact.connect_ms, "ms", Subject("node", name), better=None)
        for name, contact in contacts.items()
    ]
    return contacts


def _judge_facts(found: Findings, contacts: Mapping[str, Contact], run: Run) -> None:
    """Clocks together, the same software everywhere, every GPU there, mpirun installed."""
    if contacts and not any(contact.facts["mpirun"] for contact in contacts.values()):
        where = f"in image {run.image}" if run.image else "on every node"
        raise MissingError(
            f"{found.testbed.mpirun} is missing {where}: install Open MPI (openmpi-bin) or set mpi.mpirun"
        )
    found.measurements += clock_skews(contacts)
    suspects = [
        *without_mpirun(contacts),
        *same_hostname(contacts),
        *skewed(contacts, section_of(run).max_clock_skew_s),
        *short_of_gpus(found.testbed, contacts),
        *odd_ones({name: contact.versions for name, contact in contacts.items()}),
    ]
    # A cluster in the middle of an upgrade has no healthy side: all are named, and only a few odd ones taken out.
    found.blame(suspects, {suspect.name for suspect in suspects if suspect.confidence >= _CLEAR_MAJORITY})


def _try_pairs(found: Findings, contacts: Mapping[str, Contact], timeout_s: float) -> None:
    """Every node reaches its peers over SSH, tried from inside and all at once."""
    testbed = found.testbed
    by_name = {node.name: node for node in testbed.nodes}
    peers = pairs_to_try(list(by_name), testbed.run_id)
    answers = on_each(
        testbed.nodes,
        lambda node: reach_peers(testbed, contacts[node.name], [by_name[peer] for peer in peers[node.name]], timeout_s),
    )
    found.blame_nodes({name: answer.reason for name, answer in answers.items() if isinstance(answer, FloodError)})
    tried = {
        (name, peer): answer.reason if isinstance(answer, RemoteError) else answer[peer]
        for name, answer in answers.items()
        if not isinstance(answer, FloodError)
        for peer in peers[name]
    }
    log.info("%d of %d pairs reach each other", sum(not error for error in tried.values()), len(tried))
    blamed = blame(tried)
    found.blame(blamed.suspects, blamed.set_aside)


def _try_links(found: Findings, contacts: Mapping[str, Contact], timeout_s: float) -> None:
    """What TCP carries from and to every node; the comparison with its peers names the slow ones."""
    testbed = found.testbed
    try:
        streams = explore([node.name for node in testbed.nodes], lambda p: try_streams(testbed, contacts, p, timeout_s))
    except NodesError as floods:
        found.blame_nodes(floods.evidence)
        _try_links(found, contacts, timeout_s)
        return
    found.measurements += measurements(streams)
    log.info("links: %s", summary(streams))


def _try_mpi(found: Findings, contacts: Mapping[str, Contact], run: Run) -> None:
    """`mpirun hostname` shows every node once per slot; nodes without which it would are taken out."""
    tries = count()
    hostnames = {name: contact.hostname for name, contact in contacts.items()}

    def show(testbed: Testbed) -> Shown:
        number = next(tries)
        log_file = run.logs / (f"mpirun-hostname-{number}.log" if number else "mpirun-hostname.log")
        timeout_s = section_of(run).timeout_s + len(testbed.nodes) * 0.5
        return show_hosts(testbed, hostnames, timeout_s, log_file)

    while found.testbed.nodes:
        shown = show(found.testbed)
        if not shown.missing:
            ranks, seconds = found.testbed.world_size, shown.result.seconds
            log.info("mpirun: %d ranks on %d nodes (%.1f s)", ranks, len(found.testbed.nodes), seconds)
            return
        guilty = guilty_nodes(found.testbed, lambda testbed: show(testbed).why)
        if not guilty:
            found.problems.append(f"mpirun hostname does not show {', '.join(shown.missing)}: {shown.why}")
            return
        found.blame((Suspect("node", name, 0.9, f"MPI fails with it: {why}") for name, why in guilty), dict(guilty))


def _check(found: Findings, asked: int, seconds: float) -> Check:
    left = len(found.testbed.nodes)
    good = f"{left} of {asked} nodes answer, reach each other and run MPI"
    more = f" (and {len(found.problems) - 3} more)" if len(found.problems) > 3 else ""
    reason = rewritten(join(found.problems[:3]), lambda text: text + more)
    return Check(
        name="connectivity",
        verdict=Verdict.FAIL if found.problems else Verdict.PASS,
        reason=reason or good,
        seconds=seconds,
        measurements=tuple(found.measurements),
        suspects=tuple(found.suspects),
    )


CONNECTIVITY = CheckType(
    name="connectivity",
    section=Connectivity,
    description="always part of a run",
    run=lambda context: connectivity(context.run, context.testbed),
    default=Connectivity(),
    after="launch",
    needs=lambda gpus: (
        Need("sshd", "install openssh-server"),
        Need("mpirun", "install Open MPI (openmpi-bin) or set mpi.mpirun"),
    ),
    repeat=streams_again,
    tolerances={"tcp_egress": TCP, "tcp_ingress": TCP},
    logs=("mpirun-hostname",),
)
