"""Sweep one collective over message sizes with torch's gloo, as nccl-tests does on GPUs, and check
every result.

Started by mpirun (or srun, torchrun) on every rank. Sizes, counts, busbw factors, in-place and
out-of-place, the mean of the ranks' times (-a 1) and the printed table are those of nccl-tests
(src/common.cu, src/<collective>.cu and doc/PERFORMANCE.md), with three differences: sizes too small
to give every rank an element are left out; an in-place alltoall or sendrecv is checked too; and
torch knows no out-of-place all_reduce and broadcast, so theirs copy first.

What the ranks send, and how every result is checked: patterns.py.

Exit statuses: rendezvous.py.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import rendezvous  # before torch, as it reports a missing one
import torch
import torch.distributed as dist
from collectives import COLLECTIVES, Shape
from command_line import OF_RANKS, Option, parser_of
from patterns import count_wrong, fill, max_value, parts, pattern, spoil
from rendezvous import WRONG_RESULT, CannotStart, RankPlacement, one_line
from torch import Tensor

Call = Callable[[Tensor, Tensor], None]
# Type names as nccl-tests prints them.
_DTYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int32",
    "bfloat16": "bfloat16",
    "float16": "half",
}


def choose(operation: str, dtype: torch.dtype, ranks: int) -> tuple[Call, str | None]:
    """Choose the first function for the operation that works on a small buffer; return it with a
    note for the log.

    Every rank takes part in the trials. Raises CannotStart if torch supports none, and torch's
    error for any other cause, such as a lost connection.
    """
    layout = COLLECTIVES[operation].layout

    part = torch.ones(16, dtype=dtype)
    whole = torch.ones(16 * ranks, dtype=dtype)
    # Errors with which torch refuses a call before sending anything.
    refusals = ("support", "invalid scalar type", "not implemented", "no attribute")
    problem = ""
    for run in CALLS[operation]:
        source = part if layout.sends_part else whole
        target = part if layout.receives_part else whole
        try:
            run(source, target.clone())
        except (RuntimeError, NotImplementedError, AttributeError, ValueError) as error:
            problem = one_line(error)
            said = problem.lower()
            if not any(words in said for words in refusals):
                raise
            continue
        return run, run.__doc__
    gloo = f"gloo of torch {torch.__version__}"
    raise CannotStart(f"{gloo} has no {operation} of {dtype}: {problem}")


def all_reduce(source: Tensor, target: Tensor) -> None:
    if source is not target:
        target.copy_(source)
    dist.all_reduce(target)


def all_gather(source: Tensor, target: Tensor) -> None:
    dist.all_gather(_by_rank(target), source)


def _by_rank(buffer: Tensor) -> list[Tensor]:
    """Return the parts of a buffer, one for each rank, in the same memory."""
    return list(buffer.view(dist.get_world_size(), -1))


def broadcast(source: Tensor, target: Tensor) -> None:
    if source is not target and dist.get_rank() == 0:
        target.copy_(source)
    dist.broadcast(target, 0)


def alltoall(source: Tensor, target: Tensor) -> None:
    dist.all_to_all_single(target, _apart(source, target))


def _apart(source: Tensor, target: Tensor) -> Tensor:
    """Return the source, copied if it shares memory with the target."""
    if source is target:
        return source.clone()
    return source


def reduce_scatter(source: Tensor, target: Tensor) -> None:
    """reduce_scatter is gloo's own"""
    dist.reduce_scatter(target, _by_rank(source))


def reduce_scatter_by_alltoall(source: Tensor, target: Tensor) -> None:
    """reduce_scatter is an alltoall and a local sum, because this gloo has none"""
    received = torch.empty_like(source)
    dist.all_to_all_single(received, source)
    by_rank = received.view(dist.get_world_size(), -1)
    torch.sum(by_rank, 0, dtype=target.dtype, out=target)


def sendrecv(source: Tensor, target: Tensor) -> None:
    rank = dist.get_rank()
    ranks = dist.get_world_size()
    if ranks == 1:  # gloo sends nothing to itself
        target.copy_(source)
        return
    following = (rank + 1) % ranks
    previous = (rank - 1) % ranks
    sending = dist.isend(_apart(source, target), following)
    dist.recv(target, previous)
    sending.wait()


def reduce(source: Tensor, target: Tensor) -> None:
    if source is not target:
        target.copy_(source)
    dist.reduce(target, 0)


def gather(source: Tensor, target: Tensor) -> None:
    parts_of_root = _by_rank(target) if dist.get_rank() == 0 else None
    dist.gather(source, parts_of_root)


def scatter(source: Tensor, target: Tensor) -> None:
    parts_of_root = _by_rank(source) if dist.get_rank() == 0 else None
    dist.scatter(target, parts_of_root)


