"""Who is to blame when nodes cannot reach each other. Pure functions over the pairs that were tried."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seatrial.model.reason import Reason
from seatrial.model.result import Suspect

ALL_PAIRS_UP_TO = 32  # nodes; above, pairs grow with the square and a ring plus a sample finds the same nodes
SAMPLED_PEERS = 8  # random peers per node above that, besides its neighbour in the ring

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
    """`suspects` are named to people; `set_aside` are the nodes to take out so that all remaining pairs work."""

    suspects: tuple[Suspect, ...]
    set_aside: tuple[str, ...]


def blame(tried: Mapping[Pair, str]) -> Blame:
    """Explain the failed pairs of `tried` (error text by pair, "" where it worked) by as few nodes as possible.

    A node that fails with more than half of the others is blamed itself. A pair that fails though both ends reach
    nearly everybody else is a broken link: the link is blamed, and one end is set aside without blame.
    """
    failed = {frozenset(pair): error for pair, error in tried.items() if error}
    peers = _peers(tried)
    suspects: list[Suspect] = []
    set_aside: list[str] = []
    while failed:
        degree = {name: sum(name in pair for pair in failed) for pair in failed for name in pair}
        # Of two that are equal the later one goes: the first node is the head, which everything else runs on.
        name = max(degree, key=lambda node: (degree[node], _natural(node)))
        own = {pair: error for pair, error in failed.items() if name in pair}
        suspects += _suspects_of(name, own, peers)
        set_aside.append(name)
        failed = {pair: error for pair, error in failed.items() if name not in pair}
    return Blame(tuple(suspects), tuple(set_aside))


def _suspects_of(name: str, failed: Mapping[frozenset[str], str], peers: Mapping[str, set[str]]) -> list[Suspect]:
    others = len(peers[name])
    if others > 1 and len(failed) * 2 > others:
        error = next(iter(failed.values()))
        evidence = Reason.of("node-ssh-failed", failed=len(failed), others=others, problem=error)
        return [Suspect("node", name, round(len(failed) / others, 2), evidence)]
    return [
        Suspect("link", link_name(*pair), 0.9 if others > 2 else 0.5, Reason.of("link-ssh-failed", problem=error))
        for pair, error in failed.items()
    ]


def link_name(a: str, b: str) -> str:
    """One name for a link, whichever end it is seen from."""
    return "--".join(sorted((a, b), key=_natural))


def _peers(tried: Mapping[Pair, str]) -> dict[str, set[str]]:
    peers: dict[str, set[str]] = {}
    for a, b in tried:
        peers.setdefault(a, set()).add(b)
        peers.setdefault(b, set()).add(a)
    return peers


def _natural(name: str) -> tuple[str, int]:
    """node-10 after node-9."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or -1)
