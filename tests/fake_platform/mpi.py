"""What mpirun and the programs that it starts on every rank answer on healthy nodes."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from seatrial.nccl.collectives import COLLECTIVES
from seatrial.nccl.rows import TYPES
from tests.fake_platform.node import FakeNode, Program, ProgramOutput, Request
from tests.fake_platform.programs import link_mb_s

_TIME_IS_UP = "seatrial-supervisor: time is up\n"
# Words after each option
_VALUES = {"-x": 1, "--hostfile": 1, "-np": 1, "--map-by": 1, "--bind-to": 1, "--mca": 2}
_NAMES = {"float32": "float", "float64": "double", "float16": "half"}  # as nccl-tests prints them
_BATCH_LOSSES = (4.0, 1.0)  # nats, at the first and at the last step of training


def supervise(request: Request, run: Callable[[Request], ProgramOutput]) -> ProgramOutput:
    """seatrial/remote/probes/supervise.py with an mpirun: `run` is asked for what the ranks print.

    Nothing runs where mpirun cannot reach a node: it says so as ssh does, and ends.
    """
    argv = request.words[3:]
    program = _without_options(argv)
    hosts = request.node.files.get(argv[argv.index("--hostfile") + 1], "")
    ranks = tuple(_ranks(hosts, {node.address: node for node in request.peers.values()}))
    for node in dict.fromkeys(node.name for node in ranks if node is not request.node):
        peer = request.peers[node]
        if not peer.begin(program) or peer.unreachable:
            return ProgramOutput(f"{peer.unreachable}\n", 255)
    env: Mapping[str, str] = json.loads(request.stdin)
    answer = _of_ranks(
        run(Request(request.node, program, "", request.peers, ranks, env)), program[0], ranks
    )
    if not answer.hangs:
        return answer
    ended = f"{answer.output}{_TIME_IS_UP}"
    return replace(answer, output=ended, exit_status=1, hangs=False)


def _of_ranks(answer: ProgramOutput, program: str, ranks: tuple[FakeNode, ...]) -> ProgramOutput:
    """The output, each line with its rank's tag or in rank 0's pipe: the rank that it names, else
    rank 0.
    """
    lines_of_ranks: list[list[str]] = [
        [f"seatrial-rank: {rank} on {node.hostname}"] for rank, node in enumerate(ranks)
    ]
    of_mpirun = []
    for number, line in enumerate(answer.output.splitlines()):
        named = re.search(r' rank (\d+): |"event": "part", "rank": (\d+)', line)
        rank = int(named[1] or named[2]) if named else number if program == "hostname" else 0
        if line.startswith(("mpirun", "seatrial-supervisor", "---")):
            of_mpirun.append(line)
        elif rank < len(ranks):
            lines_of_ranks[rank].append(line)
    tagged = [
        f"[1,{rank}]<stdout>:{line}"
        for rank, lines in enumerate(lines_of_ranks)
        if rank
        for line in lines
    ]
    output = "".join(f"{line}\n" for line in [*tagged, *of_mpirun])
    return replace(answer, output=output, rank_0="".join(f"{line}\n" for line in lines_of_ranks[0]))


def _without_options(argv: tuple[str, ...]) -> tuple[str, ...]:
    """What mpirun starts, after its own options."""
    at = 1
    while argv[at].startswith("-"):
        at += 1 + _VALUES.get(argv[at], 0)
    return argv[at + 3 :]  # without rank.sh and its pipe


def _ranks(hostfile: str, by_address: Mapping[str, FakeNode]) -> Iterator[FakeNode]:
    """The node of every rank, in order."""
    for line in hostfile.splitlines():
        address, slots, _ = line.split()
        yield from [by_address[address]] * int(slots.removeprefix("slots="))


@dataclass(frozen=True, slots=True)
class _SweepRequest:
    """What one sweep was asked to do."""

    operation: str
    sizes: tuple[int, ...]
    dtype: str

    @property
    def element_bytes(self) -> int:
        return TYPES[self.dtype]


def collective(request: Request) -> str:
    """The gloo probe's table, seatrial/remote/probes/collective.py."""
    dtype = request.option("--dtype", "float32")
    sizes = _sizes(request, "--min-bytes", "--max-bytes", "--step-factor")
    return _table(
        _SweepRequest(request.option("--operation"), sizes, _NAMES.get(dtype, dtype)), request.ranks
    )


def nccl_tests(request: Request) -> str:
    """The table of nccl-tests; an old version, which knows no -J."""
    if "--help" in request.words:
        return "USAGE: all_reduce_perf\n"
    operation = request.words[0].removesuffix("_perf")
    return _table(
        _SweepRequest(operation, _sizes(request, "-b", "-e", "-f"), request.option("-d", "float")),
        request.ranks,
    )


