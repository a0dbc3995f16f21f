"""A network of links of known speed, and the names of its nodes."""

from collections.abc import Callable, Sequence

from seatrial.checks.connectivity.reachability import Pair

FAST, SLOW = 2000.0, 24.0
FOUR = ("node-0", "node-1", "node-2", "node-3")


def network(link: Callable[[str, str], float]) -> Callable[[Sequence[Pair]], dict[Pair, float]]:
    """A `measure` over links of known speed."""
    return lambda pairs: {way: link(*way) for a, b in pairs for way in ((a, b), (b, a))}


def names(nodes: int) -> list[str]:
    return [f"node-{i}" for i in range(nodes)]
