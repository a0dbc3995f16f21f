"""Blame for nodes that cannot reach each other, by the pairs that were tried. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.text.hostlist import host_list

MAX_LINKS = 3  # of one node that are named one by one

Pair = tuple[str, str]  # from, to
Link = frozenset[str]  # its two ends
Side = frozenset[str]  # nodes that reach each other
Neighbours = Mapping[str, set[str]]


@dataclass(frozen=True, slots=True)
class TriedPairs:
    """The peers that each node tried, and the errors by (from, to); a tried pair without an error
    worked.

    A peer need not have tried anybody itself. Every failed pair must be among the tried ones.
    """

    peers: Mapping[str, Collection[str]]
    failed: Mapping[Pair, Reason]

    @property
    def count(self) -> int:
        """Directed pairs that were tried: two for a link that both of its ends tried."""
        return sum(map(len, self.peers.values()))

    def both_ways(self) -> dict[str, set[str]]:
        """Return the nodes that a node tried or that tried it, for every node on either side."""
        links = {name: set(peers) for name, peers in self.peers.items()}
        for name, peers in self.peers.items():
            for peer in peers:
                links.setdefault(peer, set()).add(name)
        return links


def merged(one: TriedPairs, other: TriedPairs) -> TriedPairs:
    """Return the pairs that were tried in one of the two; what failed in either failed.

    Each peer is listed once; of a pair that failed in both, the error is that of `other`.
    """
    peers = {
        name: [*dict.fromkeys((*one.peers.get(name, ()), *other.peers.get(name, ())))]
        for name in (*one.peers, *other.peers)
    }
    return TriedPairs(peers, {**one.failed, **other.failed})


@dataclass(frozen=True, slots=True)
class Blame:
    """`suspects` are named to people; `set_aside` are the nodes to take out so that all remaining
    pairs work.

    `setup`: why no node is blamed, if nothing works that was tried; None else. Then all nodes but
    the first, the head, are set aside. Empty if all pairs work.
    """

    suspects: tuple[Suspect, ...] = ()
    set_aside: tuple[str, ...] = ()
    setup: Reason | None = None


def blame(tried: TriedPairs) -> Blame:
    """Explain the failed pairs of `tried` by as few causes as possible.

    Nothing works: the set-up is to blame, and no node. Groups of two and more nodes that reach each
    other and not the other groups: one cut between them, whichever side is at fault. Within a
    group, a node that fails with more than half of the others is blamed itself. A pair that fails
    though both ends reach nearly all others is a broken link: the link is blamed, and one end
    is set aside without blame.

    Pairs that were not tried count for nothing. Of two nodes that do not reach each other, neither
    is blamed more than the link; the first node, the head, is kept where another one can be left
    out.
    """
    # What failed in one direction or both is one link
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
    # The largest side; of sides that are equal, the one with the head
    kept = max(sides, key=lambda side: (len(side), names[0] in side))
    others = Side().union(*sides) - kept
    # With the nodes that reach nobody: each of them is blamed by itself
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
    """Return the peers that each node reaches; a link that failed one way counts for neither."""
    working = {name: set(others) for name, others in peers.items()}
    for a, b in failed:
        working[a].discard(b)
        working[b].discard(a)
    return working


def _cut_between(sides: Sequence[Side], failed: Mapping[Link, Reason]) -> Suspect:
    """Return the cut as a link, with the first error across it.

    Each node tries a sample only, so there may be no pair across it, and no error.
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
    """Return the node with all that it reaches, directly or through others; the node alone if it
    reaches no other.
    """
    side = set[str]()
    edge = {node}
    while edge:
        name = edge.pop()
        side.add(name)
        edge |= neighbours[name] - side
    return frozenset(side)


def cut_names(sides: Sequence[Side]) -> tuple[str, str]:
    """Return the name of a cut between the sides as a link, and the sides in words.

    There must be one side at least: `("a[1-2]--a[3-4]", "a[1-2] and a[3-4]")` for two.
    """
    lists = [host_list(sorted(side, key=natural)) for side in sides]
    *others, last = lists
    return "--".join(lists), f"{', '.join(others)} and {last}"


def _greedy(failed: dict[Link, Reason], peers: Neighbours) -> Blame:
    """Blame the node with the most failed pairs, set it aside, and go on with the pairs that are
    left.

    That a node was set aside excuses the others for their pairs with it. `peers` stays whole: a
    node is measured by all that it tried.
    """
    suspects = []
    set_aside = []
    while failed:
        # Of equal ones the later one goes: the first node is the head, which all else runs on
        degree = Counter(name for pair in failed for name in pair)
        name = max(degree, key=lambda name: (degree[name], natural(name)))
        own = {}  # at least one, so that this ends
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
    """Return the node, or its links; more links than a person would look at are one finding.

    `failed` are the pairs of this node, at least one. The confidence in a node is the share of its
    peers that it fails with.
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
    """Return the same name for a link from whichever end."""
    return "--".join(sorted((a, b), key=natural))


def natural(name: str) -> tuple[str, int]:
    """Return a sort key that puts node-10 after node-9: the name without the digits at its end,
    and their number, -1 without any.
    """
    stem = name.rstrip("0123456789")
    number = name[len(stem) :]
    return stem, int(number or -1)
