"""Problems in the rows and ranks of a sweep that show without any baseline. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from statistics import median

from seatrial.catalog import is_sockets
from seatrial.model.measurement import ConditionValue, Subject
from seatrial.model.reason import Reason
from seatrial.model.setup import INSIDE_A_NODE
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict
from seatrial.nccl import Row, Sweep, Timing
from seatrial.nccl.busbw import agrees, ratio_interval
from seatrial.nccl.collectives import COLLECTIVES
from seatrial.text.words import number

Problem = tuple[Verdict, Reason]
Rows = Sequence[Row]
Rate = Callable[[int, Timing], float | None]  # busbw in GB/s of a timing, given the size in bytes
SMALLEST_PLATEAU_BYTES = 4 << 20  # latency dominates the time of smaller messages on GPUs
_ALIGNED_BYTES = 1 << 20  # with many ranks, several smaller sizes may be rounded to the same one
# From this size on, an iteration is too long for a short disturbance to slow it by this factor
_LARGE_BYTES = 128 << 20
# From one size to a larger one no published sweep falls below 0.81 (tests/golden/nccl-logs), and
# 0.72 is what a ring reaches of a tree over two nodes
# (https://github.com/NVIDIA/nccl-tests/issues/196).
_SLOWER = 0.7
_SMALL_BYTES = 64 << 10
# Published medians up to 64K are 5 to 223 us over up to 128 ranks, and 3.8 ms over 512.
_SLOW_US = 350.0
_SLOW_US_PER_RANK = 8.0
_MIDDLE_BYTES = range(1 << 20, (64 << 20) + 1)
# (n, factor): n consecutive sizes are slow if all take `factor` times as long as latency and
# bandwidth explain. In published sweeps three take up to 3.7 times as long, and five up to 2.5
# times.
_SLOW_RUNS = ((3, 3.9), (5, 2.9))
# Key of rows that one program prints only once
_key = attrgetter("size", "type", "redop", "root")
_MAX_TORN = 1  # lines of a header that another process's output may have torn


@dataclass(frozen=True, slots=True)
class Setting:
    """The request of a sweep: what to measure, over how many ranks of which cluster.

    `sizes` are bytes, smallest first. `fabric` is the network that data must use, None if sockets
    suffice. `nodes` is the number of nodes that the ranks must span, None if unknown. `algorithms`
    are NCCL's by message size, 0 for the largest, if they are conditions of the measurements.
    `is_whole_on_gpus`: a complete sweep on GPUs, which must have a plateau. `arm`: an arm of
    seatrial/model/setup.py; empty for none. `node`: the node of all ranks if each node is measured
    alone. `called_with`: conditions from arguments of nccl-tests. `ranks` is 0 if a log has lost
    its header and the numbers do not reveal the ranks.
    """

    operation: str
    dtype: str
    ranks: int
    cluster: str
    sizes: tuple[int, ...]
    fabric: str | None = None
    nodes: int | None = None
    algorithms: Mapping[int, str] = field(default_factory=dict)
    is_whole_on_gpus: bool = False
    arm: str = ""
    node: str = ""
    called_with: Mapping[str, ConditionValue] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the sweep in reasons: all_reduce, "all_reduce (network)"."""
        if self.arm:
            return f"{self.operation} ({self.arm})"
        return self.operation

    @property
    def subject(self) -> Subject:
        if self.node:
            return Subject("node", self.node)
        return Subject("cluster", self.cluster)


def network_of(fabric: str | None) -> str | None:
    """Return the network that data between nodes must use; None if sockets or the GPUs' own links
    will do.
    """
    if fabric is None or fabric in INSIDE_A_NODE or is_sockets(fabric):
        return None
    return fabric


def interleaved(rows: Rows) -> Problem | None:
    """Return a problem if the rows, in the order of printing, are from several programs that wrote
    at once.

    One program prints each size once, and all of its rows either have a reduction or none, and
    either have a root or none.
    """
    sums = {row.redop not in (None, "none", "all") for row in rows}
    rooted = {row.root >= 0 for row in rows if row.root is not None}
    twice = any(
        _key(a) == _key(b) and a != b for a, b in pairwise(rows) if a.size >= _ALIGNED_BYTES
    )
    if twice or len(sums) > 1 or len(rooted) > 1:
        return Verdict.INCONCLUSIVE, Reason.of("sweeps-interleaved")
    return None


def without_plateau(sizes: Sequence[int]) -> Problem | None:
    """Return a problem if the largest message is too small to measure the bandwidth of GPUs."""
    if not sizes or max(sizes) >= SMALLEST_PLATEAU_BYTES:
        return None
    largest = format_size(max(sizes))
    needed = format_size(SMALLEST_PLATEAU_BYTES)
    return Verdict.INCONCLUSIVE, Reason.of("sweep-too-small", largest=largest, needed=needed)


def slow_in_place(rows: Rows, rate: Rate) -> Problem | None:
    """Return a problem if in-place results are much slower than out-of-place ones at two or more
    large sizes.
    """
    slow = []
    for row in rows:
        out, into = (
            rate(row.size, side) if side else None for side in (row.out_of_place, row.in_place)
        )
        if row.size >= _LARGE_BYTES and out and into is not None and into < _SLOWER * out:
            slow.append((row.size, into, out))
    if len(slow) < 2:
        return None
    size, into, out = slow[-1]
    return Verdict.DEGRADED, Reason.of(
        "in-place-slow",
        size=format_size(size),
        in_place=number(into),
        out_of_place=number(out),
        sizes=len(slow),
    )


