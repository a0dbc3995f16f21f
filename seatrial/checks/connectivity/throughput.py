"""Plans of TCP streams between nodes. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from seatrial.checks.connectivity.rates import (
    DOUBTFUL_FACTOR,
    Streams,
    egress,
    ingress,
    keep_best,
    slow_links,
    slow_nodes,
)
from seatrial.checks.connectivity.reachability import Link, Pair, link_name

Batches = list[list[Pair]]  # lists of pairs to measure at once
# Largest number of nodes whose streams are measured one by one, as they may share cores
ONE_BY_ONE_UP_TO = 8
AT_ONCE = 32  # streams measured at once with more nodes
SECOND_TRIES = 2
_WEEK = 7  # days: a weekly run must not have the same partner every time
_TURNS = 16  # most repeats with one healthy node in a round, to bound the time

Pairs = Sequence[Pair]
Measure = Callable[[Pairs], Streams]


@dataclass(frozen=True, slots=True)
class Plan:
    """Pairs of the nodes `names`: neighbours in a ring, and a partner that changes each day.

    All links are measured after as many days as there are nodes. `day` is any count of days; None:
    no changing partner. Many nodes of `one_machine` get one neighbour each, since all links are the
    same bridge and streams are measured one after another.
    """

    names: Sequence[str]
    one_machine: bool = False
    day: int | None = None

    def meetings(self) -> Batches:
        """Return lists of disjoint pairs of nodes."""
        many = len(self.names) > ONE_BY_ONE_UP_TO
        ring = _ring(self.names, every_other=self.one_machine and many)
        if self.day is None or self.one_machine:
            return ring
        met = _links_of(ring)
        new = [pair for pair in partners(self.names, self.day) if frozenset(pair) not in met]
        return [*ring, new]

    def rounds(self) -> Batches:
        """Return the disjoint pairs in batches that may be measured at once."""
        return self.split(self.meetings())

    def split(self, lists: Iterable[Pairs]) -> Batches:
        """Split lists of disjoint pairs into batches that may be measured at once."""
        batches: Batches = []
        for disjoint in lists:
            batches += self.batches(disjoint)
        return batches

    def batches(self, pairs: Pairs) -> Batches:
        """Split disjoint pairs into batches that may be measured at once; on one machine, one pair
        each.
        """
        size = AT_ONCE
        if self.one_machine or len(self.names) <= ONE_BY_ONE_UP_TO:
            size = 1
        return [list(pairs[start : start + size]) for start in range(0, len(pairs), size)]

    def not_measured(self, streams: Streams) -> list[str]:
        """Return the planned links without a stream in one or both directions."""
        return [link_name(a, b) for a, b in _lacking(self.rounds(), streams)]


def _lacking(batches: Iterable[Pairs], streams: Streams) -> Iterator[Pair]:
    """Yield the pairs without a stream in one or both directions."""
    for pairs in batches:
        for a, b in pairs:
            if (a, b) not in streams or (b, a) not in streams:
                yield a, b


def _links_of(lists: Iterable[Pairs]) -> set[Link]:
    links = set[Link]()
    for pairs in lists:
        links.update(map(frozenset, pairs))
    return links


def partners(names: Sequence[str], day: int) -> list[Pair]:
    """Return the nodes as disjoint pairs; with an odd number, one node is left out.

    Rounds of a tournament by the circle method: the last node is fixed and the others rotate.
    """
    seats = [*names]
    if len(names) % 2:
        seats.append("")
    if len(seats) < 2:
        return []
    circle = len(seats) - 1
    period = circle
    if circle % _WEEK == 0:
        period += 1
    turn = day % period
    pairs = [(seats[turn % circle], seats[-1])]
    pairs += [  # clockwise and counterclockwise from there
        (seats[(turn + i) % circle], seats[(turn - i) % circle]) for i in range(1, len(seats) // 2)
    ]
    return [pair for pair in pairs if all(pair)]


def explore(
    plan: Plan,
    measure: Measure,
    batches: Sequence[Pairs] | None = None,
    first: Mapping[Pair, float] = {},
) -> Streams:
    """Measure the planned streams, or those of `batches`, then repeat those of slow nodes and
    links.

    Each node and link that looks slow is measured up to SECOND_TRIES more times with healthy nodes.
    `measure` takes disjoint pairs, which may run at once, and returns the streams in both
    directions. Links are slow relative to the `first` streams too.
    """
    if batches is None:
        batches = plan.rounds()
    streams: dict[Pair, float] = {}
    best = dict(first)
    tries: Counter[frozenset[str]] = Counter()
    second: Counter[str] = Counter()  # number of repeats by node

    def try_pairs(pairs: Pairs) -> None:
        """Measure disjoint pairs, and keep the best rates."""
        tries.update(frozenset(pair) for pair in pairs)
        new = measure(pairs)
        keep_best(streams, new)
        keep_best(best, new)

    for pairs in batches:
        try_pairs(pairs)
    lacking = list(_lacking(batches, streams))
    for pair in lacking[:_TURNS]:  # some may not have begun in time, as too many started at once
        try_pairs([pair])
    while True:
        tried = [name for name, times in second.items() if times >= SECOND_TRIES]
        of_nodes = second_tries(streams, tried)
        for pairs in of_nodes:
            second.update(name for name, _ in pairs)
        slow = slow_links(best, DOUBTFUL_FACTOR)
        links = [pair for pair in slow if tries[frozenset(pair)] <= SECOND_TRIES]
        if not of_nodes and not links:
            return streams
        of_links = _disjoint(links)
        for pairs in plan.split([*of_nodes, *of_links]):
            try_pairs(pairs)


def _disjoint(pairs: Iterable[Pair]) -> Batches:
    """Group the links of `pairs`, each once, into lists in which no node occurs twice."""
    lists: Batches = []
    for link in dict.fromkeys(map(frozenset, pairs)):
        a, b = sorted(link)
        for disjoint in lists:
            if all(link.isdisjoint(pair) for pair in disjoint):
                disjoint.append((a, b))
                break
        else:
            lists.append([(a, b)])
    return lists[:_TURNS]


def _ring(names: Sequence[str], every_other: bool) -> Batches:
    """Return all or every other edge of the ring, as up to three lists of disjoint edges."""
    if len(names) < 2:
        return []
    following = names[1:]
    if len(names) > 2:
        following = [*following, names[0]]
    edges = list(zip(names, following, strict=False))
    even = edges[0::2]
    odd = edges[1::2]
    last = []
    # In an odd ring the last edge shares a node with the first
    if len(edges) > 1 and len(edges) % 2:
        last = [even.pop()]
    if every_other:
        return [even, last]
    return [even, odd, last]


def second_tries(streams: Streams, tried: Collection[str]) -> Batches:
    """Pair each node that looks slow with a healthy one, preferably a new partner, in lists of
    disjoint pairs.

    A slow first try may be due to a stolen time slice or to the peer. With fewer healthy nodes than
    slow ones there are several lists, so that every slow node is repeated.
    """
    slow = slow_nodes(streams, DOUBTFUL_FACTOR)
    doubtful = [name for name in slow if name not in tried]
    receiving = ingress(streams)
    free = [name for name in egress(streams) if name not in slow and name in receiving]
    if not free:
        return []
    starts = range(0, len(doubtful), len(free))[:_TURNS]
    return [
        _with_new_partners(doubtful[start : start + len(free)], free, streams) for start in starts
    ]


def _with_new_partners(
    doubtful: Sequence[str], healthy: Sequence[str], streams: Streams
) -> list[Pair]:
    """Pair each doubtful node with a different healthy one, if possible with a new partner."""
    left = list(healthy)
    pairs = []
    for name in doubtful:
        partner = next((peer for peer in left if (name, peer) not in streams), left[0])
        left.remove(partner)
        pairs.append((name, partner))
    return pairs


def once_more(plan: Plan, doubtful: Sequence[str], nth: int) -> Batches:
    """Pair each doubtful node with its planned partners, in batches of disjoint pairs.

    Nodes with one neighbour, or with doubtful neighbours only, get one more partner, which depends
    on `nth`.
    """
    requested = set(doubtful)
    lists = []
    for disjoint in plan.meetings():
        lists.append([pair for pair in disjoint if requested.intersection(pair)])
    links = _links_of(lists)
    neighbours = Counter[str]()
    trusted = set[str]()  # nodes with a neighbour that is not in doubt
    for link in links:
        neighbours.update(link)
        if not requested.issuperset(link):
            trusted |= link
    lonely = [name for name in doubtful if neighbours[name] == 1 or name not in trusted]
    free = [name for name in plan.names if name not in requested]
    if free:
        first = nth % len(free)
        turned = free[first:] + free[:first]
        for start in range(0, len(lonely), len(free)):
            pairs = zip(lonely[start:], turned, strict=False)
            lists.append([pair for pair in pairs if frozenset(pair) not in links])
    return plan.split(lists)
