"""Losses that only part of a log shows: each passed once."""

from collections.abc import Callable

import pytest

from seatrial.logs.cluster import LogsConfig
from seatrial.model.verdict import Verdict
from seatrial.nccl.busbw import busbw_factor
from tests.unit.judge_traps.sweeplogs import IB, OVER_NODES, QUAD, M, judged, log_text, of_operation
from tests.unit.judge_traps.test_claims import devices

SIZES = [8 << n for n in range(31)]
HEADER = "minBytes 67108864 maxBytes 8589934592 step: 4(factor)"
Change = Callable[[int, float], float]


def whole_sweep(
    change: Change = lambda size, us: us, gb_s: float = 375.0, ranks: int = 32, nodes: int = 4
) -> str:
    """What all_reduce_perf prints from 8 bytes to 8G: 35 us of latency and that rate, each time
    changed.
    """
    factor = busbw_factor("all_reduce", ranks)
    times = {size: change(size, 35 + size * factor / gb_s / 1e3) for size in SIZES}
    busbw = [size * factor / us / 1e3 for size, us in times.items()]
    text = log_text(busbw, ranks, nodes, sizes=SIZES).replace(
        HEADER, "minBytes 8 maxBytes 8589934592 step: 2(factor)"
    )
    exact = [f"{us:.2f}" for us in times.values()]
    lines, row = [], 0
    for line in text.splitlines():
        words = line.split()
        if line[:1].isdigit():
            words[5] = words[9] = exact[row]
            row += 1
        lines.append(" ".join(words))
    return "\n".join(lines) + "\n"


def slower(factor: float, first: int, last: int) -> Change:
    return lambda size, us: us * factor if first <= size <= last else us


def test_a_healthy_sweep_passes() -> None:
    result = judged(whole_sweep(), QUAD)
    assert result.verdict is Verdict.PASS, result.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (slower(4, M, 64 * M), "messages of 1M to 4M reach"),
        (slower(6, 8 * M, 32 * M), "messages of 8M to 32M reach"),
        (lambda size, us: us + 870 if size <= 1 * M else us, "messages of up to 64K take 905 us"),
        (lambda size, us: us + 400 if size <= 1 * M else us, "messages of up to 64K take 435 us"),
    ],
)
def test_small_and_middle_messages_that_are_slow_are_degraded(change: Change, reason: str) -> None:
    result = judged(whole_sweep(change), QUAD)
    assert (result.verdict, reason in result.reason.sentence) == (Verdict.DEGRADED, True), (
        result.reason
    )


@pytest.mark.parametrize("lost", [8, 4096, 1 << 32, 1 << 33])
def test_a_row_that_the_header_asks_for_and_the_table_lacks_is_named(lost: int) -> None:
    text = "\n".join(line for line in whole_sweep().splitlines() if not line.startswith(f"{lost} "))
    result = judged(text, QUAD)
    assert (result.verdict, "1 of 31 sizes are missing" in result.reason.sentence) == (
        Verdict.INCONCLUSIVE,
        True,
    ), result.reason


def test_missing_small_sizes_are_noted_and_a_memory_limit_may_end_a_sweep() -> None:
    text = whole_sweep()
    excerpt = "\n".join(
        line
        for line in text.splitlines()
        if not line[:1].isdigit() or int(line.split()[0]) >= 8 * M
    )
    result = judged(excerpt, QUAD)
    assert (
        result.verdict,
        "the table begins at 8M, the header at 8" in result.reason.sentence,
    ) == (Verdict.PASS, True)
    limit = "# Reducing maxBytes to 9000000000 due to memory limitation"
    longer = text.replace("maxBytes 8589934592", "maxBytes 68719476736").replace(
        "# size", f"{limit}\n# size"
    )
    assert judged(longer, QUAD).verdict is Verdict.PASS
    assert judged(longer.replace(limit, "#"), QUAD).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("each", "fabric", "busbw", "verdict"),
    [
        (1, "IB-1x400G", 48.0, Verdict.PASS),
        (1, "IB-1x400G", 30.0, Verdict.DEGRADED),
        (1, "IB-1x400G", 24.0, Verdict.FAIL),
        (4, "IB-4x400G", 190.0, Verdict.PASS),
        (4, "IB-4x400G", 96.0, Verdict.FAIL),
        (4, IB, 190.0, Verdict.PASS),  # half of the NICs are of the other four GPUs
    ],
)
def test_nodes_of_few_gpus_are_held_to_their_own_nics(
    each: int, fabric: str, busbw: float, verdict: Verdict
) -> None:
    result = judged(log_text([busbw] * 5, 4 * each, 4), LogsConfig("H100-SXM", 4, each, fabric))
    assert result.verdict is verdict, result.reason


