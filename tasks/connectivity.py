"""Step `connectivity`: does every node answer, reach every other, run MPI, and carry the same software?"""

import logging
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prefect import task
from prefect.cache_policies import NO_CACHE

from seatrial.contact import Contact, greet, reach_peers
from seatrial.errors import MissingError, RemoteError
from seatrial.measurement import Measurement, Subject
from seatrial.mpi import MpiResult, mpirun
from seatrial.reachability import blame, pairs_to_try
from seatrial.result import Check, Suspect
from seatrial.run import Run
from seatrial.ssh import on_each
from seatrial.testbed import Testbed
from seatrial.verdict import Verdict
from seatrial.versions import odd_ones

log = logging.getLogger("seatrial.connectivity")


@dataclass(frozen=True, slots=True)
class Connected:
    """What connectivity found: the check, the testbed without the nodes that failed, and the head's software."""

    check: Check
    testbed: Testbed
    fingerprint: Mapping[str, str]


@dataclass(slots=True)
class _Findings:
    """What the stages have found so far; `testbed` shrinks as nodes are set aside."""

    testbed: Testbed
    suspects: list[Suspect] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)

    def blame(self, suspects: Iterable[Suspect], set_aside: Iterable[str]) -> None:
        for suspect in suspects:
            log.warning("%s %s: %s", suspect.kind, suspect.name, suspect.evidence)
            self.suspects.append(suspect)
            self.problems.append(f"{suspect.name}: {suspect.evidence}")
        self._take_out(set(set_aside))

    def _take_out(self, names: set[str]) -> None:
        unblamed = sorted(names - {suspect.name for suspect in self.suspects})
        if unblamed:
            self.problems.append(f"{', '.join(unblamed)} left out without blame, so that the rest can go on")
        self.testbed = self.testbed.without(names)


def connectivity(run: Run, testbed: Testbed) -> Connected:
    """Try every path that the later steps use; nodes that fail are named and taken out.

    Raises MissingError when mpirun is on none of the nodes.
    """
    started = time.monotonic()
    found = _Findings(testbed)
    contacts = _answering(found, run.suite.connectivity.timeout_s)
    try:
        _judge_facts(found, contacts, run.suite.connectivity.max_clock_skew_s)
        if len(found.testbed.nodes) > 1:
            _try_pairs(found, contacts, run.suite.connectivity.timeout_s)
        if found.testbed.nodes:
            _try_mpi(found, contacts, run)
    finally:
        for contact in contacts.values():
            contact.transport.close()
    fingerprint = contacts[found.testbed.head.name].versions if found.testbed.nodes else {}
    return Connected(_check(found, len(testbed.nodes), time.monotonic() - started), found.testbed, fingerprint)


def _answering(found: _Findings, timeout_s: float) -> dict[str, Contact]:
    """Every node answers on its port with its pinned host key."""
    testbed = found.testbed
    greeted = on_each(testbed.nodes, lambda node: greet(testbed, node, timeout_s))
    contacts = {name: answer for name, answer in greeted.items() if isinstance(answer, Contact)}
    failed = {name: str(answer) for name, answer in greeted.items() if isinstance(answer, RemoteError)}
    log.info("%d of %d nodes answer on port %d", len(contacts), len(testbed.nodes), testbed.head.port)
    found.blame((Suspect("node", name, 1.0, error.removeprefix(f"{name}: ")) for name, error in failed.items()), failed)
    found.measurements += [
        Measurement("ssh_connect", contact.connect_ms, "ms", Subject("node", name), better=None)
        for name, contact in contacts.items()
    ]
    return contacts


def _judge_facts(found: _Findings, contacts: Mapping[str, Contact], max_clock_skew_s: float) -> None:
    """Clocks together, the same software everywhere, every GPU there, mpirun installed."""
    if contacts and not any(contact.facts["mpirun"] for contact in contacts.values()):
        raise MissingError(
            f"{found.testbed.mpirun} is missing on every node: install Open MPI (openmpi-bin) or set mpi.mpirun"
        )
    suspects = [
        *_without_mpirun(contacts),
        *_same_hostname(contacts),
        *_skewed(found, contacts, max_clock_skew_s),
        *_short_of_gpus(found.testbed, contacts),
        *odd_ones({name: contact.versions for name, contact in contacts.items()}),
    ]
    # Where no version has a majority everybody is named and nobody taken out: there is no healthy side to go on with.
    found.blame(suspects, {suspect.name for suspect in suspects if suspect.confidence > 0.5})


def _without_mpirun(contacts: Mapping[str, Contact]) -> list[Suspect]:
    return [
        Suspect("node", name, 1.0, "mpirun is missing on it")
        for name, contact in contacts.items()
        if not contact.facts["mpirun"]
    ]


def _same_hostname(contacts: Mapping[str, Contact]) -> list[Suspect]:
    """Open MPI tells nodes apart by host name alone, so the second node of a name is lost to it."""
    first: dict[str, str] = {}
    return [
        Suspect(
            "node", name, 0.6, f"has the host name of {other}, {contact.hostname}: Open MPI takes them for one node"
        )
        for name, contact in contacts.items()
        if (other := first.setdefault(contact.hostname, name)) != name
    ]


