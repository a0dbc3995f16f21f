"""Read reports of ranks whose step does not end from the output of seatrial's probes."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from seatrial.checks.failures import classify_failure
from seatrial.checks.lost_ranks import node_of
from seatrial.checks.training.on_ranks import NAME
from seatrial.model.reason import Reason, join
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.readers.flight_recorder import GroupTrace, RankTrace, late_ranks
from seatrial.readers.nccl_ras import read_ras
from seatrial.readers.transfers import Call, in_flight
from seatrial.remote.answers import NodeAnswer, Text, event_in
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.ranks import rank_of

_EVENT = '{"event": "stuck"'
_MOST_LINES = 200_000
_CONFIDENT = 0.9
_MOST_WORDS = 3  # most messages of RAS in a reason
RankNumber = Annotated[int, Field(ge=0, lt=1 << 31)]


class _Group(NodeAnswer):
    id: Text
    name: Text = ""
    ranks: list[RankNumber] = Field(max_length=200_000)
    collective: int = Field(ge=0, lt=1 << 62)
    operation: Text = ""


class _Call(NodeAnswer):
    group: Text
    operation: Text
    number: int = Field(ge=0, lt=1 << 62)
    is_done: bool


class _Gpu(NodeAnswer):
    busy_percent: FiniteFloat
    power_w: FiniteFloat


class _Stuck(NodeAnswer):
    """The event that seatrial/remote/probes/hang.py prints."""

    event: Literal["stuck"]
    rank: RankNumber
    host: Text
    step: int
    groups: list[_Group] = Field(max_length=64)
    calls: list[_Call] = Field([], max_length=256)
    stack: list[Text] = Field(max_length=32)
    waits: bool
    gpu: _Gpu | None = None
    ras: list[Annotated[str, Field(max_length=2000)]] = Field([], max_length=16_384)


def read_stuck(lines: Iterable[str]) -> list[RankTrace]:
    """Return the traces of all ranks that report that they hang, whatever the prefix of their
    lines.
    """
    trace_by_rank = {stuck.rank: _trace(stuck) for stuck in _events(lines)}
    return [trace_by_rank[rank] for rank in sorted(trace_by_rank)]


def _events(lines: Iterable[str]) -> Iterator[_Stuck]:
    """Yield the events that ranks printed about themselves; reports about other ranks are
    ignored.
    """
    for line in islice((line for line in lines if _EVENT in line), _MOST_LINES):
        stuck = event_in(line, _Stuck, "stuck")
        if stuck and rank_of(line) == stuck.rank:
            yield stuck


def _trace(stuck: _Stuck) -> RankTrace:
    """Return the report of a rank as a trace."""
    groups = {}
    for group in stuck.groups:
        operations = {group.collective: group.operation} if group.collective else {}
        groups[group.id] = GroupTrace(
            name=group.name,
            ranks=tuple(group.ranks),
            collective=group.collective,
            operations=operations,
        )
    calls = [Call(**call.model_dump()) for call in stuck.calls]
    gpu = stuck.gpu
    # A GPU that is busy with little power waits in an NCCL kernel.
    gpu_words = (
        f"; its GPU is {gpu.busy_percent:.0f} % busy with {gpu.power_w:.0f} W" if gpu else ""
    )
    return RankTrace(
        stuck.rank,
        groups,
        in_flight(calls, {group.id: group.ranks for group in stuck.groups}),
        host=stuck.host,
        stands=stuck.stack[0] if stuck.stack else "",
        waits=stuck.waits,
        gpu=gpu_words,
    )


def _words_of_ras(lines: Sequence[str]) -> list[Reason]:
    """Return what NCCL's RAS reports as wrong, from the first rank with such a report.

    It is only a hint, since it is about other ranks.
    """
    for stuck in _events(lines):
        report = read_ras(stuck.ras)
        bad = [result for result in report.results if result.verdict is not Verdict.PASS]
        if bad:
            return [
                Reason.of(result.code, tool=report.tool, what=result.words)
                for result in bad[:_MOST_WORDS]
            ]
    return []


def conclude_hang(testbed: Testbed, result: MpiResult) -> Check | None:
    """Return the check of a probe whose ranks report that they hang; None if nothing shows which
    ranks are late.

    Also None if the machine is too busy to play all nodes, which is no node's fault.
    """
    if result.starved:
        return None
    traces = read_stuck(result.lines)
    awaited = late_ranks(traces, testbed.world_size) if traces else []
    words = _words_of_ras(result.lines)
    if not awaited:
        if not words:
            return None
        hangs = Reason.of("training-hangs", late=words[0])
        return Check(NAME, Verdict.FAIL, hangs, result.seconds)
    suspects = {}
    for each in awaited:
        name = node_of(each.rank, each.host, testbed)
        suspects[name] = Suspect("node", name, _CONFIDENT, each.reason)
    few = tuple(suspects.values()) if 2 * len(suspects) <= max(2, len(testbed.nodes)) else ()
    reason = join((Reason.of("training-hangs", late=awaited[0].reason), *words))
    return Check(NAME, Verdict.FAIL, reason, result.seconds, suspects=few)


def conclude_without_end(testbed: Testbed, result: MpiResult, *, began: bool) -> Check:
    """Return the check of a probe without its last event, naming late ranks if ranks reported that
    they hang.
    """
    hanging = conclude_hang(testbed, result)
    return hanging or Check(NAME, *classify_failure(result, began=began), result.seconds)
