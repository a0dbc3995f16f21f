"""Who is blamed for output without end."""

import pytest

from seatrial.remote.mpi import loudest
from tests.unit.collectives.fake_mpirun import make_testbed


@pytest.mark.parametrize(
    ("printed", "named"),
    [
        ({0: 100, 1: 1_000_000, 2: 100}, ["node-1"]),
        ({2: 600_000, 3: 500_000}, ["node-2"]),
        ({0: 100, 1: 100, 2: 100, 3: 100}, []),
        ({7: 1_000_000}, []),
        ({}, []),
    ],
)
def test_only_a_node_that_prints_most_of_it_is_blamed(printed: dict[int, int], named: list[str]) -> None:
    assert [suspect.name for suspect in loudest(make_testbed(nodes=4), printed)] == named


def test_ranks_of_one_node_count_together() -> None:
    (suspect,) = loudest(make_testbed(nodes=2, gpus=2), {0: 300, 2: 250, 3: 250})
    assert (suspect.name, suspect.evidence) == ("node-1", "output flood: its ranks printed 62% of all output")
