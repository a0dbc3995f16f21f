"""Groups of like nodes by what the nodes say of themselves."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge.node_groups import group_nodes
from seatrial.model.measurement import Subject
from seatrial.model.setup import NodeHardware, hardware_by_node

H100 = NodeHardware("NVIDIA H100 80GB HBM3", 1980, "Intel Xeon", "570.124")
A100 = NodeHardware("NVIDIA A100-SXM4-80GB", 1410, "AMD EPYC", "550.90")
OLD_DRIVER = NodeHardware(H100.gpu_model, 1980, "Intel Xeon", "550.90")
SLOW_CLOCK = NodeHardware(H100.gpu_model, 1755, "Intel Xeon", "570.124")


def fleet(*hardware: tuple[int, NodeHardware]) -> dict[str, NodeHardware]:
    """So many nodes of each, numbered through."""
    each = [made for count, made in hardware for _ in range(count)]
    return {f"node-{n}": made for n, made in enumerate(each)}


def test_gpu_models_form_groups_however_few_nodes_they_have() -> None:
    groups = group_nodes(fleet((58, H100), (6, A100)))
    assert (
        groups.reason.sentence
        == "2 groups by GPU model: 58 x NVIDIA H100 80GB HBM3, 6 x NVIDIA A100-SXM4-80GB"
    )
    assert (
        groups.of(Subject("node", "node-63"))
        == groups.of(Subject("gpu", "node-60/gpu-7"))
        == (A100.model,)
    )
    assert groups.of(Subject("link", "node-0--node-63")) == (A100.model, H100.model)
    assert groups.of(Subject("cluster", "lab")) == ()
    assert group_nodes(fleet((63, H100), (1, A100))).reason.sentence.endswith(
        "1 x NVIDIA A100-SXM4-80GB"
    )


def test_nodes_without_gpus_are_grouped_by_cpu_model() -> None:
    rome, milan = NodeHardware(cpu_model="AMD EPYC 7742"), NodeHardware(cpu_model="AMD EPYC 7763")
    assert (
        group_nodes(fleet((4, rome), (3, milan))).reason.sentence
        == "2 groups by CPU model: 4 x AMD EPYC 7742, 3 x AMD EPYC 7763"
    )


def test_uniform_fleet_has_no_groups() -> None:
    for alike in (fleet((5, H100)), fleet((5, NodeHardware())), {}):
        assert group_nodes(alike).reason.sentence == ""
        assert group_nodes(alike).of(Subject("node", "node-0")) in (("",), ("",))


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (
            ((60, H100), (4, OLD_DRIVER)),
            (
                "2 groups by driver: 60 x NVIDIA H100 80GB HBM3 driver 570.124, 4 x NVIDIA "
                "H100 80GB HBM3 driver 550.90"
            ),
        ),
        (
            ((9, H100), (3, SLOW_CLOCK)),
            (
                "2 groups by GPU clock: 9 x NVIDIA H100 80GB HBM3 1980 MHz, 3 x NVIDIA H100 "
                "80GB HBM3 1755 MHz"
            ),
        ),
        # What is wrong with one or two must not hide them from their peers
        (((62, H100), (2, OLD_DRIVER)), ""),
        (((97, H100), (3, SLOW_CLOCK)), ""),  # below 5 %
    ],
)
def test_drivers_and_clocks_form_groups_only_of_enough_nodes(
    kinds: Sequence[tuple[int, NodeHardware]], words: str
) -> None:
    assert group_nodes(fleet(*kinds)).reason.sentence == words


def test_node_without_a_known_model_joins_the_largest_group() -> None:
    groups = group_nodes(fleet((6, H100), (5, A100), (1, NodeHardware())))
    assert groups.of(Subject("node", "node-11")) == (H100.model,)


def test_long_group_names_and_long_lists_of_groups_are_cut() -> None:
    words = group_nodes(
        {f"n{i}": NodeHardware("x" * 200 + str(i)) for i in range(1000)}
    ).reason.sentence
    assert len(words) < 500
    assert words.endswith("and 996 more")


def test_hardware_values_of_a_wrong_type_are_ignored() -> None:
    nodes: list[dict[str, object]] = [
        {"name": "a", "gpu_model": ["x"], "gpu_clock_mhz": "fast", "driver": None, "cpu_model": 7},
        {"name": "b", "gpu_model": "H100", "gpu_clock_mhz": True},
        {"gpu_model": "nameless"},
        {"name": ["c"]},
    ]
    assert hardware_by_node(nodes) == {"a": NodeHardware(), "b": NodeHardware("H100")}


HARDWARE = st.builds(
    NodeHardware,
    st.sampled_from(["", "H100", "A100"]),
    st.sampled_from([None, 1410, 1980]),
    st.sampled_from(["", "EPYC"]),
    st.sampled_from(["", "550", "570"]),
)


@given(st.dictionaries(st.text(max_size=3), HARDWARE, max_size=40), st.randoms())
def test_every_node_is_in_exactly_one_group_by_its_hardware(
    hardware: dict[str, NodeHardware], random: object
) -> None:
    groups = group_nodes(hardware)
    assert groups.name_by_node.keys() == hardware.keys()
    for one, other in zip(hardware, list(hardware)[1:], strict=False):
        a, b = hardware[one], hardware[other]
        if a.model and b.model and a.model != b.model:
            assert groups.name_by_node[one] != groups.name_by_node[other]
        if a == b:
            assert groups.name_by_node[one] == groups.name_by_node[other]