# The first that the node's torch supports is used; a docstring is a note for the log.
CALLS: dict[str, list[Call]] = {
    "all_reduce": [all_reduce],
    "all_gather": [all_gather],
    "reduce_scatter": [reduce_scatter, reduce_scatter_by_alltoall],
    "broadcast": [broadcast],
    "alltoall": [alltoall],
    "sendrecv": [sendrecv],
    "reduce": [reduce],
    "gather": [gather],
    "scatter": [scatter],
}
_OPTIONS: tuple[Option, ...] = (
    ("--operation", {"choices": tuple(CALLS), "required": True}, None, None),
    ("--min-bytes", int, 1024, "smallest message (-b)"),
    ("--max-bytes", int, 1 << 24, "largest message (-e)"),
    ("--step-factor", int, 2, "factor from one size to the next (-f)"),
    ("--warmup-iterations", int, 1, "iterations that are not timed (-w)"),
    ("--iterations", int, 20, "iterations that are timed (-n)"),
    ("--dtype", tuple(_DTYPES), "float32", "(-d)"),
    *OF_RANKS,
)


@dataclass(frozen=True)
class Side:
    """One half of a row, in place or out of place: mean seconds of an iteration, wrong elements
    over all ranks.
    """

    seconds: float
    wrong: int


class RankSweep:
    """The sweep on one rank.

    Raises CannotStart if no size gives every rank an element, or torch cannot do the operation.
    """

    def __init__(self, options: Namespace, here: RankPlacement) -> None:
        operation = options.operation
        ranks = here.world_size
        self.options = options
        self.here = here
        self.layout = COLLECTIVES[operation].layout
        self.dtype: torch.dtype = getattr(torch, options.dtype)
        self.top = max_value(operation, options.dtype, ranks)
        self.element_bytes = torch.empty(0, dtype=self.dtype).element_size()
        self.sizes = [size for size in sizes(options) if self.shape(size).count > 0]
        if not self.sizes:
            raise CannotStart(
                f"{options.max_bytes} bytes are too few to give each of {ranks} ranks a part"
            )
        self.collective, self.note = choose(operation, self.dtype, ranks)
        elements = max(options.max_bytes // self.element_bytes, 1)
        self._send = torch.empty(elements, dtype=self.dtype)
        self._receive = torch.empty(elements, dtype=self.dtype)
        self._turn = 0

    def shape(self, size: int) -> Shape:
        """Return the element counts for one size."""
        return self.layout.shape(size, self.element_bytes, self.here.world_size)

    def warm_up(self) -> None:
        """Run untimed iterations at the largest and the smallest size, as nccl-tests does."""
        largest = self.sizes[-1]
        smallest = self.sizes[0]
        for size in (largest, smallest):
            source, target = self.prepare(self.shape(size), in_place=False)
            for _ in range(self.options.warmup_iterations):
                self.collective(source, target)

    def side(self, size: int, *, in_place: bool) -> Side:
        """Time one size, then run it once more on fresh data and check the result."""
        layout = self.shape(size)
        source, target = self.prepare(layout, in_place=in_place)
        seconds = self.measure(source, target)
        dist.barrier()
        source, target = self.prepare(layout, in_place=in_place)
        self.collective(source, target)
        return Side(seconds, wrong=self.check(layout, target))

    def prepare(self, layout: Shape, *, in_place: bool) -> tuple[Tensor, Tensor]:
        """Return this rank's source, filled with the next round's data, and its target, filled with
        invalid values.
        """
        self._turn += 1
        spoil(self._receive[: max(layout.sent, layout.received)])
        source, target = self.buffers(layout, in_place=in_place)
        fill(source, self.data(self.here.rank, layout))
        return source, target

    def buffers(self, layout: Shape, *, in_place: bool) -> tuple[Tensor, Tensor]:
        """Return the buffers to send from and receive into; in place, at the offsets of
        nccl-tests.
        """
        sent = layout.sent
        received = layout.received
        if not in_place:
            source = self._send[:sent]
            target = self._receive[:received]
            return source, target
        whole = self._receive[: max(sent, received)]
        start = self.here.rank * layout.count
        part = whole[start : start + layout.count]
        source = part if self.layout.sends_part else whole
        target = part if self.layout.receives_part else whole
        return source, target

    def data(self, rank: int, layout: Shape) -> Tensor:
        """Return the data that a rank sends in this round."""
        return pattern(rank, self._turn, self.top, layout.sent)

    def measure(self, source: Tensor, target: Tensor) -> float:
        """Return the mean seconds of an iteration over the ranks; the first iteration is
        not timed.
        """
        iterations = self.options.iterations
        self.collective(source, target)
        dist.barrier()
        started = time.perf_counter()
        for _ in range(iterations):
            self.collective(source, target)
        elapsed = time.perf_counter() - started
        return float(rendezvous.reduced(elapsed / iterations) / self.here.world_size)

    def check(self, layout: Shape, target: Tensor) -> int:
        """Return the number of wrong elements, summed over the ranks, so that all ranks agree on
        it.
        """
        operation = self.options.operation
        here = self.here
        expected = parts(
            operation,
            here.rank,
            here.world_size,
            layout.count,
            lambda rank: self.data(rank, layout),
        )
        return int(rendezvous.reduced(count_wrong(target, expected)))


def sizes(options: Namespace) -> Iterator[int]:
    """Yield the message sizes of the options."""
    size = options.min_bytes
    while size <= options.max_bytes:
        yield size
        size *= options.step_factor


class Printer:
    """Prints the table of nccl-tests on rank 0, one row at a time.

    All ranks count the wrong elements, which determine their exit statuses.
    """

    def __init__(self, options: Namespace, here: RankPlacement) -> None:
        self.options = options
        self.collective = COLLECTIVES[options.operation]
        self.here = here
        self.busbw: list[float] = []
        self.out_of_bounds = 0

    def say(self, text: str) -> None:
        """Print on rank 0 only."""
        if self.here.rank == 0:
            print(text, flush=True)

    def header(self, devices: Sequence[str], note: str | None) -> None:
        """Print the lines above the rows; `devices` has a line for each rank."""
        o = self.options
        self.say(
            f"# Collective test starting: {o.operation}_perf (gloo probe, torch "
            f"{torch.__version__})"
        )
        self.say(
            f"# nThread 1 nGpus 1 minBytes {o.min_bytes} maxBytes {o.max_bytes} step: "
            f"{o.step_factor}(factor)"
            f" warmup iters: {o.warmup_iterations} iters: {o.iterations} agg iters: 1 validation: "
            "1 graph: 0"
        )
        self.say("#\n# Using devices")
        for line in devices:
            self.say(line)
        if note:
            self.say(f"# {note}")
        self.say("#")
        side = "     time   algbw   busbw  #wrong"
        units = "     (us)  (GB/s)  (GB/s)        "
        self.say(f"# {'':56}  {'out-of-place':^32} {'in-place':^32}".rstrip())
        self.say(
            f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}{side}{side}"
        )
        self.say(
            f"# {'(B)':>10}  {'(elements)':>12}  {'':8}  {'':6}  {'':6}{units}{units}".rstrip()
        )

    def row(self, layout: Shape, size: int, sides: Sequence[Side]) -> None:
        """Print the row of a size in bytes; `sides` are out of place, then in place."""
        collective = self.collective
        root = 0 if collective.rooted else -1
        dtype = _DTYPES[self.options.dtype]
        factor = collective.factor(self.here.world_size)
        line = f"{size:12d}  {layout.count:12d}  {dtype:>8}"
        line += f"  {collective.redop:>6}  {root:6d}"
        for side in sides:
            time_us = side.seconds * 1e6
            algbw = size / side.seconds / 1e9
            busbw = algbw * factor
            digits = _digits(time_us)
            line += f"  {time_us:7.{digits}f}  {algbw:6.2f}"
            line += f"  {busbw:6.2f}  {side.wrong:6d}"
            self.busbw.append(busbw)
            if side.wrong > 0:
                self.out_of_bounds += 1
        self.say(line)

    def footer(self) -> None:
        """Print the lines below the rows."""
        found = "FAILED" if self.out_of_bounds else "OK"
        mean = sum(self.busbw) / len(self.busbw)
        self.say(f"# Out of bounds values : {self.out_of_bounds} {found}")
        self.say(f"# Avg bus bandwidth    : {mean:g}")
        self.say(f"#\n# Collective test concluded: {self.options.operation}_perf\n#")


