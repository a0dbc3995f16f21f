"""Sum a tensor over every rank many times, as data parallel training does with its gradients; check
every element.

    all_reduce.py [--rounds 50] [--elements 2000000] [--device cpu|cuda]

By NCCL between GPUs and by gloo between processors, through torch.distributed, alone or under
torchrun, mpirun or srun. Every round has other numbers. They are whole and small enough that every
sum is exact, in any order. Rank 0 prints {"event": "all_reduce", "rounds", "elements", "backend",
"ranks": [{"rank", "host", "wrong", "first_wrong"}]}: how many elements were wrong over all rounds,
and the first round that had one. Exit statuses: rendezvous.py.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence

import rendezvous  # before torch, as it reports a missing one
import torch
import torch.distributed as dist
from command_line import OF_RANKS, Option, parser_of
from rendezvous import WRONG_RESULT, CannotStart

_EXACT = 1 << 24  # float32 represents all whole numbers up to this one
# Ranks multiply the numbers of a round by 1 to 61, so that a missing or repeated rank changes the
# sum
_WEIGHTS = 61
_MOST = 4093
_OPTIONS: tuple[Option, ...] = (
    ("--rounds", int, 50, "how many sums"),
    ("--elements", int, 2_000_000, "float32 numbers in each"),
    ("--device", ("cpu", "cuda"), None, "a GPU if there is one, when unset"),
    *OF_RANKS,
)


def weight(rank: int) -> int:
    """Return the factor by which a rank multiplies the numbers of a round."""
    return rank % _WEIGHTS + 1


def highest(ranks: int) -> int:
    """Return the largest number of a round for which sums over the ranks are exact.

    Raises CannotStart if there is none.
    """
    top = min(_MOST, _EXACT // sum(map(weight, range(ranks))))
    if top < 2:
        raise CannotStart(
            f"sums over {ranks} ranks are not exact in float32, so they cannot be checked"
        )
    return top


def numbers(round_number: int, top: int, elements: int, device: str) -> torch.Tensor:
    """Return the numbers 1..top of a round, as float32, before a rank's `weight` is applied."""
    x = torch.arange(elements, dtype=torch.int64, device=device) * 40503 + round_number * 2654435761
    x = (x & 0xFFFFFFFF) ^ ((x & 0xFFFFFFFF) >> 15)
    return (x % top + 1).to(torch.float32)


def main(arguments: Sequence[str]) -> int:
    """Sum on all ranks, check the sums, and return the exit status."""
    options = parse(arguments)
    here, device = rendezvous.begin(options)
    rendezvous.join(here, options, device)
    top = highest(here.world_size)
    total = sum(map(weight, range(here.world_size)))
    wrong = []  # number of wrong elements of this rank, by round
    for round_number in range(options.rounds):
        base = numbers(round_number, top, options.elements, device)
        summed = base * weight(here.rank)
        dist.all_reduce(summed)
        wrong.append(int((summed != base * total).sum()))
    first = next((number for number, count in enumerate(wrong) if count), None)
    mine = {"rank": here.rank, "host": here.host, "wrong": sum(wrong), "first_wrong": first}
    ranks = rendezvous.report(mine, device)
    if here.rank == 0:
        settings = {
            "rounds": options.rounds,
            "elements": options.elements,
            "backend": dist.get_backend(),
        }
        print(json.dumps({"event": "all_reduce", **settings, "ranks": ranks}), flush=True)
    dist.barrier()  # no rank exits before all have finished communicating
    dist.destroy_process_group()
    return WRONG_RESULT if any(rank["wrong"] for rank in ranks) else 0


def parse(arguments: Sequence[str]) -> Namespace:
    """Return the options; exit with 2 for bad ones."""
    parser = parser_of("all_reduce.py", __doc__, _OPTIONS)
    options: Namespace = parser.parse_args(arguments)
    if min(options.rounds, options.elements) < 1:
        parser.error("needs --rounds and --elements of 1 or more")
    return options


if __name__ == "__main__":
    rendezvous.run("all_reduce", main)
