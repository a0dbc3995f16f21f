"""Who is to blame when nodes cannot reach each other. Pure functions over the pairs that were tried."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.text.hostlist import host_list

ALL_PAIRS_UP_TO = 32  # nodes; above, pairs grow with the square and a ring plus a sample finds the same nodes
SAMPLED_PEERS = 8  # random peers per node above that, besides its neighbour in the ring
MAX_LINKS = 3  # of one node that are named one by one

Pair = tuple[str, str]  # from, to


def pairs_to_try(names: Sequence[str], seed: str) -> dict[str, list[str]]:
    """The peers that each node tries: all of them for small testbeds, else the next in a ring and a random sample.

    The sample follows from `seed` (the run id), so that a run can be repeated by hand.
    """
    if len(names) <= ALL_PAIRS_UP_TO:
        return {name: [peer for peer in names if peer != name] for name in names}
    chosen = random.Random(seed)
    tries = {}
    for index, name in enumerate(names):
        following = names[(index + 1) % len(names)]
        others = [peer for peer in names if peer not in (name, following)]
        tries[name] = [following, *chosen.sample(others, SAMPLED_PEERS)]
    return tries


@dataclass(frozen=True, slots=True)
class Blame:
    """`suspects` are named to people; `set_aside` are the nodes to take out so that all remaining pairs work.

    `setup`: why nobody is blamed, where nothing works that was tried; "" else.
    """

    suspects: tuple[Suspect, ...] = ()
    set_aside: tuple[str, ...] = ()
    setup: str = ""


def blame(tried: Mapping[Pair, str]) -> Blame:
    """Explain the failed pairs of `tried` (error text by pair, "" where it worked) by as few causes as possible.

    Nothing works: the set-up is to blame, and no node. Groups of two and more nodes that reach each other and not the
    other groups: one cut between them, and nobody can tell which side is at fault. Within a group, a node that fails
    with more than half of the others is blamed itself. A pair that fails though both ends reach nearly everybody else
    is a broken link: the link is blamed, and one end is set aside without blame.
    """
    names = sorted({name for pair in tried for name in pair}, key=_natural)
    failed = {frozenset(pair): error for pair, error in tried.items() if error}
    if len(names) > 2 and len(failed) == len({frozenset(pair) for pair in tried}):
        error = next(iter(failed.values()))
        return Blame((), tuple(names[1:]), Reason.of("no-pair-works", pairs=len(failed), problem=error))
    sides = _sides(names, {frozenset(pair) for pair in tried} - failed.keys())
    if len(sides) < 2:
        return _greedy(failed, _peers(tried))
    across = {pair: error for pair, error in failed.items() if not any(pair <= side for side in sides)}
    kept = max(sides, key=lambda side: (len(side), names[0] in side))
    cut_off = [name for name in names if any(name in side for side in sides) and name not in kept]
    left = kept | frozenset(names).difference(*sides)
    rest = _greedy(
        {pair: why for pair, why in failed.items() if pair <= left}, _peers(p for p in tried if left >= set(p))
    )
    return Blame((_cut(sides, across), *rest.suspects), (*cut_off, *rest.set_aside))


def _sides(names: Sequence[str], working: Set[frozenset[str]]) -> list[frozenset[str]]:
    """The groups of two and more nodes that reach each other, directly or by way of others, and no other group."""
    neighbours: dict[str, set[str]] = {name: set() for name in names}
    for a, b in map(tuple, working):
        neighbours[a].add(b)
        neighbours[b].add(a)
    sides: list[frozenset[str]] = []
    left = set(names)
    while left:
        side, edge = set[str](), [left.pop()]
        while edge:
            name = edge.pop()
            side.add(name)
            edge += neighbours[name] - side
        left -= side
        sides.append(frozenset(side))
    return sorted((side for side in sides if len(side) > 1), key=lambda side: _natural(min(side, key=_natural)))


def _cut(sides: Sequence[frozenset[str]], across: Mapping[frozenset[str], str]) -> Suspect:
    lists = [host_list(sorted(side, key=_natural)) for side in sides]
    parties = f"{', '.join(lists[:-1])} and {lists[-1]}"
    error = next(iter(across.values()), "not tried")
    evidence = Reason.of("fabric-cut", parties=parties, pairs=len(across), problem=error)
    return Suspect("link", "--".join(lists), 0.9, evidence)


def _greedy(failed: dict[frozenset[str], str], peers: Mapping[str, set[str]]) -> Blame:
    suspects: list[Suspect] = []
    set_aside: list[str] = []
    while failed:
        degree = Counter(name for pair in failed for name in pair)
        # Of two that are equal the later one goes: the first node is the head, which everything else runs on.
        name = max(degree, key=lambda node: (degree[node], _natural(node)))
        own = {pair: error for pair, error in failed.items() if name in pair}
        suspects += _suspects_of(name, own, peers)
        set_aside.append(name)
        failed = {pair: error for pair, error in failed.items() if name not in pair}
    return Blame(tuple(suspects), tuple(set_aside))


def _suspects_of(name: str, failed: Mapping[frozenset[str], str], peers: Mapping[str, set[str]]) -> list[Suspect]:
    """The node, or its links; more links than a person would look at are one finding."""
    others = len(peers[name])
    error = next(iter(failed.values()))
    if others > 1 and len(failed) * 2 > others:
        evidence = Reason.of("node-ssh-failed", failed=len(failed), others=others, problem=error)
        return [Suspect("node", name, round(len(failed) / others, 2), evidence)]
    if len(failed) > MAX_LINKS:
        far = host_list(sorted({other for pair in failed for other in pair - {name}}, key=_natural))
        evidence = Reason.of("links-ssh-failed", failed=len(failed), others=others, problem=error)
        return [Suspect("link", f"{name}--{far}", 0.9, evidence)]
    return [
        Suspect("link", link_name(*pair), 0.9 if others > 2 else 0.5, Reason.of("link-ssh-failed", problem=error))
        for pair, error in failed.items()
    ]


def link_name(a: str, b: str) -> str:
    """One name for a link, whichever end it is seen from."""
    return "--".join(sorted((a, b), key=_natural))


def _peers(tried: Iterable[Pair]) -> dict[str, set[str]]:
    peers: dict[str, set[str]] = {}
    for a, b in tried:
        peers.setdefault(a, set()).add(b)
        peers.setdefault(b, set()).add(a)
    return peers


def _natural(name: str) -> tuple[str, int]:
    """node-10 after node-9."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or -1)
