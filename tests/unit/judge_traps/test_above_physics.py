"""No pass above what the links carry: for every collective, arm, number of nodes and of GPUs per
node.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.logs.cluster import LogsConfig
from seatrial.model.setup import ENVIRONMENT, INTRA, NETWORK
from seatrial.model.verdict import Verdict
from seatrial.nccl.busbw import busbw_factor
from seatrial.nccl.collectives import COLLECTIVES
from tests.unit.judge_traps.sweeplogs import HEALTHY, SIZES, M, is_row, judged, log_text

NVLINK, NIC = 450.0, 50.0  # GB/s of an H100 and of each of its NICs
FABRIC = "IB-8x400G"
REDOPS = {
    "all_reduce": "sum -1",
    "reduce_scatter": "sum -1",
    "reduce": "sum 0",
    "sendrecv": "sum -1",
}
REDOPS |= {"broadcast": "none 0", "gather": "none 0", "scatter": "none 0"}
OPERATIONS = sorted(set(COLLECTIVES) - {"alltoallv", "hypercube"})
SETTINGS = {
    arm: [f"{name}={value}" for name, value in ENVIRONMENT[arm].items()] for arm in (INTRA, NETWORK)
}
SETTINGS[""] = []


def links_carry(operation: str, arm: str, nodes: int, each: int) -> float:
    """The busbw that saturates the narrowest cut: the table of docs/judging-logs.md, written down
    anew.
    """
    ranks = nodes * each
    if arm == NETWORK:  # every GPU has its own NIC
        return NIC * 8 / each
    if nodes == 1 or arm == INTRA:
        return NVLINK * (
            max(1.0, 2 * (ranks - 1) / (ranks + 1)) if operation == "all_reduce" else 1.0
        )
    node = 8 * NIC
    parts = node * (ranks - 1) / (ranks - each)
    whole = 2 * (ranks - 1) / ranks
    if operation == "all_reduce":
        across = node * (whole if nodes == 2 else min(whole, 1.5))
        return (
            across
            if each == 1
            else min(across, NVLINK * whole / min(1 + 1 / each, 2 * (each - 1) / each))
        )
    if operation in ("all_gather", "reduce_scatter", "gather", "scatter"):
        return parts
    if operation == "sendrecv":  # its own NICs and those of a neighbour
        return min(2 * node / each, node)
    return parts / each if operation == "alltoall" else node


def sweep(operation: str, busbw: float, nodes: int, each: int, arm: str) -> str:
    ranks = nodes * each
    lines = [f"mpirun -np {ranks} {operation}_perf -b 64M -e 8G -f 4", *SETTINGS[arm]]
    text = log_text([busbw] * len(SIZES), ranks, nodes).replace(
        "NVIDIA GPU", "NVIDIA H100 80GB HBM3"
    )
    *header, bounds, average = [line for line in text.splitlines() if not is_row(line)]
    lines += header
    for size in SIZES:
        algbw = busbw / busbw_factor(operation, ranks)
        side = f"{size / algbw / 1e3:.2f} {algbw:.2f} {busbw:.2f} 0"
        count = COLLECTIVES[operation].layout.shape(size, 4, ranks).count
        lines.append(f"{size} {count} float {REDOPS.get(operation, 'none -1')} {side} {side}")
    return "\n".join([*lines, bounds, average]) + "\n"


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(OPERATIONS),
    st.sampled_from(["", INTRA, NETWORK]),
    st.integers(1, 16),
    st.sampled_from([1, 2, 4, 8]),
    st.floats(1.06, 20.0),
    st.booleans(),
)
def test_bandwidth_above_the_link_rate_never_passes(
    operation: str, arm: str, nodes: int, each: int, factor: float, is_claimed: bool
) -> None:
    if nodes * each < 2 or (arm == INTRA and nodes > 1):
        return
    config = (
        LogsConfig("H100-SXM", nodes, each, FABRIC) if is_claimed else LogsConfig(fabric=FABRIC)
    )
    result = judged(
        sweep(operation, factor * links_carry(operation, arm, nodes, each), nodes, each, arm),
        config,
    )
    assert result.verdict is not Verdict.PASS, result.reason


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_bandwidth_just_below_the_link_rate_passes(operation: str, nodes: int) -> None:
    config = LogsConfig("H100-SXM", nodes, 8, FABRIC)
    result = judged(
        sweep(operation, 0.99 * links_carry(operation, "", nodes, 8), nodes, 8, ""), config
    )
    assert result.verdict is Verdict.PASS, result.reason


@pytest.mark.parametrize(
    ("nodes", "busbw", "verdict"),
    [
        (4, 377.0, Verdict.INCONCLUSIVE),
        (1, 218.0, Verdict.INCONCLUSIVE),
        (4, 47.0, Verdict.PASS),
        (4, 4.0, Verdict.FAIL),
    ],
)
def test_network_arm_faster_than_the_nics_is_no_pass(
    nodes: int, busbw: float, verdict: Verdict
) -> None:
    result = judged(
        sweep("all_reduce", busbw, nodes, 8, NETWORK), LogsConfig("H100-SXM", nodes, 8, FABRIC)
    )
    assert result.verdict is verdict, result.reason


def test_p2p_channels_in_the_log_make_a_network_arm_inconclusive() -> None:
    via = "node-0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read"
    text = f"{via}\n{sweep('all_reduce', 47.0, 4, 8, NETWORK)}"
    result = judged(text, LogsConfig("H100-SXM", 4, 8, FABRIC))
    assert (result.verdict, "via P2P/CUMEM/read" in result.reason.sentence) == (
        Verdict.INCONCLUSIVE,
        True,
    ), result.reason


@pytest.mark.parametrize("fabric", [FABRIC, "EFA-3200G", "RoCE-8x400G", None])
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (0.31, Verdict.FAIL)])
def test_one_node_is_held_to_its_own_links_whatever_the_fabric(
    fabric: str | None, factor: float, verdict: Verdict
) -> None:
    result = judged(
        log_text([factor * value for value in HEALTHY]), LogsConfig("H100-SXM", 1, 8, fabric)
    )
    assert result.verdict is verdict, result.reason


@pytest.mark.parametrize(
    ("busbw", "sizes", "config", "first"),
    [
        (
            0.049,
            (M, 4 * M, 16 * M, 64 * M),
            LogsConfig("H100-SXM", 4, 1, FABRIC),
            "0.012 % of the link rate",
        ),
        (
            0.049,
            (M, 4 * M, 16 * M, 64 * M),
            LogsConfig("H100-SXM", 4, 1),
            "0.011 % of the link rate",
        ),
        (4.0, SIZES, LogsConfig("H100-SXM", 4, 8, FABRIC), "1 % of the link rate"),
    ],
)
def test_reason_of_a_gross_loss_starts_with_its_share_of_the_link_rate(
    busbw: float, sizes: tuple[int, ...], config: LogsConfig, first: str
) -> None:
    ranks = 4 * (config.gpus_per_node or 1)
    result = judged(
        log_text([busbw] * len(sizes), ranks, 4, sizes=sizes).replace("maxBytes 8589934592", ""),
        config,
    )
    assert result.verdict is Verdict.FAIL
    assert result.reason.sentence.startswith(f"{first}: the data did not go over the fabric"), (
        result.reason
    )