def _sizes(request: Request, smallest: str, largest: str, factor: str) -> tuple[int, ...]:
    sizes = [int(request.option(smallest))]
    while sizes[-1] * int(request.option(factor)) <= int(request.option(largest)):
        sizes.append(sizes[-1] * int(request.option(factor)))
    return tuple(sizes)


def _table(sweep: _SweepRequest, ranks: tuple[FakeNode, ...]) -> str:
    """Every rank's line, a row per size and the footer. The slowest node's link bounds busbw."""
    lines = [
        f"# Collective test starting: {sweep.operation}_perf",
        "# nThread 1 nGpus 1",
        "#",
        "# Using devices",
    ]
    for rank, node in enumerate(ranks):
        device = ranks[:rank].count(node)
        lines.append(
            f"#  Rank {rank:2d} Group  0 Pid {100 + rank:6d} on {node.hostname:>10} "
            f"device {device:2d} [] CPU"
        )
    lines += [
        "#",
        (
            "#       size         count      type   redop    root     time   algbw   busbw  "
            "#wrong  (us)  (GB/s)"
        ),
    ]
    rows = [_row(sweep, size, ranks) for size in sweep.sizes]
    lines += [text for text, _ in rows if text]
    busbw = [rate for text, rate in rows if text]
    lines += [
        "# Out of bounds values : 0 OK",
        f"# Avg bus bandwidth    : {sum(busbw) / max(1, len(busbw)):g}",
        "#",
    ]
    return "\n".join([*lines, f"# Collective test concluded: {sweep.operation}_perf", ""])


def _row(sweep: _SweepRequest, size: int, ranks: tuple[FakeNode, ...]) -> tuple[str, float]:
    """A row and its busbw in GB/s; no row where the size is too small to give every rank an
    element.
    """
    known = COLLECTIVES[sweep.operation]
    shape = known.layout.shape(size, sweep.element_bytes, len(ranks))
    if not shape.count:
        return "", 0.0
    moved = max(shape.sent, shape.received) * sweep.element_bytes
    factor = known.factor(len(ranks)) or 1.0
    time_us = max(node.latency_us for node in ranks) + moved * factor / link_mb_s(ranks)
    algbw = moved / time_us / 1e3
    side = f"  {time_us:7.2f}  {algbw:6.2f}  {algbw * factor:6.2f}       0"
    root = 0 if known.rooted else -1
    row = (
        f"{moved:12d}  {shape.count:12d}  {sweep.dtype:>8}  {known.redop:>6}  {root:6d}{side}{side}"
    )
    return row, algbw * factor


def all_reduce(request: Request) -> str:
    """The event of seatrial/remote/probes/all_reduce.py: nothing is wrong."""
    ranks = [
        {"rank": rank, "host": node.hostname, "wrong": 0, "first_wrong": None}
        for rank, node in enumerate(request.ranks)
    ]
    rounds = int(request.option("--rounds"))
    event = {
        "event": "all_reduce",
        "rounds": rounds,
        "elements": 2_000_000,
        "backend": "gloo",
        "ranks": ranks,
    }
    return "".join(f"{json.dumps(each)}\n" for each in [*_parts(ranks), event])


def _parts(ranks: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """What each rank prints of itself."""
    return [{"event": "part", **rank} for rank in ranks]


def training(request: Request) -> str:
    """The events of seatrial/remote/probes/training.py: the loss falls evenly, and the slowest rank
    sets the pace.
    """
    steps, ranks = int(request.option("--steps")), request.ranks
    step_ms = max(node.step_time_ms for node in ranks)
    first, last = _BATCH_LOSSES
    losses = [first + (last - first) * step / max(1, steps - 1) for step in range(steps)]
    events = [
        {"event": "step", "step": step, "loss": loss, "step_time_ms": step_ms}
        for step, loss in enumerate(losses)
    ]
    ends = [_end(rank, node, step_ms) for rank, node in enumerate(ranks)]
    summary = {
        "event": "summary",
        "world_size": len(ranks),
        "steps": steps,
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "throughput_samples_s": int(request.option("--batch")) * len(ranks) / step_ms * 1e3,
        "step_time_ms": [step_ms] * steps,
        "ranks": ends,
    }
    return "".join(f"{json.dumps(event)}\n" for event in [*events, *_parts(ends), summary])


def _end(rank: int, node: FakeNode, step_ms: float) -> dict[str, object]:
    return {
        "rank": rank,
        "host": node.hostname,
        "checksum": "a" * 64,
        "finite": True,
        "step_time_ms_median": step_ms,
        "compute_ms_median": node.step_time_ms / 2,
    }


ON_RANKS: Mapping[str, Program] = {
    "collective.py": collective,
    "all_reduce.py": all_reduce,
    "training.py": training,
} | {f"{name}_perf": nccl_tests for name in COLLECTIVES}
