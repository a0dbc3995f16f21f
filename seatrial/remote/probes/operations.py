"""The five collectives over gloo: how a message is laid out, and the call that each version of torch has for it.

Copied to the nodes next to the collective probe. In every call `source is target` means in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from rendezvous import CannotStart, one_line  # type: ignore[import-not-found]

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall")
_ALIGN_BYTES = 16
_TRIAL_ELEMENTS = 16

Collective = Callable[[torch.Tensor, torch.Tensor], None]


@dataclass(frozen=True)
class Shape:
    """Elements that one rank sends and receives, and the `count` that its row shows."""

    sent: int
    received: int
    count: int


def shape(operation: str, size: int, element_bytes: int, ranks: int) -> Shape:
    """How `size` bytes are laid out (GetCollByteCount of nccl-tests): the parts of a rank are 16-byte aligned."""
    total = size // element_bytes
    if operation in ("all_reduce", "broadcast"):
        return Shape(total, total, total)
    part = total // ranks // (_ALIGN_BYTES // element_bytes) * (_ALIGN_BYTES // element_bytes)
    if operation == "alltoall":
        return Shape(part * ranks, part * ranks, part)
    return Shape(part, part * ranks, part) if operation == "all_gather" else Shape(part * ranks, part, part)


def busbw_factor(operation: str, ranks: int) -> float:
    """busbw / algbw (nccl-tests doc/PERFORMANCE.md)."""
    if operation == "broadcast":
        return 1.0
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks


def choose(operation: str, dtype: torch.dtype, ranks: int) -> tuple[Collective, str | None]:
    """What runs the operation, tried once on a small buffer, and a note for the log. Raises CannotStart."""
    candidates: dict[str, list[Collective]] = {
        "all_reduce": [all_reduce],
        "all_gather": [all_gather],
        "reduce_scatter": [reduce_scatter, reduce_scatter_by_alltoall],
        "broadcast": [broadcast],
        "alltoall": [alltoall],
    }
    trial = torch.ones(_TRIAL_ELEMENTS * ranks, dtype=dtype)
    part = torch.ones(_TRIAL_ELEMENTS, dtype=dtype)
    problem = ""
    for run in candidates[operation]:
        source = part if operation == "all_gather" else trial
        target = part.clone() if operation == "reduce_scatter" else trial.clone()
        try:
            run(source, target)
        except (RuntimeError, NotImplementedError, AttributeError, ValueError) as error:
            problem = one_line(error)
            if not _unsupported(problem):
                raise
            continue
        return run, (run.__doc__ if operation == "reduce_scatter" else None)
    raise CannotStart(f"gloo of torch {torch.__version__} has no {operation} of {dtype}: {problem}")


def _unsupported(problem: str) -> bool:
    """Whether torch refused the call itself, which it does before anything is sent."""
    return any(
        word in problem.lower() for word in ("support", "invalid scalar type", "not implemented", "no attribute")
    )


def all_reduce(source: torch.Tensor, target: torch.Tensor) -> None:
    if source is not target:
        target.copy_(source)
    dist.all_reduce(target)


def all_gather(source: torch.Tensor, target: torch.Tensor) -> None:
    dist.all_gather(list(target.view(dist.get_world_size(), -1)), source)


def broadcast(source: torch.Tensor, target: torch.Tensor) -> None:
    if source is not target and dist.get_rank() == 0:
        target.copy_(source)
    dist.broadcast(target, 0)


def alltoall(source: torch.Tensor, target: torch.Tensor) -> None:
    dist.all_to_all_single(target, source.clone() if source is target else source)


def reduce_scatter(source: torch.Tensor, target: torch.Tensor) -> None:
    """reduce_scatter is gloo's own"""
    dist.reduce_scatter(target, list(source.view(dist.get_world_size(), -1)))


def reduce_scatter_by_alltoall(source: torch.Tensor, target: torch.Tensor) -> None:
    """reduce_scatter is an alltoall and a local sum, because this gloo has none"""
    received = torch.empty_like(source)
    dist.all_to_all_single(received, source)
    torch.sum(received.view(dist.get_world_size(), -1), 0, dtype=target.dtype, out=target)
