"""The search for the nodes that MPI fails with."""

import math
import socket
from pathlib import Path

import pytest

from seatrial.checks.connectivity.check import MAX_TRIES, guilty_nodes
from seatrial.model.errors import MissingError
from seatrial.model.testbed import Node, Testbed


def dial(node: Node, timeout_s: float) -> socket.socket:
    raise AssertionError("nothing is reached in these tests")


def nodes(count: int) -> Testbed:
    made = tuple(Node(f"n{i}", f"10.0.{i // 250}.{i % 250}", 222, 1, "ssh-ed25519 A") for i in range(count))
    return Testbed("run", made, "root", Path("/k"), dial, "/w")


class Mpi:
    """Fails when a bad node takes part."""

    def __init__(self, *bad: str) -> None:
        self.bad = set(bad)
        self.tries = 0

    def __call__(self, testbed: Testbed) -> str | None:
        self.tries += 1
        taking_part = self.bad & {node.name for node in testbed.nodes}
        return f"{sorted(taking_part)[0]} is bad" if taking_part else None


def test_the_head_is_blamed_for_itself_also_among_two() -> None:
    for count in (2, 5):
        assert guilty_nodes(nodes(count), Mpi("n0")) == [("n0", "n0 is bad")]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_an_mpirun_that_works_nowhere_is_no_nodes_fault(count: int) -> None:
    with pytest.raises(MissingError, match="mpirun does not work, on one node alone neither: segfault; check Open MPI"):
        guilty_nodes(nodes(count), lambda testbed: "segfault")


@pytest.mark.parametrize("bad", [("n1",), ("n4",), ("n2", "n7"), ("n1", "n2", "n3")])
def test_the_guilty_are_found_and_nobody_else(bad: tuple[str, ...]) -> None:
    assert {name for name, _ in guilty_nodes(nodes(9), Mpi(*bad))} == set(bad)


def test_a_thousand_nodes_take_few_tries() -> None:
    mpi = Mpi("n777")
    assert guilty_nodes(nodes(1000), mpi) == [("n777", "n777 is bad")]
    assert mpi.tries <= 2 + 2 * math.ceil(math.log2(1000))


def test_nobody_is_blamed_when_only_the_whole_fails() -> None:
    whole = nodes(4)
    assert guilty_nodes(whole, lambda testbed: "too many" if len(testbed.nodes) == 4 else None) == []


def test_the_search_ends() -> None:
    mpi = Mpi(*(f"n{i}" for i in range(1, 200)))
    assert guilty_nodes(nodes(200), mpi) == []
    assert mpi.tries <= MAX_TRIES + 1
