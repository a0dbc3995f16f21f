"""Ranks and sizes that are not in what a sweep printed."""

from collections.abc import Callable, Sequence

import pytest

from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from tests.unit.collectives.fake_mpirun import GPU_SIZES, SIZES, make_testbed, result, table


def test_fewer_ranks_are_named_before_any_number(check: Callable[..., Check]) -> None:
    done = check(result(table(ranks=3)))
    assert (done.verdict, done.measurements) == (Verdict.FAIL, ())
    assert "3 of 4 ranks took part" in done.reason.sentence


def test_a_torn_line_of_the_header_is_no_missing_rank(check: Callable[..., Check]) -> None:
    """busbw/algbw is that of four ranks, whatever the header lists."""
    done = check(result(table(listed=3)))
    assert done.verdict is Verdict.PASS
    assert {m.conditions["ranks"] for m in done.measurements} == {4}


def test_missing_ranks_that_only_the_header_shows_are_inconclusive(
    check: Callable[..., Check],
) -> None:
    """busbw equals algbw in a broadcast, so only the header shows the number of ranks."""
    lines = [
        line.replace("    1.50  ", "    1.00  ").replace("all_reduce", "broadcast")
        for line in table(listed=3)
    ]
    done = check(result(lines), operations=["broadcast"])
    assert (done.verdict, done.measurements) == (Verdict.INCONCLUSIVE, ())
    assert "names 3 of 4 ranks" in done.reason.sentence


@pytest.mark.parametrize("left", [(4096,), (4096, 16384), (16384, 65536)])
def test_missing_message_sizes_are_named(check: Callable[..., Check], left: Sequence[int]) -> None:
    done = check(result(table(sizes=left)))
    gone = [
        name for size, name in zip(SIZES, ("4K", "16K", "64K"), strict=True) if size not in left
    ]
    assert (done.verdict, done.reason.sentence) == (
        Verdict.INCONCLUSIVE,
        f"all_reduce: {len(gone)} of 3 sizes are missing: {', '.join(gone)}",
    )
    # A plateau of other sizes is another number
    assert {m.metric for m in done.measurements} == {"busbw", "latency"}


def test_sizes_cut_off_by_small_gpu_memory_are_named(check: Callable[..., Check]) -> None:
    done = check(
        result(["# Reducing maxBytes to 20000 due to memory limitation", *table(sizes=SIZES[:2])])
    )
    assert done.verdict is Verdict.INCONCLUSIVE
    assert done.reason.sentence.endswith(
        "missing: 64K (Reducing maxBytes to 20000 due to memory limitation)"
    )


def test_a_row_without_numbers_is_a_missing_size(check: Callable[..., Check]) -> None:
    lines = [line.replace("65.54", "XX.XX") for line in table()]
    done = check(result(lines))
    assert (done.verdict, "64K" in done.reason.sentence) == (Verdict.INCONCLUSIVE, True)


def test_nccl_tests_built_without_mpi_fail_the_check(check: Callable[..., Check]) -> None:
    copies = [
        line.replace("Pid    100 on node-0", f"Pid {200 + i} on node-{i}")
        for i in range(4)
        for line in table(ranks=1)
    ]
    done = check(result(copies))
    assert done.verdict is Verdict.FAIL
    assert "1 of 4 ranks" in done.reason.sentence
    assert "MPI=1" in done.reason.sentence


@pytest.mark.parametrize(
    ("sizes", "verdict", "plateaus"),
    [((1 << 14, 1 << 15, 1 << 16), Verdict.INCONCLUSIVE, 0), (GPU_SIZES, Verdict.PASS, 1)],
)
def test_a_sweep_of_gpus_that_ends_within_latency_has_no_plateau(
    check: Callable[..., Check],
    sizes: Sequence[int],
    verdict: Verdict,
    plateaus: int,
) -> None:
    done = check(result(table(sizes=sizes)), make_testbed(gpus=1), sizes=sizes)
    assert done.verdict is verdict, done.reason
    assert len([m for m in done.measurements if m.metric == "busbw_plateau"]) == plateaus


def test_bandwidth_that_drops_at_the_largest_size_is_degraded(check: Callable[..., Check]) -> None:
    sizes = (256 << 20, 512 << 20, 1 << 30)
    lines = [
        line.replace(
            f"{sizes[-1] / 1e3:.2f}    1.00    1.50", f"{sizes[-1] / 250:.2f}    0.25    0.38"
        )
        if line.split()[:1] == [str(sizes[-1])]
        else line
        for line in table(sizes=sizes)
    ]
    done = check(result(lines), make_testbed(gpus=1), sizes=sizes)
    assert (done.verdict, "falls to 0.375 GB/s at 1G" in done.reason.sentence) == (
        Verdict.DEGRADED,
        True,
    ), done.reason


def test_ranks_split_into_groups_are_inconclusive(check: Callable[..., Check]) -> None:
    """NCCL_TESTS_SPLIT in the environment of a run: two groups of two."""
    lines = [
        line.replace("Group  0", "Group  1") if "Rank  2" in line or "Rank  3" in line else line
        for line in table()
    ]
    done = check(result([line.replace("    1.50  ", "    1.00  ") for line in lines]))
    assert (done.verdict, done.measurements) == (Verdict.INCONCLUSIVE, ())
    assert "NCCL_TESTS_SPLIT made 2 groups" in done.reason.sentence
