"""What rows say against a sweep, and numbers that its links have no room for: each was a wrong
verdict once.
"""

from collections.abc import Callable

import pytest

from seatrial.logs.cluster import LogsConfig
from seatrial.model.verdict import Verdict
from tests.unit.judge_traps.sweeplogs import (
    HEALTHY,
    SIZES,
    G,
    M,
    is_row,
    judged,
    log_text,
    of_operation,
)

PAIR = LogsConfig("H100-SXM", 2, None, "IB-8x400G")
PAIR_OF_8 = LogsConfig("H100-SXM", 2, 8, "IB-8x400G")
ACROSS = (300.0, 400.0, 450.0, 470.0, 475.0)


# Wrong numbers are corrupt, whatever else is odd


@pytest.mark.parametrize(
    ("text", "setup"),
    [
        (log_text(HEALTHY, wrong=9), LogsConfig("H100-SXM", 1, 8)),
        (log_text(ACROSS, 14, 2, wrong=9), PAIR),
        (log_text(ACROSS, 14, 2, wrong=9), PAIR_OF_8),
        (
            log_text(HEALTHY, wrong=9).replace("NVIDIA GPU", "NVIDIA A100-SXM4-80GB"),
            LogsConfig("H100-SXM", 1, 8),
        ),
    ],
)
def test_wrong_elements_are_corrupt_whatever_else_is_wrong(text: str, setup: LogsConfig) -> None:
    result = judged(text, setup)
    assert result.verdict is Verdict.CORRUPT
    assert "wrong elements: 9 at 64M out-of-place" in result.reason.sentence


@pytest.mark.parametrize("busbw", [350.0, 187.5])
def test_failed_footer_of_an_old_version_is_corrupt_with_unknown_ranks(
    busbw: float,
) -> None:
    side = "{us:.2f} 200.00 {busbw:.2f} 1e-06"
    rows = [
        f"{size} {size // 4} float sum {side} {side}".format(us=size / 200e3, busbw=busbw)
        for size in (64 * M, 256 * M, G)
    ]
    header = "# size count type redop time algbw busbw error time algbw busbw error"
    text = "\n".join(
        [header, *rows, "# Out of bounds values : 4 FAILED", "# Avg bus bandwidth : 123.4"]
    )
    assert judged(text, PAIR).verdict is Verdict.CORRUPT


def test_too_few_ranks_at_a_fraction_of_the_speed_is_a_fail() -> None:
    assert judged(log_text([30.0] * 5, 14, 2), PAIR).verdict is Verdict.FAIL
    assert judged(log_text(ACROSS, 14, 2), PAIR).verdict is Verdict.INCONCLUSIVE


# What says nothing is no pass


def test_collective_over_one_rank_is_not_run() -> None:
    sides = [f"{size / 1e6:.2f} 1000.00 0.00 0" for size in SIZES]
    rows = [
        f"{size} {size // 4} float sum -1 {side} {side}"
        for size, side in zip(SIZES, sides, strict=True)
    ]
    lines = [
        line
        for line in log_text(HEALTHY).splitlines()
        if not is_row(line) and not line.startswith("#  Rank")
    ]
    device = "#  Rank 0 Group  0 Pid 100 on node-0 device  0 [0x00] NVIDIA GPU"
    result = judged(
        "\n".join([*lines[:2], device, *lines[2:-2], *rows, *lines[-2:]]),
        LogsConfig("H100-SXM", 1, 1),
    )
    assert (result.verdict, "single rank has no other one" in result.reason.sentence) == (
        Verdict.NOT_RUN,
        True,
    )


@pytest.mark.parametrize(
    ("largest", "verdict"), [(64 << 10, Verdict.INCONCLUSIVE), (16 * M, Verdict.FAIL)]
)
def test_a_sweep_that_ends_within_latency_gives_no_plateau(largest: int, verdict: Verdict) -> None:
    sizes = [largest >> (7 - n) for n in range(8)]
    result = judged(log_text([0.01 * 2**n for n in range(8)], sizes=sizes))
    assert result.verdict is verdict


@pytest.mark.parametrize("change", [lambda line: "", lambda line: line.replace(".", ",")])
def test_a_footer_without_rows_is_inconclusive(change: Callable[[str], str]) -> None:
    text = "\n".join(
        change(line) if is_row(line) else line for line in log_text(HEALTHY).splitlines()
    )
    result = judged(text)
    assert (result.verdict, "without a data row" in result.reason.sentence) == (
        Verdict.INCONCLUSIVE,
        True,
    )