def _skewed(found: _Findings, contacts: Mapping[str, Contact], limit_s: float) -> list[Suspect]:
    """Nodes whose clock is off from the median node's by more than the limit, beyond what the measurement can err."""
    if not contacts:
        return []
    middle = statistics.median(contact.clock_offset_s for contact in contacts.values())
    skews = {name: contact.clock_offset_s - middle for name, contact in contacts.items()}
    found.measurements += [
        Measurement("clock_skew", skew, "s", Subject("node", name), better=None) for name, skew in skews.items()
    ]
    return [
        Suspect("node", name, 1.0, f"its clock is {skew:+.2f} s off the median node's, allowed {limit_s:g} s")
        for name, skew in skews.items()
        if abs(skew) - contacts[name].clock_error_s > limit_s
    ]


def _short_of_gpus(testbed: Testbed, contacts: Mapping[str, Contact]) -> list[Suspect]:
    expected = {node.name: node.gpus for node in testbed.nodes}
    return [
        Suspect("node", name, 1.0, f"{contact.facts['gpus']} of {expected[name]} GPUs are there")
        for name, contact in contacts.items()
        if int(contact.facts["gpus"]) < expected[name]
    ]


def _try_pairs(found: _Findings, contacts: Mapping[str, Contact], timeout_s: float) -> None:
    """Every node reaches its peers over SSH, tried from inside and all at once."""
    testbed = found.testbed
    by_name = {node.name: node for node in testbed.nodes}
    peers = pairs_to_try(list(by_name), testbed.run_id)
    answers = on_each(
        testbed.nodes,
        lambda node: reach_peers(testbed, contacts[node.name], [by_name[peer] for peer in peers[node.name]], timeout_s),
    )
    tried = {
        (name, peer): str(answer) if isinstance(answer, RemoteError) else answer[peer]
        for name, answer in answers.items()
        for peer in peers[name]
    }
    log.info("%d of %d pairs reach each other", sum(not error for error in tried.values()), len(tried))
    blamed = blame(tried)
    found.blame(blamed.suspects, blamed.set_aside)


def _try_mpi(found: _Findings, contacts: Mapping[str, Contact], run: Run) -> None:
    """`mpirun hostname` shows every node once per slot; where it does not, nodes are tried one by one."""
    result, missing = _hostnames(found.testbed, contacts, run)
    if not missing:
        return
    cause = _cause(result)
    guilty = _alone(found.testbed, contacts, run) if len(found.testbed.nodes) > 1 else []
    if guilty:
        found.blame(
            (Suspect("node", name, 0.9, f"mpirun does not reach it: {why}") for name, why in guilty), dict(guilty)
        )
        result, missing = _hostnames(found.testbed, contacts, run)
    if missing:
        found.problems.append(f"mpirun hostname does not show {', '.join(missing)}: {cause}")


def _alone(testbed: Testbed, contacts: Mapping[str, Contact], run: Run) -> list[tuple[str, str]]:
    """The nodes that fail together with the head alone, and why; empty when the head itself is what fails."""
    guilty = []
    for node in testbed.nodes[1:]:
        others = {other.name for other in testbed.nodes} - {testbed.head.name, node.name}
        result, missing = _hostnames(testbed.without(others), contacts, run)
        if missing:
            guilty.append((node.name, _cause(result)))
    return guilty if len(guilty) < len(testbed.nodes) - 1 or len(testbed.nodes) == 2 else []


def _hostnames(testbed: Testbed, contacts: Mapping[str, Contact], run: Run) -> tuple[MpiResult, list[str]]:
    """What `mpirun hostname` came to, and the nodes that were not shown as often as they have slots."""
    expected: Counter[str] = Counter()
    for node in testbed.nodes:
        expected[contacts[node.name].hostname] += node.slots
    names = {contacts[node.name].hostname: node.name for node in testbed.nodes}
    seen: Counter[str] = Counter()

    def complete(line: str) -> bool:
        seen[line.strip()] += line.strip() in expected
        return seen == expected

    log_file = run.logs / "mpirun-hostname.log"
    timeout_s = run.suite.connectivity.timeout_s + len(testbed.nodes) * 0.5
    result = mpirun(testbed, ["hostname"], timeout_s=timeout_s, is_done=complete, log_file=log_file)
    missing = [names[host] for host, slots in expected.items() if seen[host] != slots]
    if not missing:
        log.info("mpirun: %d ranks on %d nodes (%.1f s)", testbed.world_size, len(testbed.nodes), result.seconds)
    return result, missing


def _cause(result: MpiResult) -> str:
    if result.timed_out:
        return result.cause or f"no end within {result.seconds:.0f} s"
    return result.cause or f"mpirun's exit status is {result.exit_status}"


def _check(found: _Findings, asked: int, seconds: float) -> Check:
    left = len(found.testbed.nodes)
    good = f"{left} of {asked} nodes answer, reach each other and run MPI"
    reason = "; ".join(found.problems[:3]) + (
        f" (and {len(found.problems) - 3} more)" if len(found.problems) > 3 else ""
    )
    return Check(
        name="connectivity",
        verdict=Verdict.FAIL if found.problems else Verdict.PASS,
        reason=reason or good,
        seconds=seconds,
        measurements=tuple(found.measurements),
        suspects=tuple(found.suspects),
    )


@task(name="connectivity", cache_policy=NO_CACHE)
def connectivity_task(run: Run, testbed: Testbed) -> Connected:
    return connectivity(run, testbed)
