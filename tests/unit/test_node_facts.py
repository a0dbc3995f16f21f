"""What nodes tell of themselves, which of them it puts at fault, and nodes with other software."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from seatrial.checks.connectivity.facts import (
    clock_skews,
    same_hostname,
    short_of_gpus,
    skewed,
    without_gpus,
    without_mpirun,
)
from seatrial.checks.connectivity.versions import odd_ones
from seatrial.remote import node_setup
from seatrial.remote.command import CommandResult
from seatrial.remote.node_setup import NodeConnection
from tests.unit.collectives.fake_mpirun import make_testbed

# What nodes tell of themselves, and which of them it puts at fault.


def contact(offset_s: float = 0.0, error_s: float = 0.01, **facts: Any) -> NodeConnection:
    return NodeConnection(
        cast(Any, None), facts, connect_ms=1.0, clock_offset_s=offset_s, clock_error_s=error_s
    )


def test_a_node_without_mpirun_is_named() -> None:
    (suspect,) = without_mpirun(
        "mpirun", {"a": contact(mpirun="/usr/bin/mpirun"), "b": contact(mpirun=None)}
    )
    assert (suspect.name, suspect.evidence.sentence) == (
        "b",
        "mpirun is missing on it: install Open MPI (openmpi-bin) or set mpi.mpirun",
    )


def test_nodes_with_the_same_host_name_are_reported_together() -> None:
    """Whichever node has the wrong name."""
    (reason,) = same_hostname(
        {"a": contact(hostname="x"), "b": contact(hostname="y"), "c": contact(hostname="x")}
    )
    assert reason.sentence == "a, c report the same host name, x: Open MPI takes them for one node"


def test_clock_error_is_half_of_the_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((1000.0, 1000.4))
    monkeypatch.setattr(node_setup, "time", SimpleNamespace(time=lambda: next(times)))
    monkeypatch.setattr(node_setup, "run_command", lambda *_, **__: CommandResult(0, "1005.2\n"))
    assert node_setup._clock(make_testbed(1).nodes[0], cast(Any, None), 1) == pytest.approx(
        (5.0, 0.2)
    )


def test_clock_skew_is_judged_against_the_median_beyond_measurement_error() -> None:
    clocks = {
        "a": contact(5.0),
        "b": contact(5.1),
        "c": contact(8.0),
        "d": contact(7.5, error_s=2.0),
    }
    assert {m.subject.name: m.value for m in clock_skews(clocks)} == pytest.approx(
        {"a": -1.3, "b": -1.2, "c": 1.7, "d": 1.2}
    )
    (suspect,) = skewed(clocks, limit_s=1.4)
    assert (suspect.name, suspect.evidence.sentence) == (
        "c",
        "its clock is +1.70 s off the median node's, allowed 1.4 s",
    )
    assert skewed({}, limit_s=1.0) == []


@pytest.mark.parametrize(
    ("gpus", "evidence"),
    [
        (8, []),
        (7, ["7 of 8 GPUs are there"]),
        (None, ["its GPUs cannot be counted: nvidia-smi fails or does not answer within 30 s"]),
    ],
)
def test_missing_gpus_are_counted(gpus: int | None, evidence: list[str]) -> None:
    testbed = make_testbed(gpus=8)
    contacts = {testbed.head.name: contact(gpus=gpus)}
    assert [suspect.evidence.sentence for suspect in short_of_gpus(testbed, contacts)] == evidence


@pytest.mark.parametrize(
    ("expected", "counted", "none"),
    [(8, [0, 0], True), (8, [0, 8], False), (8, [0, None], False), (0, [0, 0], False)],
)
def test_gpus_missing_on_every_node_blame_none(
    expected: int, counted: list[int | None], none: bool
) -> None:
    contacts = {f"node-{i}": contact(gpus=gpus) for i, gpus in enumerate(counted)}
    reason = without_gpus(make_testbed(gpus=expected), contacts)
    assert bool(reason) is none
    assert (
        not none
        or str(reason) == "none of 2 nodes has a GPU, and the cluster file promises 8 for each"
    )


# Nodes with other software than the rest.


USUAL: dict[str, str | None] = {"kernel": "6.1", "openmpi": "4.1.4", "torch": "2.5"}


def test_nodes_with_equal_software_are_not_suspected() -> None:
    assert odd_ones({f"n{i}": USUAL for i in range(4)}) == []
    assert odd_ones({}) == []


def test_node_with_a_different_version_is_named_with_both_versions() -> None:
    (suspect,) = odd_ones(
        {f"n{i}": USUAL for i in range(3)} | {"n3": {**USUAL, "openmpi": "5.0.5"}}
    )
    assert (suspect.name, suspect.confidence) == ("n3", 0.75)
    assert suspect.evidence.sentence == "openmpi is 5.0.5, 4.1.4 on 3 of 4 nodes"


def test_missing_package_counts_as_a_difference() -> None:
    (suspect,) = odd_ones({"n0": USUAL, "n1": {**USUAL, "torch": ""}, "n2": USUAL})
    assert suspect.evidence.sentence == "torch is missing, 2.5 on 2 of 3 nodes"


def test_unknown_version_is_no_difference() -> None:
    assert odd_ones({"n0": USUAL, "n1": {**USUAL, "openmpi": None}, "n2": USUAL}) == []


def test_suspects_without_a_majority_have_confidence_one_half() -> None:
    suspects = odd_ones({"n0": USUAL, "n1": {**USUAL, "kernel": "6.2"}})
    assert [suspect.confidence for suspect in suspects] == [0.5]


def test_another_model_may_have_another_driver_but_not_another_nccl() -> None:
    versions = {f"n{i}": {"driver": "570", "nccl": "2.27"} for i in range(4)} | {
        "n4": {"driver": "550", "nccl": "2.20"}
    }
    models = dict.fromkeys(versions, "H100") | {"n4": "A100"}
    assert [suspect.evidence.sentence for suspect in odd_ones(versions, models)] == [
        "nccl is 2.20, 2.27 on 4 of 5 nodes"
    ]
    (suspect,) = odd_ones(versions, dict.fromkeys(versions, "H100"))
    assert (
        suspect.evidence.sentence
        == "driver is 550, 570 on 4 of 5 nodes; nccl is 2.20, 2.27 on 4 of 5 nodes"
    )
