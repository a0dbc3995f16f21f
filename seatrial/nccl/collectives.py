"""The collectives of nccl-tests: one table from which the parser, the gloo probe, physics and the
sweep derive theirs.

Sources: nccl-tests doc/PERFORMANCE.md, and GetCollByteCount, InitData and GetBw of each
src/<collective>.cu. The module is copied to the nodes with the probes, so it imports the standard
library alone and runs on older Pythons. With n ranks, g on each node; sizes and shares are of one
message, the `size` of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

_ALIGN_BYTES = 16  # of each rank's part

Share = Callable[[int, int], float]


@dataclass(frozen=True)
class Factor:
    """busbw / algbw: `scale` times (n-1)/n, or `scale` alone where the number of ranks does not
    matter.
    """

    scale: int
    depends_on_ranks: bool = True

    def __call__(self, ranks: int) -> float:
        return self.scale * (ranks - 1) / ranks if self.depends_on_ranks else float(self.scale)


@dataclass(frozen=True)
class Shape:
    """Elements that one rank sends and receives, and the `count` that its row shows."""

    sent: int
    received: int
    count: int


@dataclass(frozen=True)
class MessageLayout:
    """How a message is laid out: whole, or cut into one part for each rank, of which a rank may
    send or receive one.
    """

    in_parts: bool = False
    equal_parts: bool = True
    sends_part: bool = False
    receives_part: bool = False

    def shape(self, size: int, element_bytes: int, ranks: int) -> Shape:
        """Return the elements of `size` bytes; parts are aligned to 16 bytes, so that less may be
        moved.
        """
        total = size // element_bytes
        if not self.in_parts:
            return Shape(total, total, total)
        aligned = _ALIGN_BYTES // element_bytes
        part = total // ranks // aligned * aligned
        whole = part * ranks
        return Shape(
            part if self.sends_part else whole, part if self.receives_part else whole, part
        )


@dataclass(frozen=True)
class Received:
    """A stretch of `count` elements of a result: the sum of what `senders` send from part `phase`
    on, at part `start`.

    Parts are counted in `count` elements.
    """

    senders: Iterable[int]
    phase: int = 0
    start: int = 0


Stretches = Iterator[Received]
Receives = Callable[[int, int], Iterable[Received]]  # given a rank and the number of ranks


@dataclass(frozen=True)
class Collective:
    """The facts of one collective.

    `receives`: what a rank of n must receive, given rank and n; None where no probe runs it, so no
    suite may name it. `into_a_node`: the least share of a message that must enter a node, given n
    and g; None: all that busbw counts. `ring`: a ring that saturates the links bounds it, so its
    busbw reaches their rate. `reaches`, for what has no ring: busbw over the rate of a node's links
    where it uses them fully, given n and g; None where unknown. `redop`: what rows name as
    reduction; empty where they leave it blank. `sums`: results are sums over all ranks.
    `checked_in_place`: nccl-tests checks in-place results as well. `algbw_of_other_parts`: algbw
    counts the parts of the other ranks alone, (n-1)/n of the size, as GetBw of hypercube.cu does.
    """

    factor: Factor
    layout: MessageLayout = MessageLayout()
    redop: str = "none"
    sums: bool = False
    rooted: bool = False
    checked_in_place: bool = True
    algbw_of_other_parts: bool = False
    ring: bool = False
    into_a_node: Share | None = None
    reaches: Share | None = None
    receives: Receives | None = None

    def counted_by_algbw(self, ranks: int) -> float:
        """Return how much of the size algbw counts."""
        return (ranks - 1) / ranks if self.algbw_of_other_parts else 1.0

    def most_busbw(self, ranks: int, ranks_per_node: int) -> float:
        """Return the highest busbw over the rate of a node's links.

        For a GPU's own links: a node of one rank.
        """
        if self.into_a_node is None:
            return 1.0
        return self.factor(ranks) / self.into_a_node(ranks, ranks_per_node)


def _enters_once(ranks: int, ranks_per_node: int) -> float:
    """Return the share if the data, or the result that the network adds up (SHARP), enters a node
    once.

    A ring's 2(k-1)/k over k >= 2 nodes is no less.
    """
    return 1.0


def _other_nodes_parts(ranks: int, ranks_per_node: int) -> float:
    return (ranks - ranks_per_node) / ranks


def _other_nodes_parts_for_each(ranks: int, ranks_per_node: int) -> float:
    return ranks_per_node * (ranks - ranks_per_node) / ranks


def _even_over_links(ranks: int, ranks_per_node: int) -> float:
    """Return what alltoall reaches: every link of a node carries as much, so it is what must enter
    a node.
    """
    return (ranks - 1) / (ranks_per_node * (ranks - ranks_per_node))


def _one_ranks_links(ranks: int, ranks_per_node: int) -> float:
    """Return what sendrecv reaches: only the last rank of a node sends to another node, over its
    GPU's own NICs.

    A root reaches as much.
    """
    return 1 / ranks_per_node


def _sum_of_all(rank: int, ranks: int) -> Stretches:
    yield Received(range(ranks))


def _own_part_of_the_sum(rank: int, ranks: int) -> Stretches:
    yield Received(range(ranks), phase=rank)


def _from_every_rank(rank: int, ranks: int) -> Stretches:
    return (Received([sender], start=sender) for sender in range(ranks))


def _own_part_from_every_rank(rank: int, ranks: int) -> Stretches:
    return (Received([sender], phase=rank, start=sender) for sender in range(ranks))


def _from_the_root(rank: int, ranks: int) -> Stretches:
    yield Received([0])


def _only_at_root(receives: Receives) -> Receives:
    """Make the `receives` of a collective in which only rank 0 receives."""
    return lambda rank, ranks: receives(rank, ranks) if rank == 0 else ()


def _own_part_from_the_root(rank: int, ranks: int) -> Stretches:
    yield Received([0], phase=rank)


def _from_the_rank_before(rank: int, ranks: int) -> Stretches:
    yield Received([(rank - 1) % ranks])


_OTHER_PARTS = Factor(1)
_WHOLE = Factor(1, depends_on_ranks=False)
_PARTS = MessageLayout(in_parts=True)
_SENDS_PART = MessageLayout(in_parts=True, sends_part=True)
_RECEIVES_PART = MessageLayout(in_parts=True, receives_part=True)

COLLECTIVES: dict[str, Collective] = {
    "all_reduce": Collective(
        Factor(2), redop="sum", sums=True, ring=True, into_a_node=_enters_once, receives=_sum_of_all
    ),
    "all_gather": Collective(
        _OTHER_PARTS,
        _SENDS_PART,
        ring=True,
        into_a_node=_other_nodes_parts,
        receives=_from_every_rank,
    ),
    "reduce_scatter": Collective(
        _OTHER_PARTS,
        _RECEIVES_PART,
        redop="sum",
        sums=True,
        ring=True,
        into_a_node=_other_nodes_parts,
        receives=_own_part_of_the_sum,
    ),
    "broadcast": Collective(
        _WHOLE, rooted=True, ring=True, into_a_node=_enters_once, receives=_from_the_root
    ),
    "alltoall": Collective(
        _OTHER_PARTS,
        _PARTS,
        checked_in_place=False,
        into_a_node=_other_nodes_parts_for_each,
        reaches=_even_over_links,
        receives=_own_part_from_every_rank,
    ),
    # Its rows name the reduction of the command line, though nothing is reduced.
    "sendrecv": Collective(
        _WHOLE,
        redop="sum",
        checked_in_place=False,
        into_a_node=_enters_once,
        reaches=_one_ranks_links,
        receives=_from_the_rank_before,
    ),
    "alltoallv": Collective(
        _OTHER_PARTS, MessageLayout(in_parts=True, equal_parts=False), checked_in_place=False
    ),
    "reduce": Collective(
        _WHOLE,
        redop="sum",
        sums=True,
        rooted=True,
        ring=True,
        into_a_node=_enters_once,
        receives=_only_at_root(_sum_of_all),
    ),
    "gather": Collective(
        _OTHER_PARTS,
        _SENDS_PART,
        rooted=True,
        into_a_node=_other_nodes_parts,
        reaches=_one_ranks_links,
        receives=_only_at_root(_from_every_rank),
    ),
    "scatter": Collective(
        _OTHER_PARTS,
        _RECEIVES_PART,
        rooted=True,
        into_a_node=_other_nodes_parts,
        reaches=_one_ranks_links,
        receives=_own_part_from_the_root,
    ),
    "hypercube": Collective(
        _WHOLE, _SENDS_PART, redop="", into_a_node=_other_nodes_parts, algbw_of_other_parts=True
    ),
}

SWEPT = tuple(name for name, collective in COLLECTIVES.items() if collective.receives)
