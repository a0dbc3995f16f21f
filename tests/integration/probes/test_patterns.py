"""Data that is checked for real: what is lost, stale or misplaced counts as wrong."""

from types import ModuleType
from typing import Any

import pytest

from tests.integration.probes.conftest import Load
from tests.integration.probes.launched import OPERATIONS


@pytest.fixture
def patterns(load: Load) -> ModuleType:
    return load("patterns")


RANKS = 4
COUNT = 70_000  # more than the pattern's period


def send_buffers(patterns: ModuleType, operation: str, turn: int = 1) -> list[Any]:
    """What each rank sends."""
    import torch

    length = COUNT * RANKS if operation in ("reduce_scatter", "alltoall", "scatter") else COUNT
    buffers = [torch.empty(length) for _ in range(RANKS)]
    for rank, buffer in enumerate(buffers):
        patterns.fill(buffer, patterns.pattern(rank, turn, 4093, length))
    return buffers


def right_result(operation: str, rank: int, sent: list[Any]) -> Any:
    """What `rank` receives, worked out from the send buffers and nothing else."""
    import torch

    mine = slice(rank * COUNT, (rank + 1) * COUNT)
    if operation in ("all_reduce", "reduce"):
        return torch.stack(sent).sum(0)
    if operation == "gather":
        return torch.cat(sent)
    if operation == "scatter":
        return sent[0][mine].clone()
    if operation == "reduce_scatter":
        return torch.stack(sent).sum(0)[mine].clone()
    if operation == "broadcast":
        return sent[0].clone()
    if operation == "sendrecv":
        return sent[rank - 1].clone()
    return torch.cat(sent if operation == "all_gather" else [buffer[mine] for buffer in sent])


def count_wrong(
    patterns: ModuleType, operation: str, rank: int, received: Any, turn: int = 1
) -> int:
    length = len(send_buffers(patterns, operation)[0])
    expected = patterns.parts(
        operation, rank, RANKS, COUNT, lambda r: patterns.pattern(r, turn, 4093, length)
    )
    return int(patterns.count_wrong(received, expected))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_result_check_detects_lost_stale_or_misplaced_elements(
    patterns: ModuleType, operation: str
) -> None:
    """The check itself, without any collective: a probe whose collective does nothing must count
    wrong elements.
    """
    rank = 0 if operation in ("reduce", "gather") else 1  # the root alone receives
    right = right_result(operation, rank, send_buffers(patterns, operation))
    assert count_wrong(patterns, operation, rank, right) == 0

    nothing = right.clone()
    patterns.spoil(nothing)
    assert count_wrong(patterns, operation, rank, nothing) == len(right)  # never received

    stale = right_result(operation, rank, send_buffers(patterns, operation, turn=0))
    assert count_wrong(patterns, operation, rank, stale) > 0.9 * len(right)  # the round before

    own = send_buffers(patterns, operation)[rank]
    untouched = own.repeat(RANKS)[: len(right)]
    # In place, and nothing done
    assert count_wrong(patterns, operation, rank, untouched) > 0.5 * len(right)

    shifted = right.roll(1024)
    # Chunks in the wrong place
    assert count_wrong(patterns, operation, rank, shifted) > 0.9 * len(right)

    lost = right.clone()
    lost[5000:5010] = float("nan")
    assert count_wrong(patterns, operation, rank, lost) == 10


def test_sums_are_exact_in_each_data_type_or_refused(patterns: ModuleType) -> None:
    for dtype, limit in (("bfloat16", 1 << 8), ("float16", 1 << 11), ("float32", 1 << 24)):
        assert 4 * patterns.max_value("all_reduce", dtype, 4) <= limit
    with pytest.raises(Exception, match="use float32"):
        patterns.max_value("all_reduce", "bfloat16", 200)
    assert patterns.max_value("all_gather", "bfloat16", 200) > 100