@pytest.mark.parametrize(
    "other",
    [
        log_text([value * 0.9 for value in HEALTHY]),
        log_text([value * 0.5 for value in HEALTHY]).replace("float sum -1", "float none -1"),
    ],
)
def test_interleaved_programs_are_distinguished_from_repeats(other: str) -> None:
    pairs = zip(log_text(HEALTHY).splitlines(), other.splitlines(), strict=True)
    mixed = judged("\n".join(line for pair in pairs for line in pair))
    assert (mixed.verdict, "several programs" in mixed.reason.sentence) == (
        Verdict.INCONCLUSIVE,
        True,
    )
    rows = [line for line in log_text(HEALTHY).splitlines() if is_row(line)]
    slower = [
        line for line in log_text([value * 0.99 for value in HEALTHY]).splitlines() if is_row(line)
    ]
    lines = log_text(HEALTHY).splitlines()
    assert judged("\n".join([*lines[:-2], *slower, *lines[-2:]])).verdict is Verdict.PASS
    assert len(rows) == len(slower)


# Slow sizes and missing ranks


def test_a_broadcast_over_half_of_the_ranks_is_a_fail() -> None:
    result = judged(of_operation(log_text([300.0] * 5), "broadcast", "none 0"), PAIR_OF_8)
    assert (result.verdict, result.reason.sentence) == (
        Verdict.FAIL,
        "broadcast: 8 of 16 ranks took part",
    )


def test_broadcast_without_a_header_never_passes_and_fails_when_slow() -> None:
    def without_header(busbw: float) -> str:
        lines = of_operation(log_text([busbw] * 5, 16, 2), "broadcast", "none 0").splitlines()
        return "\n".join(
            ["broadcast_perf", *(line for line in lines[1:] if not line.startswith("#  Rank"))]
        )

    fast, slow = (judged(without_header(busbw), PAIR_OF_8) for busbw in (370.0, 30.0))
    assert (fast.verdict, "how many of 16 ranks took part is unknown" in fast.reason.sentence) == (
        Verdict.INCONCLUSIVE,
        True,
    )
    assert slow.verdict is Verdict.FAIL


# Groups of ranks


def in_groups(text: str, group: Callable[[int], int], ranks: int = 16, nodes: int = 2) -> str:
    """The log of one group as that of `ranks` over `nodes`, each of which is in the group that
    `group` says.
    """
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("#  Rank"))
    rest = [line for line in lines[first:] if not line.startswith("#  Rank")]
    each = ranks // nodes
    devices = [
        (
            f"#  Rank {i} Group {group(i):2} Pid {i} on node-{i // each} device  {i % each} "
            f"[0x{i % each:02x}] NVIDIA GPU"
        )
        for i in range(ranks)
    ]
    return "\n".join([*lines[:first], *devices, *rest])


@pytest.mark.parametrize(
    ("busbw", "verdict"), [(48.0, Verdict.PASS), (30.0, Verdict.DEGRADED), (12.0, Verdict.FAIL)]
)
def test_groups_across_nodes_are_held_against_their_part_of_the_nics(
    busbw: float, verdict: Verdict
) -> None:
    """NCCL_TESTS_SPLIT="MOD 8": eight groups of one GPU per node, with 50 GB/s of NICs each."""
    result = judged(in_groups(log_text([busbw] * 5, 2), lambda rank: rank % 8), PAIR_OF_8)
    assert result.verdict is verdict
    assert "in 8 groups of 2 ranks at the same time (NCCL_TESTS_SPLIT)" in result.reason.sentence
    assert "% of the 50 GB/s of node links" in result.reason.sentence


