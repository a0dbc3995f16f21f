"""Who did not enter which collective or transfer, from what ranks recorded before a job hung. Pure.

Reads the dumps of PyTorch's flight recorder, which are pickles, the lines of NCCL's watchdog in a
log, and the events `stuck` of seatrial's own probes. A dump comes from a node, so it is hostile: of
a pickle's operations only those that make plain values are read, and none that imports or calls
anything.

The ranks that wait form a wait-for graph, as in the detection of deadlocks (Holt, 1972,
https://doi.org/10.1145/356603.356607): a rank waits for those that have not entered what it has
entered. Those that others wait for, and that wait for no other themselves, are late. Of collectives
sequence numbers decide, not states: gloo's entries stay `scheduled`. Of transfers those in flight
decide, since ranks number them as each calls them.
"""

import io
import json
import pickle
import pickletools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seatrial.model.reason import Reason
from seatrial.readers.transfers import Call, Transfer, in_flight
from seatrial.text.lazy_pattern import lazy
from seatrial.text.printable import printable

Members = Mapping[str, set[int]]  # the ranks of each group
Entry = Mapping[str, Any]  # of a dump
Ranks = tuple[int, ...]
_MOST_BYTES = 64 << 20  # of a dump: 2,000 entries with stacks have some 5 MB
_MOST_OPERATIONS = 5_000_000
_MOST_RANKS = 200_000
_MOST_TEXT = 200
_PLAIN = frozenset(
    [
        "PROTO",
        "FRAME",
        "STOP",
        "MARK",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "BINFLOAT",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "EMPTY_DICT",
        "EMPTY_LIST",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "APPEND",
        "APPENDS",
        "SETITEM",
        "SETITEMS",
        "BINPUT",
        "LONG_BINPUT",
        "BINGET",
        "LONG_BINGET",
        "MEMOIZE",
    ]
)
# `[PG ID 0 PG GUID 0(default_pg) Rank 3]`, in PyTorch 2.3 `[PG 0 Rank 3]`
_WATCHDOG = lazy(
    r"\[PG (?:ID \d{1,9} PG GUID )?(?P<group>[^\s()]{1,80})(?:\((?P<name>[^\s()]{1,80})\))? "
    r"Rank (?P<rank>\d{1,7})\]"
)
# `WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000)`
_WORK = lazy(r"SeqNum=(?P<number>\d{1,15}), OpType=(?P<operation>\w{1,40})")
# `last enqueued work: 40267`, `Last enqueued NCCL work: 40267`
_STATUS = lazy(r"[Ll]ast enqueued (?:NCCL )?work: (?P<number>-?\d{1,15})")


class NoDump(ValueError):
    """The bytes are no dump of the flight recorder; the message says why."""


@dataclass(frozen=True)
class GroupTrace:
    """How far a rank has come in a group: the number of the last collective that it entered, and
    the names of some.
    """

    name: str
    ranks: Ranks
    collective: int
    operations: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RankTrace:
    """What one rank recorded: its groups by id, its transfers in flight with counts, and where it
    hangs, if known.
    """

    rank: int
    groups: Mapping[str, GroupTrace]
    transfers: Mapping[Transfer, int] = field(default_factory=dict)
    host: str = ""
    stands: str = ""
    waits: bool | None = None
    gpu: str = ""


Traces = Mapping[int, RankTrace]  # by rank


@dataclass(frozen=True)
class Late:
    """A rank that others wait for, and why it is named."""

    rank: int
    host: str
    reason: Reason


