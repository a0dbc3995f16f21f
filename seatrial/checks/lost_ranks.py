"""Find the nodes of the lost ranks of an mpirun. Pure.

The node of a lost rank answers: only its rank or its device failed, so no node is named if most
    nodes show the same sign. One rank that ends ends all, so which rank ended first is weak
    evidence. Stronger evidence is a rank that never answered the others, or an error of its device.
"""

from collections.abc import Iterator

from seatrial.checks.failures import (
    CANNOT_START,
    KILLED,
    LOST_A_PEER,
    NO_WORD,
    OUT_OF_MEMORY,
    Complaints,
    complaints_of,
    first_to_leave,
    own_lines,
    unanswered,
)
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.testbed import Testbed
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.ranks import rank_of
from seatrial.text.lazy_pattern import lazy

Suspects = Iterator[Suspect]
# Most ranks in a complete list of silent ranks (seatrial/remote/probes/rendezvous.py)
_MOST_NAMED = 7
# Other signals are software bugs, or were sent to end the program
_BLAMED_SIGNALS = {7: "7 (bus error)", 9: "9 (killed)"}
_SIGNAL = lazy(r"\((\d{1,2})\b")
_BY_SRUN = lazy(
    r"srun: error: (?P<host>[\w.-]{1,253}): task (?P<rank>\d{1,7}): (?P<how>Killed|Out Of Memory)"
)
_SRUN_ENDS_ALL = lazy(
    r"srun: (?:error: .{1,300}: Exited with|.{0,300}\bTerminating\b|.{0,300}\bCANCELLED\b)"
)
_DEVICE_ERROR = lazy(r"\b(?:CUDA|HIP) error: ")
_RANK_ON = lazy(r"rank (?P<rank>\d{1,7})(?: on (?P<host>[^\s,]{1,253}))?")
# In messages of gloo: Read error [10.0.0.3]:2732: ...
_PEER = lazy(r"\[(?P<address>[0-9A-Fa-f.:]{2,45})\]:\d{1,5}")


def node_of(rank: int, host: str, testbed: Testbed) -> str:
    """Return the node of the rank by mpirun's mapping by slot; `host`, as the rank reports it, if
    there is none.
    """
    node, _ = dict(enumerate(_slots(testbed))).get(rank, (host, 0))
    return node


def _slots(testbed: Testbed) -> list[tuple[str, int]]:
    """Return (node, number on the node) of each rank."""
    return [(node.name, place) for node in testbed.nodes for place in range(node.slots)]


def lost_ranks(result: MpiResult, testbed: Testbed) -> tuple[Suspect, ...]:
    """Return the nodes of lost ranks by the clearest sign; empty without a sign, or if most nodes
    show it.
    """
    complaints = complaints_of(result)
    signs = (
        _without_daemon(result),
        _killed(result, testbed, complaints),
        _without_memory(result, testbed),
        _reporting_own_failure(testbed, complaints),
        _silent(testbed, complaints),
        _first_to_end_without_reason(result, testbed, complaints),
        _missed_by_peers(result, testbed, complaints),
    )
    names = set(testbed.names)
    for suspects in signs:
        by_node = {suspect.name: suspect for suspect in suspects if suspect.name in names}
        if by_node:
            if 2 * len(by_node) <= max(len(names), 2):
                return tuple(by_node.values())
            return ()
    return ()


def _without_daemon(result: MpiResult) -> Suspects:
    """Yield nodes on which mpirun's daemon did not start."""
    for session in result.sessions:
        if session.failed:
            evidence = Reason.of(
                "mpi-daemon-failed", node=session.node, status=session.exit_status, said=""
            )
            yield Suspect("node", session.node, 0.9, evidence)


def _suspect(testbed: Testbed, rank: int, host: str, code: str, **values: object) -> Suspect:
    """Return the node of a rank as a suspect, with the rank's GPU in the evidence, if
    there is one.
    """
    slots = _slots(testbed) if testbed.has_gpus else []
    device = f" (gpu-{slots[rank][1]})" if rank < len(slots) else ""
    confidence = 0.9 if code in ("rank-silent", "rank-device-error") else 0.5
    evidence = Reason.of(code, rank=rank, device=device, **values)
    return Suspect("node", node_of(rank, host, testbed), confidence, evidence)


def _has_own_cause(complaints: Complaints) -> bool:
    """Return whether a rank reports a cause other than lost or silent peers."""
    return any(
        not LOST_A_PEER.search(c["cause"]) and not c["cause"].startswith(NO_WORD)
        for c in complaints
    )