def _digits(time_us: float) -> int:
    """Return the number of decimals with which nccl-tests prints a time."""
    if time_us < 100:
        return 2
    if time_us < 10_000:
        return 1
    return 0


def main(arguments: Sequence[str]) -> int:
    """Sweep, and print the table; return the exit status: `WRONG_RESULT` for a wrong element on any
    rank.
    """
    options = parse(arguments)
    torch.set_num_threads(1)
    here = rendezvous.place(options)
    rendezvous.join(here, options)
    sweep = RankSweep(options, here)
    printer = Printer(options, here)
    devices = rendezvous.share(device_line(here))
    printer.header(devices, sweep.note)
    sweep.warm_up()
    for size in sweep.sizes:
        layout = sweep.shape(size)
        longest = max(layout.sent, layout.received)
        sides = [sweep.side(size, in_place=in_place) for in_place in (False, True)]
        printer.row(layout, longest * sweep.element_bytes, sides)
    printer.footer()
    dist.barrier()
    dist.destroy_process_group()
    return WRONG_RESULT if printer.out_of_bounds else 0


def device_line(here: RankPlacement) -> str:
    """Return this rank's line in the header."""
    return (
        f"#  Rank {here.rank:2d} Group  0 Pid {os.getpid():6d} on {here.host:>10} device "
        f"{here.local_rank:2d} [] CPU"
    )


def parse(arguments: Sequence[str]) -> Namespace:
    """Return the options; exit with 2 for bad ones."""
    parser = parser_of("collective.py", __doc__, _OPTIONS)
    options: Namespace = parser.parse_args(arguments)
    are_sizes = 0 < options.min_bytes <= options.max_bytes
    if not are_sizes or options.step_factor < 2 or options.iterations < 1:
        parser.error(
            "needs 0 < --min-bytes <= --max-bytes, --step-factor of 2 or more, "
            "--iterations of 1 or more"
        )
    return options


if __name__ == "__main__":
    rendezvous.run("collective", main)
