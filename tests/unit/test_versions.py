"""Nodes with other software than the rest."""

from seatrial.checks.connectivity.inventory import odd_ones

USUAL: dict[str, str | None] = {"kernel": "6.1", "openmpi": "4.1.4", "torch": "2.5"}


def test_equal_nodes_are_not_suspected() -> None:
    assert odd_ones({f"n{i}": USUAL for i in range(4)}) == []
    assert odd_ones({}) == []


def test_the_odd_one_is_named_with_both_versions() -> None:
    (suspect,) = odd_ones({f"n{i}": USUAL for i in range(3)} | {"n3": {**USUAL, "openmpi": "5.0.5"}})
    assert (suspect.name, suspect.confidence) == ("n3", 0.75)
    assert suspect.evidence == "openmpi is 5.0.5, 4.1.4 on 3 of 4 nodes"


def test_a_missing_package_differs_too() -> None:
    (suspect,) = odd_ones({"n0": USUAL, "n1": {**USUAL, "torch": ""}, "n2": USUAL})
    assert suspect.evidence == "torch is missing, 2.5 on 2 of 3 nodes"


def test_what_a_node_could_not_tell_is_no_difference() -> None:
    assert odd_ones({"n0": USUAL, "n1": {**USUAL, "openmpi": None}, "n2": USUAL}) == []


def test_without_a_majority_nobody_is_sure() -> None:
    suspects = odd_ones({"n0": USUAL, "n1": {**USUAL, "kernel": "6.2"}})
    assert [suspect.confidence for suspect in suspects] == [0.5]


def test_another_model_may_have_another_driver_but_not_another_nccl() -> None:
    versions = {f"n{i}": {"driver": "570", "nccl": "2.27"} for i in range(4)} | {
        "n4": {"driver": "550", "nccl": "2.20"}
    }
    models = dict.fromkeys(versions, "H100") | {"n4": "A100"}
    assert [suspect.evidence for suspect in odd_ones(versions, models)] == ["nccl is 2.20, 2.27 on 4 of 5 nodes"]
    (suspect,) = odd_ones(versions, dict.fromkeys(versions, "H100"))
    assert suspect.evidence == "driver is 550, 570 on 4 of 5 nodes; nccl is 2.20, 2.27 on 4 of 5 nodes"