def _killed(result: MpiResult, testbed: Testbed, complaints: Complaints) -> Suspects:
    """Yield ranks that a signal ended before they printed an error."""
    if result.timed_out:
        return
    spoke = {int(complaint["rank"]) for complaint in complaints}
    for finding in result.findings:
        signal = _SIGNAL.search(finding.cause) if finding.code == KILLED else None
        number = int(signal.group(1)) if signal else 0
        if number in _BLAMED_SIGNALS and finding.rank is not None and finding.rank not in spoke:
            yield _suspect(
                testbed,
                finding.rank,
                finding.host or "",
                "rank-killed",
                signal=_BLAMED_SIGNALS[number],
            )
    yield from _killed_by_srun(result, testbed, spoke, complaints)


def _killed_by_srun(
    result: MpiResult, testbed: Testbed, spoke: set[int], complaints: Complaints
) -> Suspects:
    """Yield the rank that srun reports as killed first; srun kills all others with it, and reports
    each.
    """
    of_srun = [line for line in result.lines if rank_of(line) is None]
    tasks = [match for match in map(_BY_SRUN.search, of_srun) if match]
    for match in tasks:
        if match["how"] == "Out Of Memory":
            yield _suspect(testbed, int(match["rank"]), match["host"], "rank-oom-killed")
    began_otherwise = _has_own_cause(complaints) or any(map(_SRUN_ENDS_ALL.search, of_srun))
    if not tasks or began_otherwise:
        return
    first = tasks[0]
    rank = int(first["rank"])
    if first["how"] == "Killed" and rank not in spoke:
        signal = _BLAMED_SIGNALS[9]
        yield _suspect(testbed, rank, first["host"], "rank-killed", signal=signal)


def _without_memory(result: MpiResult, testbed: Testbed) -> Suspects:
    """Yield ranks that lacked memory to start; the others were ended before they could report
    anything.
    """
    for match in own_lines(CANNOT_START, result):
        if OUT_OF_MEMORY.search(match["cause"]) and (match["rank"] or "?") != "?":
            yield _suspect(
                testbed,
                int(match["rank"]),
                match["host"],
                "rank-out-of-memory",
                cause=match["cause"],
            )


def _reporting_own_failure(testbed: Testbed, complaints: Complaints) -> Suspects:
    """Yield ranks that report a full memory or a failing device, if other ranks only report lost
    peers.
    """
    causes = {
        int(complaint["rank"]): complaint for complaint in complaints if _code(complaint["cause"])
    }
    spoke = {int(complaint["rank"]) for complaint in complaints}
    if len(causes) == len(spoke) or 2 * len(causes) > testbed.world_size:
        return
    for rank, complaint in causes.items():
        cause = complaint["cause"]
        yield _suspect(testbed, rank, complaint["host"], _code(cause), cause=cause)


def _code(cause: str) -> str:
    if OUT_OF_MEMORY.search(cause):
        return "rank-out-of-memory"
    return "rank-device-error" if _DEVICE_ERROR.search(cause) else ""


def _silent(testbed: Testbed, complaints: Complaints) -> Suspects:
    """Yield ranks that never answered the others, according to these."""
    spoke = {complaint["rank"] for complaint in complaints}
    for complaint in unanswered(complaints):
        named = list(_RANK_ON.finditer(complaint["cause"].removeprefix(NO_WORD)))
        # A rank that printed a message itself is not silent
        ranks = [match for match in named if match["rank"] not in spoke]
        if len(named) <= _MOST_NAMED:  # longer lists may be cut
            yield from (
                _suspect(testbed, int(match["rank"]), match["host"] or "", "rank-silent")
                for match in ranks
            )


def _first_to_end_without_reason(
    result: MpiResult, testbed: Testbed, complaints: Complaints
) -> Suspects:
    """Yield the rank that mpirun reports as the first to end, if no rank says why."""
    spoke = {int(complaint["rank"]) for complaint in complaints}
    has_cause = _has_own_cause(complaints) or any(
        not finding.secondary for finding in result.findings
    )
    first = first_to_leave(result)
    if first and first[0] not in spoke and not has_cause and not own_lines(CANNOT_START, result):
        yield _suspect(testbed, first[0], "", "rank-left-in-silence", status=first[1])


def _missed_by_peers(result: MpiResult, testbed: Testbed, complaints: Complaints) -> Suspects:
    """Yield nodes that peers lost their connection to and whose ranks report nothing: they ended
    first.
    """
    if result.timed_out or _has_own_cause(complaints) or own_lines(CANNOT_START, result):
        return  # ranks that are ended lose each other too
    by_address = {node.address: node.name for node in testbed.nodes}
    ranks = [name for name, _ in _slots(testbed)]
    spoke = {
        node_of(int(complaint["rank"]), complaint["host"], testbed) for complaint in complaints
    }
    lost = [
        match["address"]
        for c in complaints
        if LOST_A_PEER.search(c["cause"])
        for match in _PEER.finditer(c["cause"])
    ]
    for address in dict.fromkeys(lost):
        node = by_address.get(address, "")
        if node and node not in spoke:
            yield _suspect(testbed, ranks.index(node), node, "rank-lost", peers=lost.count(address))
