"""One table of collectives: what it says of each agrees with what is sent, received and printed."""

from pathlib import Path
from typing import get_args

import pytest

import seatrial.nccl.collectives as table
from seatrial.checks.collectives.section import Operation
from seatrial.nccl.collectives import COLLECTIVES, SWEPT, Shape
from seatrial.remote.probes import PROBES, probe

RANKS = 4


def test_a_suite_may_name_what_the_probe_can_check() -> None:
    assert get_args(Operation) == SWEPT
    every = {
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "broadcast",
        "alltoall",
        "sendrecv",
        "reduce",
        "gather",
        "scatter",
    }
    assert set(SWEPT) == every


def test_probe_on_nodes_uses_the_same_table_of_collectives() -> None:
    assert probe("collectives") in PROBES
    assert probe("collectives").read_bytes() == Path(table.__file__).read_bytes()


@pytest.mark.parametrize("name", SWEPT)
def test_checked_stretches_cover_each_received_element_once(name: str) -> None:
    """No stretch reads beyond what its senders send; together they cover all received elements
    without overlap.
    """
    collective = COLLECTIVES[name]
    assert collective.receives
    shape = collective.layout.shape(4096, 4, RANKS)
    for rank in range(RANKS):
        stretches = list(collective.receives(rank, RANKS))
        starts = sorted(stretch.start * shape.count for stretch in stretches)
        if name in ("reduce", "gather") and rank:
            assert not starts  # the root alone receives
            continue
        assert starts == list(range(0, shape.received, shape.count))
        for stretch in stretches:
            assert set(stretch.senders) <= set(range(RANKS))
            assert (len(list(stretch.senders)) == RANKS) is collective.sums
            assert (stretch.phase + 1) * shape.count <= shape.sent


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("all_reduce", Shape(1000, 1000, 1000)),
        ("broadcast", Shape(1000, 1000, 1000)),
        ("sendrecv", Shape(1000, 1000, 1000)),
        ("all_gather", Shape(332, 996, 332)),
        ("reduce_scatter", Shape(996, 332, 332)),
        ("alltoall", Shape(996, 996, 332)),
    ],
)
def test_parts_are_aligned_and_whole_messages_are_not(name: str, shape: Shape) -> None:
    assert COLLECTIVES[name].layout.shape(4000, 4, 3) == shape


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("all_reduce", 15 / 8),
        ("all_gather", 15 / 8),
        ("reduce_scatter", 15 / 8),
        ("alltoall", 15 / 64),
        ("broadcast", 1),
        ("reduce", 1),
        ("sendrecv", 1),
        ("gather", 15 / 8),
        ("scatter", 15 / 8),
        ("hypercube", 2),
        ("alltoallv", 1),
    ],
)
def test_highest_possible_busbw_of_each_collective_on_two_nodes_of_eight(
    name: str, most: float
) -> None:
    assert COLLECTIVES[name].most_busbw(16, 8) == pytest.approx(most)