@pytest.mark.parametrize(
    ("busbw", "verdict"), [(363.0, Verdict.PASS), (178.0, Verdict.DEGRADED), (80.0, Verdict.FAIL)]
)
def test_half_a_node_is_judged_by_a_ring_over_the_same_links(
    busbw: float, verdict: Verdict
) -> None:
    """Four H200, whose NVLink is that of the H100, reach 363 GB/s."""
    result = judged(log_text([busbw] * 5, 4), LogsConfig("H100-SXM", 1, 4))
    assert result.verdict is verdict, result.reason


@pytest.mark.parametrize(
    ("busbw", "verdict"), [(48.0, Verdict.PASS), (30.0, Verdict.DEGRADED), (5.0, Verdict.FAIL)]
)
def test_sendrecv_between_nodes_is_judged_by_one_nic(busbw: float, verdict: Verdict) -> None:
    text = of_operation(log_text([busbw] * 5, 16, 2), "sendrecv", "sum -1")
    result = judged(text, LogsConfig("H100-SXM", 2, 8, IB))
    assert result.verdict is verdict, result.reason


def rates(slow: int, host: str, gbit_s: int = 200) -> list[str]:
    """What NCCL lists of the NICs of a host, of which `slow` have that rate."""
    return [
        f"{host}:1:1 [0] NCCL INFO NET/IB: [{i}] mlx5_{i}:uverbs{i}:1/IB provider=Mlx5"
        f" speed={(gbit_s if i < slow else 400) * 1000} context=0x55 "
        "pciPath=/sys/devices/pci0000:37 ar=1"
        for i in range(8)
    ] + [devices(8, host)]


@pytest.mark.parametrize(
    ("lines", "verdict", "reason"),
    [
        ([devices(8, link="RoCE")], Verdict.INCONCLUSIVE, "the log is of RoCE, not of IB-8x400G"),
        (
            [devices(7).replace(" [RO]", " [7]mlx5_an0:1/RoCE [RO]")],
            Verdict.DEGRADED,
            "lists 7 network devices",
        ),
        (
            [*rates(0, "node-0"), *rates(1, "node-2")],
            Verdict.DEGRADED,
            "lists 7 network devices on node-2",
        ),
        ([*rates(0, "node-0"), *rates(0, "node-2")], Verdict.PASS, "every result right"),
    ],
)
@pytest.mark.parametrize("is_claimed", [True, False])
def test_nics_of_another_link_type_or_rate_do_not_count_as_fabric(
    lines: list[str], verdict: Verdict, reason: str, is_claimed: bool
) -> None:
    if not is_claimed and "speed=" not in lines[0]:
        return  # without rates nothing says which fabric it is
    text = log_text(OVER_NODES, 32, 4, [*lines, "node-0:1:1 [0] NCCL INFO Using network IB"])
    result = judged(text, QUAD if is_claimed else LogsConfig("H100-SXM", 4, 8))
    assert (result.verdict, reason in result.reason.sentence) == (verdict, True), result.reason


def test_slow_in_place_results_are_no_fault_on_cpus() -> None:
    """In-place results far below out-of-place ones are a fault of NCCL's buffer registration, which
    the gloo probe does not have.
    """
    lines = []
    for line in log_text(OVER_NODES, 32, 4).splitlines():
        words = line.split()
        if line[:1].isdigit():
            words[9:12] = [
                f"{float(words[9]) * 4:.2f}",
                *(f"{float(word) / 4:.2f}" for word in words[10:12]),
            ]
        lines.append(" ".join(words))
    text = "\n".join(lines)
    assert judged(text, LogsConfig(None, 4, 8)).verdict is Verdict.DEGRADED
    on_processors = judged(text.replace("NVIDIA GPU", "CPU"), LogsConfig(None, 4, 8))
    assert on_processors.verdict is Verdict.PASS, on_processors.reason
