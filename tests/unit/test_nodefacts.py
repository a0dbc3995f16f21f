"""What nodes tell of themselves, and which of them it puts at fault."""

from typing import Any, cast

import pytest

from seatrial.checks.connectivity.check import (
    clock_skews,
    same_hostname,
    short_of_gpus,
    skewed,
    without_gpus,
    without_mpirun,
)
from seatrial.remote.node_setup import NodeConnection
from tests.unit.collectives.fake_mpirun import make_testbed


def contact(offset_s: float = 0.0, error_s: float = 0.01, **facts: Any) -> NodeConnection:
    return NodeConnection(cast(Any, None), facts, connect_ms=1.0, clock_offset_s=offset_s, clock_error_s=error_s)


def test_a_node_without_mpirun_is_named() -> None:
    (suspect,) = without_mpirun("mpirun", {"a": contact(mpirun="/usr/bin/mpirun"), "b": contact(mpirun=None)})
    assert (suspect.name, suspect.evidence) == (
        "b",
        "mpirun is missing on it: install Open MPI (openmpi-bin) or set mpi.mpirun",
    )


def test_the_second_node_of_a_host_name_is_named() -> None:
    (suspect,) = same_hostname({"a": contact(hostname="x"), "b": contact(hostname="y"), "c": contact(hostname="x")})
    assert suspect.name == "c"
    assert suspect.evidence.startswith("has the host name of a, x: ")


def test_clocks_are_held_against_the_median_nodes_beyond_what_the_measurement_errs() -> None:
    clocks = {"a": contact(5.0), "b": contact(5.1), "c": contact(8.0), "d": contact(7.5, error_s=2.0)}
    assert {m.subject.name: m.value for m in clock_skews(clocks)} == pytest.approx(
        {"a": -1.3, "b": -1.2, "c": 1.7, "d": 1.2}
    )
    (suspect,) = skewed(clocks, limit_s=1.4)
    assert (suspect.name, suspect.evidence) == ("c", "its clock is +1.70 s off the median node's, allowed 1.4 s")
    assert skewed({}, limit_s=1.0) == []


@pytest.mark.parametrize(
    ("gpus", "evidence"),
    [
        (8, []),
        (7, ["7 of 8 GPUs are there"]),
        (None, ["its GPUs cannot be counted: nvidia-smi fails or does not answer within 30 s"]),
    ],
)
def test_gpus_that_are_not_there_are_counted(gpus: int | None, evidence: list[str]) -> None:
    testbed = make_testbed(gpus=8)
    contacts = {testbed.head.name: contact(gpus=gpus)}
    assert [suspect.evidence for suspect in short_of_gpus(testbed, contacts)] == evidence


@pytest.mark.parametrize(
    ("expected", "counted", "none"),
    [(8, [0, 0], True), (8, [0, 8], False), (8, [0, None], False), (0, [0, 0], False)],
)
def test_gpus_that_no_node_has_are_nobodys_fault(expected: int, counted: list[int | None], none: bool) -> None:
    contacts = {f"node-{i}": contact(gpus=gpus) for i, gpus in enumerate(counted)}
    reason = without_gpus(make_testbed(gpus=expected), contacts)
    assert bool(reason) is none
    assert not none or reason == "none of 2 nodes has a GPU, and the cluster file promises 8 for each"
