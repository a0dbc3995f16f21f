"""Point-to-point calls of ranks that hang: the sends and receives in flight, from the flight
recorder's entries. Pure.

An entry names ranks of its group: `nccl:send 0->1`, `nccl:recv 1<-0`, or `nccl:recv 1<-?` for one
from any rank. Calls of a batch stay `scheduled` for ever
(https://github.com/pytorch/pytorch/issues/137969): how they ended stands in the entry `coalesced`
behind them. gloo records no point-to-point calls.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_CALL = re.compile(
    r"(?:\w{1,20}:)?(?:send (?P<sender>\d{1,7})->(?P<to>\d{1,7})|recv "
    r"(?P<at>\d{1,7})<-(?P<source>\d{1,7}))\Z"
)
_BATCH_ENDS = ":coalesced"


@dataclass(frozen=True)
class Call:
    """An entry of the flight recorder: its group, operation, number among the group's calls, and
    whether it is done.
    """

    group: str
    operation: str
    number: int
    is_done: bool


@dataclass(frozen=True)
class Transfer:
    """Data from one rank of the job to another one, in a group."""

    group: str
    sender: int
    receiver: int

    def peer_of(self, rank: int) -> int:
        """Return the rank at the other end."""
        return self.receiver if rank == self.sender else self.sender

    def from_side_of(self, rank: int) -> str:
        """Say what this rank calls for the transfer: "send to rank 3"."""
        if rank == self.sender:
            return f"send to rank {self.receiver}"
        return f"receive from rank {self.sender}"


def in_flight(calls: Iterable[Call], members: Mapping[str, Sequence[int]]) -> Counter[Transfer]:
    """Return the transfers that a rank has called and that are not done, by how often.

    `members` are each group's ranks.
    """
    counts: Counter[Transfer] = Counter()
    batches: dict[str, list[Transfer]] = defaultdict(list)
    numbers: dict[str, int] = {}
    for call in calls:
        batch = batches[call.group]
        transfer = _transfer_of(call, members.get(call.group, ()))
        if transfer is None or numbers.get(call.group) != call.number:
            if not (call.is_done and call.operation.endswith(_BATCH_ENDS)):
                counts.update(batch)
            batch.clear()
        numbers[call.group] = call.number
        if transfer and not call.is_done:
            batch.append(transfer)
    for batch in batches.values():
        counts.update(batch)
    return counts


def _transfer_of(call: Call, ranks: Sequence[int]) -> Transfer | None:
    """Return the transfer of a send or receive; a group whose ranks are unknown is taken for that
    of all ranks.
    """
    read = _CALL.match(call.operation)
    if not read:
        return None
    ends = [int(read["sender"] or read["source"]), int(read["to"] or read["at"])]
    if not ranks:
        return Transfer(call.group, *ends)
    if max(ends) >= len(ranks):
        return None
    sender, receiver = (ranks[end] for end in ends)
    return Transfer(call.group, sender, receiver)