def test_groups_within_nodes_are_held_against_one_node() -> None:
    """NCCL_TESTS_SPLIT="DIV 8"."""
    result = judged(in_groups(log_text(HEALTHY), lambda rank: rank // 8), PAIR_OF_8)
    assert (result.verdict, "as expected by catalog" in result.reason.sentence) == (
        Verdict.PASS,
        True,
    )


@pytest.mark.parametrize("setup", [PAIR, PAIR_OF_8])
@pytest.mark.parametrize(
    ("ranks", "nodes", "group", "verdict", "reason"),
    [
        (14, 2, lambda rank: rank % 7, Verdict.FAIL, "14 of 16 ranks took part"),
        (16, 1, lambda rank: rank % 8, Verdict.FAIL, "on 1 of 2 nodes"),
        (16, 2, lambda rank: int(rank > 2), Verdict.INCONCLUSIVE, "NCCL_TESTS_SPLIT made 2 groups"),
    ],
    ids=["ranks missing", "a node missing", "unlike groups"],
)
def test_incomplete_or_unequal_split_groups_do_not_pass(
    ranks: int,
    nodes: int,
    group: Callable[[int], int],
    verdict: Verdict,
    reason: str,
    setup: LogsConfig,
) -> None:
    text = in_groups(log_text([48.0] * 5, 2), group, ranks, nodes)
    result = judged(text, setup)
    assert (result.verdict, reason in result.reason.sentence) == (verdict, True), result.reason
    assert judged(text.replace(" 0\n", " 5\n"), setup).verdict is Verdict.CORRUPT


def test_split_group_is_judged_as_its_own_communicator() -> None:
    """NCCL_TESTS_SPLIT_MASK=0x1 or MOD: 16 ranks in two groups of 8, one on each node, over
    NVLink.
    """
    lines = []
    for line in log_text(HEALTHY, 8).splitlines():
        lines.append(line)
        if line.startswith("#  Rank 7 "):
            lines += [
                (
                    f"#  Rank {8 + i} Group  1 Pid {200 + i} on node-1 device  {i} "
                    f"[0x{i:02x}] NVIDIA GPU"
                )
                for i in range(8)
            ]
    text = "\n".join(lines)
    assert judged(text, PAIR_OF_8).verdict is Verdict.PASS
    assert (
        judged(text.replace("376", "100"), LogsConfig("H100-SXM", 3, 8, "IB-8x400G")).verdict
        is Verdict.FAIL
    )


# Physics


@pytest.mark.parametrize(
    ("text", "setup", "verdict", "words"),
    [
        (
            log_text([860.0] * 5),
            LogsConfig("H100-SXM", 1),
            Verdict.INCONCLUSIVE,
            "over those links",
        ),
        (log_text([860.0] * 5), LogsConfig("H100-SXM", 1, 8), Verdict.INCONCLUSIVE, "700 GB/s"),
        (
            log_text([692.0] * 5, 96, 12),
            LogsConfig("H100-SXM", 12, 8, "IB-8x400G"),
            Verdict.INCONCLUSIVE,
            "600 GB/s",
        ),
        (
            of_operation(log_text([395.0] * 5, 16, 2), "sendrecv", "sum -1"),
            PAIR_OF_8,
            Verdict.INCONCLUSIVE,
            "100 GB/s",
        ),
        (
            of_operation(log_text([45.0] * 5, 16, 2), "sendrecv", "sum -1"),
            PAIR_OF_8,
            Verdict.PASS,
            "",
        ),
        (
            log_text([1878.0] * 5, 72, 18),
            LogsConfig("GB200-NVL72", 18, 4, "MNNVL+IB"),
            Verdict.INCONCLUSIVE,
            "1,751 GB/s",
        ),
        (
            log_text([840.0] * 5, 72, 18),
            LogsConfig("GB200-NVL72", 18, 4, "MNNVL"),
            Verdict.PASS,
            "",
        ),
        (
            log_text([850.0] * 5, 72, 18),
            LogsConfig("GB200-NVL72", 18, 4, "IB-4x400G"),
            Verdict.INCONCLUSIVE,
            "MNNVL",
        ),
        (
            log_text([850.0] * 5, 72, 18),
            LogsConfig("GB200-NVL72", 18, 4, "IB"),
            Verdict.INCONCLUSIVE,
            "MNNVL",
        ),
        (log_text([376.0] * 5, 32, 8), LogsConfig("GB300-NVL72", 8, 4, "RoCE"), Verdict.PASS, ""),
        (
            of_operation(log_text([24.0] * 5, 16, 2), "sendrecv", "sum -1"),
            LogsConfig("A100-SXM", 2, 8, "RoCE-1x200G"),
            Verdict.PASS,
            "",
        ),
    ],
)
def test_bandwidth_above_the_links_of_the_setup_is_inconclusive(
    text: str, setup: LogsConfig, verdict: Verdict, words: str
) -> None:
    result = judged(text, setup)
    assert result.verdict is verdict, result.reason
    assert words in result.reason.sentence


def test_result_that_one_source_measured_passes_below_the_floor_of_another() -> None:
    sizes = [*SIZES, 16 * G]
    mi300x = LogsConfig("MI300X", 1, 8)
    assert (
        judged(log_text([280.0, 305.0, 310.0, 311.0, 311.0, 311.0], sizes=sizes), mi300x).verdict
        is Verdict.PASS
    )
    assert judged(log_text([140.0] * 6, sizes=sizes), mi300x).verdict is Verdict.FAIL
