"""Blame for nodes that cannot reach each other, by the pairs that were tried. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.text.hostlist import host_list

MAX_LINKS = 3  # most links of one node that are named separately

Pair = tuple[str, str]  # from, to
Link = frozenset[str]  # the two ends, in any order
Side = frozenset[str]  # nodes that reach each other
Neighbours = Mapping[str, set[str]]


@dataclass(frozen=True, slots=True)
class TriedPairs:
    """The peers that each node tried, and errors by (from, to); a tried pair without an error
    worked.

    A peer need not have tried any node itself. All failed pairs must be in `peers`.
    """

    peers: Mapping[str, Collection[str]]
    failed: Mapping[Pair, Reason]

    @property
    def count(self) -> int:
        """The number of directed pairs that were tried: two for a link that both ends tried."""
        return sum(map(len, self.peers.values()))

    def both_ways(self) -> dict[str, set[str]]:
        """Return, for each node, the nodes that it tried or that tried it."""
        links = {name: set(peers) for name, peers in self.peers.items()}
        for name, peers in self.peers.items():
            for peer in peers:
                links.setdefault(peer, set()).add(name)
        return links


def merged(one: TriedPairs, other: TriedPairs) -> TriedPairs:
    """Return the pairs that were tried in either; a pair that failed in one of them failed.

    For a pair that failed in both, the error is that of `other`.
    """
    peers = {
        name: [*dict.fromkeys((*one.peers.get(name, ()), *other.peers.get(name, ())))]
        for name in (*one.peers, *other.peers)
    }
    return TriedPairs(peers, {**one.failed, **other.failed})


@dataclass(frozen=True, slots=True)
class Blame:
    """The suspects to name, and the nodes to set aside so that all remaining pairs work.

    `setup`: the reason if no tried pair works, so that no node is blamed; then all nodes except the
    first, the head, are set aside. Everything is empty if all pairs work.
    """

    suspects: tuple[Suspect, ...] = ()
    set_aside: tuple[str, ...] = ()
    setup: Reason | None = None


def blame(tried: TriedPairs) -> Blame:
    """Explain the failed pairs of `tried` by as few causes as possible.

    If nothing works, the set-up is to blame, not a node. If groups of two or more nodes reach each
    other but not other groups, there is one cut between them, whichever side is at fault. Within a
    group, a node that fails with more than half of the others is blamed. If a pair fails although
    both ends reach nearly all others, the link is blamed, and one end is set aside without blame.

    Pairs that were not tried are ignored. If only two nodes fail with each other, the link is
    blamed rather than a node. The first node, the head, is kept if another one can be left out
    instead.
    """
    # A link failed if one of its directions did
    failed = {frozenset(pair): error for pair, error in tried.failed.items()}
    if not failed:
        return Blame()
    peers = tried.both_ways()
    names = sorted(peers, key=natural)
    directed_pairs = sum(map(len, peers.values()))
    if len(names) > 2 and 2 * len(failed) == directed_pairs:
        error = next(iter(failed.values()))
        return Blame(
            set_aside=tuple(names[1:]),
            setup=Reason.of("no-pair-works", pairs=len(failed), problem=error),
        )
    sides = connected(_working(peers, failed))
    if len(sides) < 2:
        return _greedy(failed, peers)
    # Keep the largest side; among equal ones, the one with the head
    kept = max(sides, key=lambda side: (len(side), names[0] in side))
    others = Side().union(*sides) - kept
    # Nodes that reach no other are on no side: they stay here, to be blamed one by one
    left = kept.union(names) - others
    failed_there = {pair: why for pair, why in failed.items() if pair <= left}
    peers_there = {name: peers[name] & left for name in left}
    rest = _greedy(failed_there, peers_there)
    cut_off = [name for name in names if name in others]
    return Blame(
        suspects=(_cut_between(sides, failed), *rest.suspects),
        set_aside=(*cut_off, *rest.set_aside),
    )


def _working(peers: Neighbours, failed: Iterable[Link]) -> Neighbours:
    """Return the peers that each node reaches; a link that failed one way counts as failed both
    ways.
    """
    working = {name: set(others) for name, others in peers.items()}
    for a, b in failed:
        working[a].discard(b)
        working[b].discard(a)
    return working


def _cut_between(sides: Sequence[Side], failed: Mapping[Link, Reason]) -> Suspect:
    """Return the cut as a suspected link, with the first error across it.

    There may be no error, since each node tries only a sample of the others.
    """
    across = [error for pair, error in failed.items() if not any(map(pair.issubset, sides))]
    name, parties = cut_names(sides)
    problem: object = "not tried"
    if across:
        problem = across[0]
    return Suspect(
        kind="link",
        name=name,
        confidence=0.9,
        evidence=Reason.of("fabric-cut", parties=parties, pairs=len(across), problem=problem),
    )


def connected(neighbours: Neighbours) -> list[Side]:
    """Return the connected components of two and more nodes, in the order of their first nodes.

    `neighbours` must hold each link at both of its ends.
    """
    sides = []
    left = set(neighbours)
    while left:
        side = _reached_from(left.pop(), neighbours)
        left -= side
        if len(side) > 1:
            sides.append(side)
    return sorted(sides, key=lambda side: min(map(natural, side)))


def _reached_from(node: str, neighbours: Neighbours) -> Side:
    """Return all nodes that `node` reaches directly or through others, including itself."""
    side = set[str]()
    edge = {node}
    while edge:
        name = edge.pop()
        side.add(name)
        edge |= neighbours[name] - side
    return frozenset(side)


def cut_names(sides: Sequence[Side]) -> tuple[str, str]:
    """Return the name of a cut as a link, and its sides in words: ("a[1-2]--a[3-4]", "a[1-2] and
    a[3-4]").

    There must be at least one side.
    """
    lists = [host_list(sorted(side, key=natural)) for side in sides]
    *others, last = lists
    return "--".join(lists), f"{', '.join(others)} and {last}"


def _greedy(failed: dict[Link, Reason], peers: Neighbours) -> Blame:
    """Repeatedly blame and set aside the node with the most failed pairs, until no failed pair is
    left.

    Pairs with a node that was set aside no longer count against others. `peers` has all tried
    peers, which determine the confidence in a node.
    """
    suspects = []
    set_aside = []
    while failed:
        # Among equal nodes take the last: the first one is the head, which everything else needs
        degree = Counter(name for pair in failed for name in pair)
        name = max(degree, key=lambda name: (degree[name], natural(name)))
        own = {}  # never empty, so the loop ends
        others = {}
        for pair, error in failed.items():
            if name in pair:
                own[pair] = error
            else:
                others[pair] = error
        suspects += _suspects_of(name, own, peers)
        set_aside.append(name)
        failed = others
    return Blame(tuple(suspects), tuple(set_aside))


def _suspects_of(name: str, failed: Mapping[Link, Reason], peers: Neighbours) -> list[Suspect]:
    """Return the node, or the links that failed; too many links to name become one suspect.

    `failed` are the failed links of this node, at least one. The confidence in a node is the share
    of its peers that it fails with.
    """
    others = len(peers[name])
    count = len(failed)
    error = next(iter(failed.values()))
    evidence = Reason.of("node-ssh-failed", failed=count, others=others, problem=error)
    if others > 1 and count * 2 > others:
        confidence = round(count / others, 2)
        return [Suspect("node", name, confidence, evidence)]
    if count > MAX_LINKS:
        unreached = Link().union(*failed) - {name}
        far = host_list(sorted(unreached, key=natural))
        return [Suspect("link", f"{name}--{far}", 0.9, evidence)]
    confidence = 0.9
    if others <= 2:  # the other end may be as much to blame
        confidence = 0.5
    return [
        Suspect("link", link_name(*pair), confidence, Reason.of("link-ssh-failed", problem=error))
        for pair, error in failed.items()
    ]


def link_name(a: str, b: str) -> str:
    """Return the name of a link, whichever end comes first."""
    return "--".join(sorted((a, b), key=natural))


def natural(name: str) -> tuple[str, int]:
    """Return a sort key that puts node-10 after node-9: the name without trailing digits, and their
    number, -1 if there are none.
    """
    stem = name.rstrip("0123456789")
    number = name[len(stem) :]
    return stem, int(number or -1)
