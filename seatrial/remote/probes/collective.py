"""Sweep one collective over message sizes with torch's gloo, as nccl-tests does on GPUs, and check
every result.

Started by mpirun (or srun, torchrun) on every rank. Sizes, counts, busbw factors, in-place and
out-of-place, the mean of the ranks' times (-a 1) and the printed table are those of nccl-tests
(src/common.cu, src/<collective>.cu and doc/PERFORMANCE.md), with three differences: sizes too small
to give every rank an element are left out; an in-place alltoall or sendrecv is checked too; and
torch knows no out-of-place all_reduce and broadcast, so theirs copy first.

Every rank's buffer is its own pattern of whole numbers, repeated with a prime period: no two ranks,
rounds or chunks look alike, so a chunk that is lost, stale or in the wrong place is seen. The
numbers are small enough that every sum is exact in the data type, so results are compared exactly.
NaN equals nothing and is therefore always wrong.

Exit statuses: rendezvous.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

try:  # first: it says so where torch is missing
    import rendezvous
    from collectives import COLLECTIVES, Shape
    from rendezvous import WRONG_RESULT, CannotStart, RankPlacement, one_line
except ModuleNotFoundError as missing:
    sys.stderr.write(f"{sys.argv[0]}: cannot start: {missing.name}.py is missing beside it\n")
    sys.exit(3)
import torch
import torch.distributed as dist

Call = Callable[[torch.Tensor, torch.Tensor], None]
# Elements; the largest prime below 2^16, so no multiple of it is the start of a chunk
PERIOD = 65521
# Periods that are compared in one go: bounds the memory of a check to about a million elements
_WIDE = 16
_MASK = 0xFFFFFFFF
_EXACT = {
    "float32": 1 << 24,
    "float64": 1 << 53,
    "int32": 1 << 30,
    "bfloat16": 1 << 8,
    "float16": 1 << 11,
}
_MAX_VALUE = 4093
# Type names as nccl-tests prints them.
_DTYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int32",
    "bfloat16": "bfloat16",
    "float16": "half",
}


def choose(operation: str, dtype: torch.dtype, ranks: int) -> tuple[Call, str | None]:
    """Choose the call of the operation by a trial on a small buffer; with a note for the log.

    Raises CannotStart.
    """
    layout = COLLECTIVES[operation].layout
    part, trial = torch.ones(16, dtype=dtype), torch.ones(16 * ranks, dtype=dtype)
    # What torch says when it refuses the call itself, which it does before anything is sent.
    refusals = ("support", "invalid scalar type", "not implemented", "no attribute")
    problem = ""
    for run in CALLS[operation]:
        source = part if layout.sends_part else trial
        target = (part if layout.receives_part else trial).clone()
        try:
            run(source, target)
        except (RuntimeError, NotImplementedError, AttributeError, ValueError) as error:
            problem = one_line(error)
            if not any(words in problem.lower() for words in refusals):
                raise
            continue
        return run, run.__doc__
    raise CannotStart(f"gloo of torch {torch.__version__} has no {operation} of {dtype}: {problem}")


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


def reduce(source: torch.Tensor, target: torch.Tensor) -> None:
    if source is not target:
        target.copy_(source)
    dist.reduce(target, 0)


def gather(source: torch.Tensor, target: torch.Tensor) -> None:
    dist.gather(
        source, list(target.view(dist.get_world_size(), -1)) if dist.get_rank() == 0 else None
    )


def scatter(source: torch.Tensor, target: torch.Tensor) -> None:
    dist.scatter(
        target, list(source.view(dist.get_world_size(), -1)) if dist.get_rank() == 0 else None
    )


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


@dataclass(frozen=True)
class Part:
    """A stretch of the result: `count` elements at `start` are `pattern` from its element `phase`
    on.
    """

    pattern: torch.Tensor
    phase: int
    start: int
    count: int


def max_value(operation: str, dtype: str, ranks: int) -> int:
    """Return the largest number to send so that what is received is exact in `dtype`.

    Raises CannotStart.
    """
    top = min(_MAX_VALUE, _EXACT[dtype] // (ranks if COLLECTIVES[operation].sums else 1))
    if top < 2:
        raise CannotStart(
            f"{dtype} sums over {ranks} ranks are not exact, so they cannot be checked; use float32"
        )
    return top


def pattern(rank: int, round_number: int, top: int, length: int) -> torch.Tensor:
    """Return the first `length` (at most PERIOD) numbers 1..top that `rank` sends in round
    `round_number`, as int64.

    A multiplicative hash (murmur3's finalizer) instead of a random generator: every version of
    torch gets the same.
    """
    x = (
        torch.arange(min(length, PERIOD), dtype=torch.int64)
        + (rank + 1) * PERIOD
        + round_number * 7919 * PERIOD
    )
    x = x ^ (x >> 16)
    for factor, shift in ((0x85EBCA6B, 13), (0xC2B2AE35, 16)):
        x = ((x & _MASK) * factor) & _MASK
        x = x ^ (x >> shift)
    return x % top + 1


def parts(
    operation: str, rank: int, ranks: int, count: int, data: Callable[[int], torch.Tensor]
) -> Iterator[Part]:
    """Yield what `rank` must receive, given what each rank sends (`data`); `count` as in rows of
    nccl-tests.
    """
    for stretch in COLLECTIVES[operation].receives(rank, ranks):
        first, *others = stretch.senders
        total = data(first)
        for other in others:
            total = total + data(other)
        yield Part(total, stretch.phase * count, stretch.start * count, count)


def stretches(part: Part, dtype: torch.dtype) -> Iterator[tuple[int, int, torch.Tensor]]:
    """Yield (start, end, numbers) that cover the part, a bounded piece at a time."""
    period = len(part.pattern)
    wide = part.pattern.to(dtype).repeat(1 + min(_WIDE, -(-part.count // period)))
    for offset in range(0, part.count, _WIDE * period):
        size = min(_WIDE * period, part.count - offset)
        phase = (part.phase + offset) % period
        yield part.start + offset, part.start + offset + size, wide[phase : phase + size]


def fill(buffer: torch.Tensor, numbers: torch.Tensor) -> None:
    """Write the pattern over the whole buffer."""
    for start, end, values in stretches(Part(numbers, 0, 0, len(buffer)), buffer.dtype):
        buffer[start:end] = values


def spoil(buffer: torch.Tensor) -> None:
    """Overwrite with a value of no pattern, so that an element that never arrives is wrong."""
    buffer.fill_(float("nan") if buffer.is_floating_point() else -1)


def count_wrong(received: torch.Tensor, expected: Iterator[Part]) -> int:
    """Count the elements of `received` that are wrong."""
    wrong = 0
    for part in expected:
        for start, end, values in stretches(part, received.dtype):
            wrong += int((received[start:end] != values).sum())
    return wrong


@dataclass(frozen=True)
class Side:
    """One side of a row: mean seconds of one iteration, wrong elements over all ranks."""

    seconds: float
    wrong: int


class RankSweep:
    """One rank's part in the sweep."""

    def __init__(self, options: argparse.Namespace, here: RankPlacement) -> None:
        self.options, self.here = options, here
        self.layout = COLLECTIVES[options.operation].layout
        self.dtype: torch.dtype = getattr(torch, options.dtype)
        self.top = max_value(options.operation, options.dtype, here.world_size)
        self.element_bytes = torch.empty(0, dtype=self.dtype).element_size()
        self.sizes = [size for size in sizes(options) if self.shape(size).count > 0]
        if not self.sizes:
            raise CannotStart(
                f"{options.max_bytes} bytes are too few to give each of {here.world_size} "
                "ranks a part"
            )
        self.collective, self.note = choose(options.operation, self.dtype, here.world_size)
        elements = max(options.max_bytes // self.element_bytes, 1)
        self._send, self._receive = (torch.empty(elements, dtype=self.dtype) for _ in range(2))
        self._turn = 0

    def shape(self, size: int) -> Shape:
        return self.layout.shape(size, self.element_bytes, self.here.world_size)

    def warm_up(self) -> None:
        """Run untimed iterations at the largest and the smallest size, as nccl-tests does."""
        for size in (self.sizes[-1], self.sizes[0]):
            source, target = self.prepare(self.shape(size), in_place=False)
            for _ in range(self.options.warmup_iterations):
                self.collective(source, target)

    def side(self, size: int, *, in_place: bool) -> Side:
        """Time one size, then run it once more on fresh data and check what arrived."""
        seconds = self.measure(*self.prepare(self.shape(size), in_place=in_place))
        dist.barrier()
        source, target = self.prepare(self.shape(size), in_place=in_place)
        self.collective(source, target)
        return Side(seconds, self.check(self.shape(size), target))

    def prepare(self, layout: Shape, *, in_place: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this rank's source, with the next round's data, and target, with nothing valid in
        it.
        """
        self._turn += 1
        spoil(self._receive[: max(layout.sent, layout.received)])
        source, target = self.buffers(layout, in_place=in_place)
        fill(source, self.data(self.here.rank, layout))
        return source, target

    def buffers(self, layout: Shape, *, in_place: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the buffers to send from and receive into; in place, a rank's part is where
        nccl-tests has it.
        """
        if not in_place:
            return self._send[: layout.sent], self._receive[: layout.received]
        whole = self._receive[: max(layout.sent, layout.received)]
        part = whole[self.here.rank * layout.count : (self.here.rank + 1) * layout.count]
        return (part if self.layout.sends_part else whole), (
            part if self.layout.receives_part else whole
        )

    def data(self, rank: int, layout: Shape) -> torch.Tensor:
        return pattern(rank, self._turn, self.top, layout.sent)

    def measure(self, source: torch.Tensor, target: torch.Tensor) -> float:
        """Return the seconds of one iteration, the mean over the ranks."""
        self.collective(source, target)
        dist.barrier()
        started = time.perf_counter()
        for _ in range(self.options.iterations):
            self.collective(source, target)
        mine = (time.perf_counter() - started) / self.options.iterations
        return over_ranks(mine) / int(self.here.world_size)

    def check(self, layout: Shape, target: torch.Tensor) -> int:
        """Count wrong elements, summed over the ranks."""
        operation, here = self.options.operation, self.here
        if self.options.corrupt == here.rank:
            target[len(target) // 2] *= -1
        expected = parts(
            operation,
            here.rank,
            here.world_size,
            layout.count,
            lambda rank: self.data(rank, layout),
        )
        return int(over_ranks(count_wrong(target, expected)))


def sizes(options: argparse.Namespace) -> Iterator[int]:
    size = options.min_bytes
    while size <= options.max_bytes:
        yield size
        size *= options.step_factor


def over_ranks(value: float) -> float:
    """Return the sum of every rank's value; whole numbers stay exact up to 2^53."""
    total = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(total)
    return float(total[0])


class Printer:
    """The table of nccl-tests, printed by rank 0 a row at a time."""

    def __init__(self, options: argparse.Namespace, here: RankPlacement) -> None:
        self.options = options
        self.collective = COLLECTIVES[options.operation]
        self.here = here
        self.busbw: list[float] = []
        self.out_of_bounds = 0

    def say(self, text: str) -> None:
        if self.here.rank == 0:
            print(text, flush=True)

    def header(self, devices: Sequence[str], note: str | None) -> None:
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
        self.say(
            "\n".join(["#", "# Using devices", *devices, *([f"# {note}"] if note else []), "#"])
        )
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
        root = 0 if self.collective.rooted else -1
        dtype = _DTYPES[self.options.dtype]
        line = f"{size:12d}  {layout.count:12d}  {dtype:>8}  {self.collective.redop:>6}  {root:6d}"
        for side in sides:
            time_us, algbw = side.seconds * 1e6, size / side.seconds / 1e9
            busbw = algbw * self.collective.factor(self.here.world_size)
            digits = 2 if time_us < 100 else 1 if time_us < 10_000 else 0
            line += f"  {time_us:7.{digits}f}  {algbw:6.2f}  {busbw:6.2f}  {side.wrong:6d}"
            self.busbw.append(busbw)
            self.out_of_bounds += side.wrong > 0
        self.say(line)

    def footer(self) -> None:
        self.say(
            f"# Out of bounds values : {self.out_of_bounds} "
            f"{'FAILED' if self.out_of_bounds else 'OK'}"
        )
        self.say(f"# Avg bus bandwidth    : {sum(self.busbw) / len(self.busbw):g}")
        self.say(f"#\n# Collective test concluded: {self.options.operation}_perf\n#")


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    torch.set_num_threads(1)
    here = rendezvous.place(options)
    rendezvous.join(here, options)
    sweep = RankSweep(options, here)
    printer = Printer(options, here)
    printer.header(rendezvous.share(device_line(here)), sweep.note)
    sweep.warm_up()
    for size in sweep.sizes:
        layout = sweep.shape(size)
        moved = max(layout.sent, layout.received) * sweep.element_bytes
        printer.row(
            layout, moved, [sweep.side(size, in_place=in_place) for in_place in (False, True)]
        )
    printer.footer()
    dist.barrier()
    dist.destroy_process_group()
    return WRONG_RESULT if printer.out_of_bounds else 0


def device_line(here: RankPlacement) -> str:
    return (
        f"#  Rank {here.rank:2d} Group  0 Pid {os.getpid():6d} on {here.host:>10} device "
        f"{here.local_rank:2d} [] CPU"
    )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="collective.py", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--operation", choices=tuple(CALLS), required=True)
    parser.add_argument("--min-bytes", type=int, default=1024, help="smallest message (-b)")
    parser.add_argument("--max-bytes", type=int, default=1 << 24, help="largest message (-e)")
    parser.add_argument(
        "--step-factor", type=int, default=2, help="factor from one size to the next (-f)"
    )
    parser.add_argument(
        "--warmup-iterations", type=int, default=1, help="iterations that are not timed (-w)"
    )
    parser.add_argument("--iterations", type=int, default=20, help="iterations that are timed (-n)")
    parser.add_argument("--dtype", choices=tuple(_DTYPES), default="float32", help="(-d)")
    # For tests of the check itself
    parser.add_argument("--corrupt", type=int, metavar="RANK", help=argparse.SUPPRESS)
    rendezvous.add_arguments(parser)
    options = parser.parse_args(arguments)
    if (
        not 0 < options.min_bytes <= options.max_bytes
        or options.step_factor < 2
        or options.iterations < 1
    ):
        parser.error(
            "needs 0 < --min-bytes <= --max-bytes, --step-factor of 2 or more, "
            "--iterations of 1 or more"
        )
    return options


if __name__ == "__main__":
    rendezvous.run("collective", main)