def read_dump(content: bytes, rank: int) -> RankTrace:
    """Read a rank's dump, a pickle or the JSON of `_dump_fr_trace_json`. Raises NoDump."""
    if len(content) > _MOST_BYTES:
        raise NoDump(f"has {len(content)} bytes, a dump at most {_MOST_BYTES}")
    values = _json(content) if content[:1] == b"{" else _unpickled(content)
    if not isinstance(values, dict) or not isinstance(values.get("entries"), list):
        raise NoDump("is no dump of the flight recorder: it has no list of entries")
    members = dict(_members(values.get("pg_config")))
    entries = [entry for entry in values["entries"] if isinstance(entry, dict)]
    groups = dict(_groups(entries, members))
    calls = filter(None, map(_call, entries))
    return RankTrace(rank, groups, in_flight(calls, members))


def _json(content: bytes) -> object:
    """Return the values of a dump in JSON. Raises NoDump for another text."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NoDump(f"is no JSON: {error}") from error


def _unpickled(content: bytes) -> object:
    """Return the plain values of a pickle. Raises NoDump for one that holds anything else."""
    try:
        for count, (operation, _, _) in enumerate(pickletools.genops(content)):
            if operation.name not in _PLAIN:
                raise NoDump(f"is a pickle that asks for {operation.name}, which is refused")
            if count > _MOST_OPERATIONS:
                raise NoDump(f"has more than {_MOST_OPERATIONS} operations")
        return _Unpickler(io.BytesIO(content)).load()
    except NoDump:
        raise
    except Exception as error:  # whatever a broken pickle makes the interpreter of it raise
        raise NoDump(f"is no whole pickle: {printable(str(error))[:_MOST_TEXT]}") from error


class _Unpickler(pickle._Unpickler):
    """Python's own interpreter of pickles, whose memo is a dictionary: an index in a pickle takes
    no memory.
    """

    def find_class(self, module: str, name: str) -> Any:
        raise NoDump(f"asks for {printable(module)}.{printable(name)}")

    def persistent_load(self, pid: Any) -> Any:
        raise NoDump("asks for an object outside of it")


def _call(entry: Entry) -> Call | None:
    """Return an entry as a point-to-point call, or what ends a batch of them; None for one of
    another shape.
    """
    number = entry.get("p2p_seq_id")
    group = _group_of(entry)
    if type(number) is not int or not group:
        return None
    operation = _text(entry.get("profiling_name"))
    is_done = entry.get("state") == "completed" or entry.get("retired") is True
    return Call(group=group[0], operation=operation, number=number, is_done=is_done)


def _group_of(entry: Entry) -> list[str]:
    """Return id and description of an entry's group; empty for one of another shape."""
    group = entry.get("process_group")
    if isinstance(group, tuple | list):
        return [_text(part) for part in group[:3]]
    return []


def _groups(
    entries: Iterable[Entry], members: Mapping[str, Ranks]
) -> Iterator[tuple[str, GroupTrace]]:
    """Yield each group of a dump with its id; entries of another shape are left out."""
    names = {}
    operations: dict[str, dict[int, str]] = {}
    for entry in entries:
        number = entry.get("collective_seq_id")
        described = _group_of(entry)
        if entry.get("is_p2p") is True or len(described) != 2:
            continue
        if type(number) is not int or not 0 < number < 1 << 62:
            continue
        group, name = described
        names[group] = name or group
        operations.setdefault(group, {})[number] = _text(entry.get("profiling_name"))
    for group, of_group in operations.items():
        ranks = members.get(group, ())
        last = max(of_group)
        yield group, GroupTrace(names[group], ranks, collective=last, operations=of_group)


def _members(config: object) -> Iterator[tuple[str, Ranks]]:
    """Yield the ranks of each group, as far as a dump knows them."""
    if not isinstance(config, dict):
        return
    for group in config.values():
        if not isinstance(group, dict):
            continue
        numbers = group.get("ranks")
        if isinstance(numbers, str):
            numbers = re.findall(r"\d{1,7}", numbers[:2_000_000])
        if isinstance(numbers, list):
            ranks = tuple(int(n) for n in numbers[:_MOST_RANKS] if str(n).isdigit())
            yield _text(group.get("name")), ranks


