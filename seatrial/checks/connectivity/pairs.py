"""Which nodes try which others: connections between all of them, logins only where the later steps log in. Pure."""

import random
from collections.abc import Iterable, Mapping, Sequence

from seatrial.checks.connectivity.reachability import Pair

MAX_PEERS = 2048  # that one node tries; above, the list of peers alone is gigabytes that the control host sends
PAIRS_PER_CORE = 128  # where all nodes share the cores of one machine: some seconds of sshd's work
TREE_RADIX = 64  # of the tree in which Open MPI's daemons start each other (routed_radix, plm_rsh)
WITNESSES = 3  # nodes that try a login which failed for another one
MAX_SECOND_LOGINS = 16  # failed logins that witnesses try

Peers = Mapping[str, Sequence[str]]  # whom each node tries


def peers_to_reach(names: Sequence[str], seed: str, shared_cores: int | None = None) -> dict[str, list[str]]:
    """The peers that each node connects to: all others, each node from its own successor on so that none is flooded.

    A sample where there are more than MAX_PEERS, or where all nodes share `shared_cores`: the next in a ring and random
    ones, which follow from `seed` (the run id), so that a run can be repeated by hand.
    """
    most = MAX_PEERS if shared_cores is None else shared_cores * PAIRS_PER_CORE // max(1, len(names))
    count = min(len(names) - 1, max(2, most))
    chosen = random.Random(seed)
    return {name: _peers_of(index, names, count, chosen) for index, name in enumerate(names)}


def _peers_of(index: int, names: Sequence[str], count: int, chosen: random.Random) -> list[str]:
    following = [*names[index + 1 :], *names[:index]]
    if count >= len(following):
        return following
    return [following[0], *chosen.sample(following[1:], count - 1)]


def peers_to_log_in_to(names: Sequence[str], shared_cores: int | None = None) -> dict[str, list[str]]:
    """Where MPI logs in: from the head to every node, and along the tree in which its daemons start each other.

    Where all nodes share the cores of one machine, along the tree alone.
    """
    logins: dict[str, list[str]] = {}
    for index, name in enumerate(names[1:], 1):
        parent = names[(index - 1) // TREE_RADIX]
        parents = [parent] if shared_cores is not None else dict.fromkeys((names[0], parent))
        for start in parents:
            logins.setdefault(start, []).append(name)
    return logins


def second_logins(names: Sequence[str], failed: Iterable[Pair]) -> dict[str, list[str]]:
    """Who else tries the logins that failed, so that a node, and not the link to the first that tried, is blamed."""
    logins: dict[str, list[str]] = {}
    place = {name: index for index, name in enumerate(names)}
    for first, target in list(failed)[:MAX_SECOND_LOGINS]:
        start = place[target] + 1
        others = [name for name in [*names[start:], *names[: start - 1]] if name != first]
        for witness in others[:WITNESSES]:
            logins.setdefault(witness, []).append(target)
    return logins
