"""Blame for nodes that cannot reach each other, by the pairs that were tried. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Suspect
from seatrial.text.hostlist import host_list

MAX_LINKS = 3  # of one node that are named one by one

Pair = tuple[str, str]  # from, to


@dataclass(frozen=True, slots=True)
class TriedPairs:
    """The peers that each node tried, and the errors by (from, to); a tried pair without an error
    worked.
    """

    peers: Mapping[str, Collection[str]]
    failed: Mapping[Pair, Reason]

    @property
    def count(self) -> int:
        """Directed pairs that were tried."""
        return sum(map(len, self.peers.values()))

    def both_ways(self) -> dict[str, set[str]]:
        """Return the nodes that a node tried or that tried it."""
        links: dict[str, set[str]] = {name: set(peers) for name, peers in self.peers.items()}
        for name, peers in self.peers.items():
            for peer in peers:
                links.setdefault(peer, set()).add(name)
        return links


def merged(one: TriedPairs, other: TriedPairs) -> TriedPairs:
    """Return the pairs that were tried in one of the two; what failed in either failed."""
    names = dict.fromkeys((*one.peers, *other.peers))
    peers = {
        name: [*dict.fromkeys((*one.peers.get(name, ()), *other.peers.get(name, ())))]
        for name in names
    }
    return TriedPairs(peers, {**one.failed, **other.failed})


@dataclass(frozen=True, slots=True)
class Blame:
    """`suspects` are named to people; `set_aside` are the nodes to take out so that all remaining
    pairs work.

    `setup`: why no node is blamed, if nothing works that was tried; None else.
    """

    suspects: tuple[Suspect, ...] = ()
    set_aside: tuple[str, ...] = ()
    setup: Reason | None = None


def blame(tried: TriedPairs) -> Blame:
    """Explain the failed pairs of `tried` by as few causes as possible.

    Nothing works: the set-up is to blame, and no node. Groups of two and more nodes that reach each
    other and not the other groups: one cut between them, whichever side is at fault. Within a
    group, a node that fails with more than half of the others is blamed itself. A pair that fails
    though both ends reach nearly everybody else is a broken link: the link is blamed, and one end
    is set aside without blame.
    """
    failed = {frozenset(pair): error for pair, error in tried.failed.items()}
    if not failed:
        return Blame()
    peers = tried.both_ways()
    names = sorted(peers, key=natural)
    if len(names) > 2 and 2 * len(failed) == sum(map(len, peers.values())):
        error = next(iter(failed.values()))
        return Blame(
            (), tuple(names[1:]), Reason.of("no-pair-works", pairs=len(failed), problem=error)
        )
    working = {name: set(others) for name, others in peers.items()}
    for a, b in map(tuple, failed):
        working[a].discard(b)
        working[b].discard(a)
    sides = connected(working)
    if len(sides) < 2:
        return _greedy(failed, peers)
    across = {
        pair: error for pair, error in failed.items() if not any(pair <= side for side in sides)
    }
    kept = max(sides, key=lambda side: (len(side), names[0] in side))
    cut_off = [name for name in names if any(name in side for side in sides) and name not in kept]
    left = kept | frozenset(names).difference(*sides)
    rest = _greedy(
        {pair: why for pair, why in failed.items() if pair <= left},
        {name: peers[name] & left for name in left},
    )
    name, parties = cut_names(sides)
    error = next(iter(across.values()), uncoded("not tried"))
    cut = Suspect(
        kind="link",
        name=name,
        confidence=0.9,
        evidence=Reason.of("fabric-cut", parties=parties, pairs=len(across), problem=error),
    )
    return Blame((cut, *rest.suspects), (*cut_off, *rest.set_aside))


def connected(neighbours: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """Return the connected components of two and more nodes."""
    sides: list[frozenset[str]] = []
    left = set(neighbours)
    while left:
        side = set[str]()
        edge = {left.pop()}
        while edge:
            name = edge.pop()
            side.add(name)
            edge |= neighbours[name] - side
        left -= side
        sides.append(frozenset(side))
    return sorted(
        (side for side in sides if len(side) > 1), key=lambda side: natural(min(side, key=natural))
    )


def cut_names(sides: Sequence[frozenset[str]]) -> tuple[str, str]:
    """Return the name of a cut between the sides as a link, and the sides in words."""
    lists = [host_list(sorted(side, key=natural)) for side in sides]
    return "--".join(lists), f"{', '.join(lists[:-1])} and {lists[-1]}"


def _greedy(failed: dict[frozenset[str], Reason], peers: Mapping[str, set[str]]) -> Blame:
    suspects: list[Suspect] = []
    set_aside: list[str] = []
    while failed:
        degree = Counter(name for pair in failed for name in pair)
        # Of two that are equal the later one goes: the first node is the head, which everything
        # else runs on.
        name = max(degree, key=lambda node: (degree[node], natural(node)))
        own = {pair: error for pair, error in failed.items() if name in pair}
        suspects += _suspects_of(name, own, peers)
        set_aside.append(name)
        failed = {pair: error for pair, error in failed.items() if name not in pair}
    return Blame(tuple(suspects), tuple(set_aside))


def _suspects_of(
    name: str, failed: Mapping[frozenset[str], Reason], peers: Mapping[str, set[str]]
) -> list[Suspect]:
    """Return the node, or its links; more links than a person would look at are one finding."""
    others = len(peers[name])
    error = next(iter(failed.values()))
    if others > 1 and len(failed) * 2 > others:
        evidence = Reason.of("node-ssh-failed", failed=len(failed), others=others, problem=error)
        return [
            Suspect(
                kind="node", name=name, confidence=round(len(failed) / others, 2), evidence=evidence
            )
        ]
    if len(failed) > MAX_LINKS:
        far = host_list(sorted({other for pair in failed for other in pair - {name}}, key=natural))
        evidence = Reason.of("node-ssh-failed", failed=len(failed), others=others, problem=error)
        return [Suspect(kind="link", name=f"{name}--{far}", confidence=0.9, evidence=evidence)]
    return [
        Suspect(
            kind="link",
            name=link_name(*pair),
            confidence=0.9 if others > 2 else 0.5,
            evidence=Reason.of("link-ssh-failed", problem=error),
        )
        for pair, error in failed.items()
    ]


def link_name(a: str, b: str) -> str:
    """Return the same name for a link from whichever end."""
    return "--".join(sorted((a, b), key=natural))


def natural(name: str) -> tuple[str, int]:
    """Return a sort key that puts node-10 after node-9."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or -1)