def _text(value: object) -> str:
    """Return a text of bounded length; empty for any other value."""
    if isinstance(value, str):
        return printable(value[:_MOST_TEXT])
    return ""


def read_watchdog(lines: Iterable[str]) -> list[RankTrace]:
    """Return what NCCL's watchdog says of each rank: the collective that timed out, and the last
    one enqueued.

    A line without a number does not say how far its rank has come, and is skipped.
    """
    groups_by_rank: dict[int, dict[str, GroupTrace]] = {}
    for line in lines:
        head = line[:4000]
        place = _WATCHDOG.search(head)
        work = _WORK.search(head)
        status = _STATUS.search(head)
        if not place or not (work or status) or len(groups_by_rank) > _MOST_RANKS:
            continue
        groups = groups_by_rank.setdefault(int(place["rank"]), {})
        group_id = place["group"]
        fresh = GroupTrace(place["name"] or group_id, (), collective=0)
        group = groups.get(group_id, fresh)
        operations = dict(group.operations)
        last = group.collective
        if work:
            number = int(work["number"])
            operations[number] = work["operation"]
            last = max(last, number)
        if status:
            last = max(last, int(status["number"]))
        groups[group_id] = replace(group, collective=last, operations=operations)
    return [RankTrace(rank, groups) for rank, groups in sorted(groups_by_rank.items())]


def late_ranks(traces: Sequence[RankTrace], ranks: int | None = None) -> list[Late]:
    """Return the ranks that the others wait for; empty if the traces do not show it.

    `ranks` is how many there should be.
    """
    known = {trace.rank: trace for trace in traces}
    members = _all_members(traces, ranks)
    waits = {rank: _waits_for(trace, known, members) for rank, trace in known.items()}
    awaited = set[int]().union(*waits.values())
    everyone = set[int]().union(*members.values(), range(ranks or 0))
    silent = sorted(everyone - known.keys())
    late = [
        Late(rank, host="", reason=Reason.of("rank-left-no-dump", rank=rank, place=""))
        for rank in silent[:64]
    ]
    roots = sorted(rank for rank in awaited if rank in known and not waits[rank])
    working = [rank for rank in roots if known[rank].waits is not True]  # gloo records no transfers
    if working or silent:  # ranks that wait, wait for those that are silent
        roots = working
    for rank in roots:
        trace = known[rank]
        reason = _not_entered(trace, known, members)
        late.append(Late(rank, trace.host, reason))
    return late or _not_communicating(known)


def _all_members(traces: Sequence[RankTrace], ranks: int | None) -> dict[str, set[int]]:
    """Return the ranks of each group, by all traces: those that it lists, and those that were seen
    in it.
    """
    members: dict[str, set[int]] = {}
    for trace in traces:
        for group_id, group in trace.groups.items():
            of_group = members.setdefault(group_id, set())
            of_group.update(group.ranks)
            of_group.add(trace.rank)
            if ranks and group.name == "default_pg":
                of_group.update(range(ranks))
        for transfer in trace.transfers:
            of_group = members.setdefault(transfer.group, set())
            of_group.add(transfer.sender)
            of_group.add(transfer.receiver)
    return members


def _waits_for(trace: RankTrace, known: Traces, members: Members) -> set[int]:
    """Return the ranks that have not entered a collective or a transfer that this one has
    entered.
    """
    awaited = {peer for peer, _ in _partners_missing(trace, known)}
    for group_id, group in trace.groups.items():
        others = members[group_id] & known.keys()
        awaited.update(rank for rank in others if _number(known[rank], group_id) < group.collective)
    return awaited


def _partners_missing(trace: RankTrace, known: Traces) -> Iterator[tuple[int, Transfer]]:
    """Yield each transfer that this rank has in flight more often than its partner has, with the
    partner.
    """
    for transfer, count in trace.transfers.items():
        peer = transfer.peer_of(trace.rank)
        if peer not in known:
            continue
        its_count = known[peer].transfers.get(transfer, 0)
        if its_count < count:
            yield peer, transfer


