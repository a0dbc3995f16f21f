"""The nodes of ranks that were killed, stood still or ran out of memory, as the output of an mpirun tells. Pure.

The node is there, and only its rank is not, or only its device fails; so none is named where most ranks have the same.
What ends one rank ends all of them, before anybody hears whether the others had come to the same; so a rank that went
first is half a proof. One that the others waited for in vain is a better one, and so is an error of its device.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from seatrial.checks.broken import CANNOT_START, KILLED, LOST_A_PEER, NO_WORD, OUT_OF_MEMORY, complaints_in, silences
from seatrial.checks.rank_nodes import device_of, node_of
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.testbed import Testbed
from seatrial.remote.mpi import MpiResult

Complaints = Sequence[re.Match[str]]

_CONFIDENCE = {"rank-silent": 0.9, "rank-device-error": 0.9}
_OTHERWISE = 0.5
_MOST_NAMED = 7  # ranks in a list of silent ones that is not cut (seatrial/remote/probes/last_words.py)
_BLAMED_SIGNALS = {7: "7 (bus error)", 9: "9 (killed)"}  # others are bugs of software, or the wish to end it
_SIGNAL = re.compile(r"\((\d{1,2})\b")
_BY_SRUN = re.compile(r"srun: error: (?P<host>[\w.-]{1,253}): task (?P<rank>\d{1,7}): (?P<how>Killed|Out Of Memory)")
_SRUN_ENDS_ALL = re.compile(r"srun: (?:error: .{1,300}: Exited with|.{0,300}\bTerminating\b|.{0,300}\bCANCELLED\b)")
_DEVICE_ERROR = re.compile(r"\b(?:CUDA|HIP) error: ")
_RANK_ON = re.compile(r"rank (?P<rank>\d{1,7})(?: on (?P<host>[^\s,]{1,253}))?")
_PEER = re.compile(r"\[(?P<address>[0-9A-Fa-f.:]{2,45})\]:\d{1,5}")  # of gloo: Read error [10.0.0.3]:2732: ...


def lost_ranks(result: MpiResult, testbed: Testbed) -> tuple[Suspect, ...]:
    """The nodes, by the clearest sign that there is; none where nothing tells, or where most ranks have it."""
    complaints = complaints_in(result.lines)
    signs: tuple[Callable[[], Iterator[Suspect]], ...] = (
        lambda: _killed(result, testbed, complaints),
        lambda: _without_memory(result, testbed),
        lambda: _failed_by_own_word(testbed, complaints),
        lambda: _silent(testbed, complaints),
        lambda: _missed_by_peers(result, testbed, complaints),
    )
    names = {node.name for node in testbed.nodes}
    for sign in signs:
        by_node = {suspect.name: suspect for suspect in sign() if suspect.name in names}
        if by_node:
            return tuple(by_node.values()) if 2 * len(by_node) <= max(len(names), 2) else ()
    return ()


def _suspect(testbed: Testbed, rank: int, host: str, code: str, **values: object) -> Suspect:
    node = node_of(rank, host, testbed)
    device = device_of(rank, testbed)
    evidence = Reason.of(code, rank=rank, device=f" ({device})" if device else "", **values)
    return Suspect("node", node, _CONFIDENCE.get(code, _OTHERWISE), evidence)


def _gave_a_cause(complaints: Complaints) -> bool:
    """Whether a rank ended for a reason of its own: then all others were ended with it."""
    return any(not LOST_A_PEER.search(c["cause"]) and not c["cause"].startswith(NO_WORD) for c in complaints)


def _killed(result: MpiResult, testbed: Testbed, complaints: Complaints) -> Iterator[Suspect]:
    """Ranks that a signal ended. Who still had something to say was ended with the others, as all are at the end."""
    if result.timed_out:
        return
    spoke = {int(complaint["rank"]) for complaint in complaints}
    for finding in result.findings:
        signal = _SIGNAL.search(finding.cause) if finding.cause.startswith(KILLED) else None
        number = int(signal.group(1)) if signal else 0
        if number in _BLAMED_SIGNALS and finding.rank is not None and finding.rank not in spoke:
            yield _suspect(testbed, finding.rank, finding.host or "", "rank-killed", signal=_BLAMED_SIGNALS[number])
    yield from _killed_by_srun(result, testbed, spoke, complaints)


def _killed_by_srun(result: MpiResult, testbed: Testbed, spoke: set[int], complaints: Complaints) -> Iterator[Suspect]:
    """srun kills all others with the first rank that ends badly, and says so of each: the first one counts."""
    tasks = [match for match in map(_BY_SRUN.search, result.lines) if match]
    yield from (
        _suspect(testbed, int(match["rank"]), match["host"], "rank-oom-killed")
        for match in tasks
        if match["how"] == "Out Of Memory"
    )
    began_otherwise = _gave_a_cause(complaints) or any(map(_SRUN_ENDS_ALL.search, result.lines))
    if tasks and tasks[0]["how"] == "Killed" and int(tasks[0]["rank"]) not in spoke and not began_otherwise:
        yield _suspect(testbed, int(tasks[0]["rank"]), tasks[0]["host"], "rank-killed", signal=_BLAMED_SIGNALS[9])


def _without_memory(result: MpiResult, testbed: Testbed) -> Iterator[Suspect]:
    """Ranks that had no memory to start with; the others were ended before they could say a word."""
    for match in filter(None, map(CANNOT_START.search, result.lines)):
        if OUT_OF_MEMORY.search(match["cause"]) and (match["rank"] or "?") != "?":
            cause = match["cause"]
            yield _suspect(testbed, int(match["rank"]), match["host"], "rank-out-of-memory", cause=cause)


def _failed_by_own_word(testbed: Testbed, complaints: Complaints) -> Iterator[Suspect]:
    """Ranks that say that their memory is full, or that their device fails, where others only lost them."""
    causes = {int(complaint["rank"]): complaint for complaint in complaints if _code(complaint["cause"])}
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


def _silent(testbed: Testbed, complaints: Complaints) -> Iterator[Suspect]:
    """Ranks of which the others say that they waited for them in vain."""
    for complaint in silences(complaints):
        ranks = list(_RANK_ON.finditer(complaint["cause"].removeprefix(NO_WORD)))
        if len(ranks) <= _MOST_NAMED:  # there may be more than a longer list says
            yield from (_suspect(testbed, int(match["rank"]), match["host"] or "", "rank-silent") for match in ranks)


def _missed_by_peers(result: MpiResult, testbed: Testbed, complaints: Complaints) -> Iterator[Suspect]:
    """Nodes to which others lost their connection, and of which no rank says a word: it went first."""
    if result.timed_out or _gave_a_cause(complaints) or any(map(CANNOT_START.search, result.lines)):
        return  # ranks that are ended lose each other
    by_address = {node.address: node.name for node in testbed.nodes}
    ranks = [node.name for node in testbed.nodes for _ in range(node.slots)]
    spoke = {node_of(int(complaint["rank"]), complaint["host"], testbed) for complaint in complaints}
    lost = [
        match["address"] for c in complaints if LOST_A_PEER.search(c["cause"]) for match in _PEER.finditer(c["cause"])
    ]
    for address in dict.fromkeys(lost):
        node = by_address.get(address, "")
        if node and node not in spoke:
            yield _suspect(testbed, ranks.index(node), node, "rank-lost", peers=lost.count(address))