def slow_small_messages(rows: Rows, ranks: int) -> Problem | None:
    """Return a problem if the median time of messages up to 64K is milliseconds; the first is often
    an outlier.
    """
    times = [
        side.time_us
        for row in rows
        if row.size <= _SMALL_BYTES
        for side in row.sides
        if side.time_us
    ]
    limit_us = max(_SLOW_US, _SLOW_US_PER_RANK * ranks)
    if not times or median(times) <= limit_us:
        return None
    return Verdict.DEGRADED, Reason.of(
        "small-messages-slow", time=number(median(times)), limit=number(limit_us)
    )


def slow_middle_sizes(rows: Rows, rate: Rate) -> Problem | None:
    """Return a problem if messages of 1M to 64M take much longer than the smallest latency and the
    best rate explain.

    Gradients are sent in messages of that size. A wrong algorithm or protocol for them shows at no
    other size.
    """
    timed = [
        (row.size, side.time_us, reached)
        for row in rows
        if (side := row.out_of_place) and side.time_us and (reached := rate(row.size, side))
    ]
    small = [time_us for size, time_us, _ in timed if size <= _SMALL_BYTES]
    if not small:
        return None
    latency_us = median(small)
    best = max(reached for _, _, reached in timed)
    middle = [(size, time_us, reached) for size, time_us, reached in timed if size in _MIDDLE_BYTES]
    excess = [time_us / (latency_us + time_us * reached / best) for _, time_us, reached in middle]
    for count, most in _SLOW_RUNS:
        for start in range(len(excess) - count + 1):
            if min(excess[start : start + count]) > most:
                first, _, _ = middle[start]
                last, _, reached = middle[start + count - 1]
                return Verdict.DEGRADED, Reason.of(
                    "middle-sizes-slow",
                    first=format_size(first),
                    last=format_size(last),
                    reached=number(reached),
                    best=number(best),
                )
    return None


def falls_off(rows: Rows, rate: Rate) -> Problem | None:
    """Return a problem if a large message has a much lower rate than a smaller one."""
    best = 0.0
    for row in sorted(rows, key=lambda row: row.size):
        reached = rate(row.size, row.out_of_place) if row.out_of_place else None
        if reached is None:
            continue
        if row.size >= _LARGE_BYTES and reached < _SLOWER * best:
            return Verdict.DEGRADED, Reason.of(
                "falls-at-size",
                reached=number(reached),
                size=format_size(row.size),
                best=number(best),
            )
        best = max(best, reached)
    return None


def other_ranks(setting: Setting, sweep: Sweep | None) -> Problem | None:
    """Return a problem if other ranks than requested took part.

    A torn line of the header is no evidence. The ratio busbw/algbw is: it shows the number of
    ranks, or, if rows lack it, the number is unknown.
    """
    if sweep is None or (sweep.ranks or 0) == setting.ranks:
        return None
    took_part = sweep.ranks
    asked = setting.ranks
    if sweep.groups > 1 or has_unknown_ranks(setting, sweep):
        return _unsaid_ranks(setting, sweep)
    if not agrees(setting.operation, asked, sweep.rows):
        why = f": {sweep.errors[0]}" if sweep.errors else ""
        part = f"{took_part} of {asked}" if took_part else f"other than {asked}"
        return Verdict.FAIL, Reason.of("ranks-missing", took_part=part, cause=why)
    if took_part is None or _numbers_tell_ranks(setting, sweep):
        return None
    listed = sorted(device.rank for device in sweep.devices) == list(range(took_part))
    if sweep.rows and listed and took_part + _MAX_TORN < asked:
        return Verdict.FAIL, Reason.of(
            "ranks-missing", took_part=f"{took_part} of {asked}", cause=""
        )
    return Verdict.INCONCLUSIVE, Reason.of(
        "ranks-unknown",
        problem=f"the output names {took_part} of {asked} ranks, and its numbers do not tell",
    )


def _unsaid_ranks(setting: Setting, sweep: Sweep) -> Problem | None:
    """Return a problem if the output does not say how many ranks took part."""
    if sweep.groups > 1:
        return Verdict.INCONCLUSIVE, Reason.of("ranks-in-groups", groups=sweep.groups)
    if not sweep.rows:
        return None
    problem = (
        f"how many of {setting.ranks} ranks took part is unknown: the header is lost, and the "
        "numbers do not tell"
    )
    return Verdict.INCONCLUSIVE, Reason.of("ranks-unknown", problem=problem)


def _numbers_tell_ranks(setting: Setting, sweep: Sweep) -> bool:
    return (
        COLLECTIVES[setting.operation].factor.depends_on_ranks
        and ratio_interval(sweep.rows) is not None
    )


def has_unknown_ranks(setting: Setting, sweep: Sweep | None) -> bool:
    """Return whether neither the header nor the numbers reveal how many ranks took part."""
    return sweep is not None and sweep.ranks is None and not _numbers_tell_ranks(setting, sweep)


def fewer_nodes(setting: Setting, sweep: Sweep | None) -> Problem | None:
    """Return a problem if all ranks ran on fewer nodes than requested, as with an ignored hostfile.

    Host names count only if every rank has a line, and no two ranks on one host have the same GPU.
    """
    if sweep is None or not setting.nodes or len(sweep.devices) != sweep.ranks:
        return None
    places = {(device.host, device.device) for device in sweep.devices}
    if len(sweep.hosts) >= setting.nodes or len(places) < len(sweep.devices):
        return None
    return Verdict.FAIL, Reason.of(
        "ranks-on-fewer-nodes",
        ranks=sweep.ranks,
        hosts=len(sweep.hosts),
        nodes=setting.nodes,
        min=min(sweep.hosts),
    )