def _number(trace: RankTrace, group_id: str) -> int:
    """Return the number of the last collective that a rank entered in the group; 0 if it entered
    none.
    """
    group = trace.groups.get(group_id)
    return group.collective if group else 0


def _not_entered(trace: RankTrace, known: Traces, members: Members) -> Reason:
    """Return the collective or transfers that most others wait for this rank to enter."""
    ahead = {}
    for group_id, ranks in members.items():
        if trace.rank in ranks:
            own = _number(trace, group_id)
            others = ranks & known.keys()
            ahead[group_id] = sum(_number(known[rank], group_id) > own for rank in others)
    waiting: dict[int, Transfer] = {}  # by the rank that waits for this one
    for other in known.values():
        for peer, transfer in _partners_missing(other, known):
            if peer == trace.rank:
                waiting.setdefault(other.rank, transfer)
    group_id = max(ahead, key=lambda name: (ahead[name], name))
    if waiting and len(waiting) >= ahead[group_id]:
        peer = min(waiting)
        transfer = waiting[peer]
        operation = transfer.from_side_of(trace.rank)
        group = _group_name(known[peer], transfer)
        return _standing("transfer-not-entered", trace, operation=operation, group=group, peer=peer)
    return _collective_missing(trace, group_id, known, members)


def _collective_missing(trace: RankTrace, group_id: str, known: Traces, members: Members) -> Reason:
    """Return the collective that this rank did not enter, by the names that others recorded."""
    number = _number(trace, group_id) + 1
    others = members[group_id] & known.keys() - {trace.rank}
    traced = [known[rank].groups.get(group_id) for rank in sorted(others)]
    entered = [group for group in traced if group]
    operation = "collective"
    for group in entered:
        if number in group.operations:
            operation = group.operations[number]
            break
    _, _, name = operation.rpartition(":")
    group_name = entered[0].name or group_id
    return _standing(
        "collective-not-entered", trace, operation=name, number=number, group=group_name
    )


def _not_communicating(known: Traces) -> list[Late]:
    """Return the ranks that are not in communication, if the majority is."""
    away = [trace for trace in known.values() if trace.waits is False]
    waiting = sum(trace.waits is True for trace in known.values())
    if not waiting or len(away) >= waiting:
        return []
    return [
        Late(trace.rank, trace.host, _standing("rank-stands-elsewhere", trace)) for trace in away
    ]


def _standing(code: str, trace: RankTrace, **values: object) -> Reason:
    """Return the reason of a rank that is late, with where it stands."""
    place = f" on {trace.host}" if trace.host else ""
    stands = f"; it stands in {trace.stands}" if trace.stands else ""
    return Reason.of(code, rank=trace.rank, place=place, stands=stands, gpu=trace.gpu, **values)


def _group_name(trace: RankTrace, transfer: Transfer) -> str:
    """Return the name of a transfer's group, else its id."""
    group = trace.groups.get(transfer.group)
    if group and group.name:
        return group.name
    return transfer.group


def circular_wait(traces: Sequence[RankTrace]) -> Reason | None:
    """Say which ranks wait for each other in a circle, if none of them is late; None without a
    circle.
    """
    known = {trace.rank: trace for trace in traces}
    members = _all_members(traces, None)
    waiting = [trace for trace in traces if _waits_for(trace, known, members)]
    if not waiting:
        return None
    groups = set[str]()
    for trace in waiting:
        groups.update(group.name for group in trace.groups.values())
        groups.update(_group_name(trace, transfer) for transfer in trace.transfers)
    ranks = ", ".join(str(trace.rank) for trace in waiting[:16])
    names = ", ".join(sorted(groups)[:8])
    return Reason.of("ranks-wait-in-a-circle", ranks=ranks, groups=names)
