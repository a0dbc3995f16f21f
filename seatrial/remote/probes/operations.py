"""The collectives over gloo: the calls that versions of torch have for each.

Copied to the nodes next to the collective probe. In every call `source is target` means in place.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from collectives import COLLECTIVES
from rendezvous import CannotStart, one_line

_TRIAL_ELEMENTS = 16

Call = Callable[[torch.Tensor, torch.Tensor], None]


def choose(operation: str, dtype: torch.dtype, ranks: int) -> tuple[Call, str | None]:
    """What runs the operation, tried once on a small buffer, and a note for the log. Raises CannotStart."""
    layout = COLLECTIVES[operation].layout
    trial = torch.ones(_TRIAL_ELEMENTS * ranks, dtype=dtype)
    part = torch.ones(_TRIAL_ELEMENTS, dtype=dtype)
    problem = ""
    for run in CALLS[operation]:
        source = part if layout.sends_part else trial
        target = (part if layout.receives_part else trial).clone()
        try:
            run(source, target)
        except (RuntimeError, NotImplementedError, AttributeError, ValueError) as error:
            problem = one_line(error)
            if not _unsupported(problem):
                raise
            continue
        return run, run.__doc__
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


def sendrecv(source: torch.Tensor, target: torch.Tensor) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if ranks == 1:  # gloo sends nothing to itself
        target.copy_(source)
        return
    sending = dist.isend(source.clone() if source is target else source, (rank + 1) % ranks)
    dist.recv(target, (rank - 1) % ranks)
    sending.wait()


# The first that the node's torch supports is used; a docstring is a note for the log.
CALLS: dict[str, list[Call]] = {
    "all_reduce": [all_reduce],
    "all_gather": [all_gather],
    "reduce_scatter": [reduce_scatter, reduce_scatter_by_alltoall],
    "broadcast": [broadcast],
    "alltoall": [alltoall],
    "sendrecv": [sendrecv],
}
