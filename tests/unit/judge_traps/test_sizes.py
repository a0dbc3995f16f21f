"""What is said of logs with few sizes, or with sizes that do not belong together."""

import pytest

from seatrial.logs.cluster import LogsConfig
from seatrial.model.verdict import Verdict
from tests.unit.judge_traps.sweeplogs import (
    IB,
    OVER_NODES,
    QUAD,
    G,
    M,
    is_row,
    judged,
    log_text,
    over_four_nodes,
)


@pytest.mark.parametrize("sizes", [(16 * G,), (8 * G, 16 * G)])
@pytest.mark.parametrize(
    ("busbw", "verdict"), [(149.0, Verdict.FAIL), (280.0, Verdict.DEGRADED), (380.0, Verdict.PASS)]
)
def test_one_or_two_large_sizes_are_judged_by_the_model(
    sizes: tuple[int, ...], busbw: float, verdict: Verdict
) -> None:
    assert judged(log_text([busbw] * len(sizes), 32, 4, sizes=sizes), QUAD).verdict is verdict


@pytest.mark.parametrize(
    ("nodes", "fabric", "busbw", "verdict"),
    [
        (2, "EFA-3200G", 290.0, Verdict.DEGRADED),  # of 479
        (2, "EFA-3200G", 355.0, Verdict.PASS),  # a ring
        (2, "GPUDirect-TCPXO", 205.0, Verdict.DEGRADED),  # of 339
        (2, IB, 290.0, Verdict.DEGRADED),  # less than a ring
        (2, IB, 791.0, Verdict.INCONCLUSIVE),
        (2, None, 791.0, Verdict.INCONCLUSIVE),
        (8, IB, 331.0, Verdict.DEGRADED),  # seven of eight NICs
        (12, IB, 331.0, Verdict.DEGRADED),
        (8, IB, 375.0, Verdict.PASS),
    ],
)
def test_bandwidth_loss_between_nodes_does_not_pass(
    nodes: int, fabric: str | None, busbw: float, verdict: Verdict
) -> None:
    sizes = (G, 2 * G, 4 * G, 8 * G, 16 * G)
    text = log_text(
        [0.92 * busbw, 0.96 * busbw, busbw, busbw, busbw], 8 * nodes, nodes, sizes=sizes
    )
    result = judged(text, LogsConfig("H100-SXM", nodes, 8, fabric))
    assert result.verdict is verdict, result.reason


@pytest.mark.parametrize(
    ("time_us", "verdict"), [(2000.0, Verdict.DEGRADED), (200.0, Verdict.PASS)]
)
def test_small_messages_that_take_milliseconds_are_degraded(
    time_us: float, verdict: Verdict
) -> None:
    lines = over_four_nodes().splitlines()
    first = next(i for i, line in enumerate(lines) if is_row(line))
    small = [
        f"{8 << i} {2 << i} float sum -1 {time_us} 0.00 0.00 0 {time_us} 0.00 0.00 0"
        for i in range(10)
    ]
    result = judged("\n".join([*lines[:first], *small, *lines[first:]]), QUAD)
    assert (result.verdict, "messages of up to 64K take" in result.reason.sentence) == (
        verdict,
        verdict is not Verdict.PASS,
    )
    outlier = small[0].replace("200.0", "2193.5")  # of a first row, as people published it
    if verdict is Verdict.PASS:
        assert (
            judged("\n".join([*lines[:first], outlier, *small[1:], *lines[first:]]), QUAD).verdict
            is Verdict.PASS
        )


@pytest.mark.parametrize(
    ("fabric", "share", "verdict"),
    # Without any reference too
    [(IB, 0.1, Verdict.FAIL), (None, 0.55, Verdict.DEGRADED), (None, 0.9, Verdict.PASS)],
)
def test_in_place_much_slower_than_out_of_place_does_not_pass(
    fabric: str | None, share: float, verdict: Verdict
) -> None:
    lines = []
    for line in over_four_nodes().splitlines():
        fields = line.split()
        if is_row(line):
            fields[9:12] = [
                f"{float(fields[9]) / share:.2f}",
                *(f"{float(f) * share:.2f}" for f in fields[10:12]),
            ]
        lines.append(" ".join(fields))
    result = judged("\n".join(lines), LogsConfig("H100-SXM", 4, 8, fabric))
    slow = f"in place {share * 376:.3g} GB/s against 376 GB/s" in result.reason.sentence
    assert (result.verdict, slow) == (verdict, verdict is not Verdict.PASS), result.reason


@pytest.mark.parametrize(
    ("share", "busbw", "verdict"),
    [(0.25, "94.0", Verdict.DEGRADED), (0.6, "226", Verdict.DEGRADED), (0.9, "338", Verdict.PASS)],
)
def test_large_drop_at_the_largest_size_is_degraded(
    share: float, busbw: str, verdict: Verdict
) -> None:
    sizes = [64 * M, 256 * M, G, 4 * G, 8 * G, 16 * G]
    text = log_text([*OVER_NODES, share * OVER_NODES[-1]], 32, 4, sizes=sizes)
    result = judged(text, QUAD)
    falls = f"falls to {busbw} GB/s at 16G after 376 GB/s" in result.reason.sentence
    assert (result.verdict, falls) == (verdict, verdict is not Verdict.PASS), result.reason
