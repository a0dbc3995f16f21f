"""What ranks say when their step does not end, read from the output of seatrial's own probes."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from seatrial.nccl.flight_recorder import GroupTrace, RankTrace
from seatrial.remote.answers import NodeAnswer, Text, read_answer

_EVENT = '{"event": "stuck"'
_MOST_LINES = 200_000
RankNumber = Annotated[int, Field(ge=0, lt=1 << 31)]


class _Group(NodeAnswer):
    id: Text
    name: Text = ""
    ranks: list[RankNumber] = Field(max_length=200_000)
    collective: int = Field(ge=0, lt=1 << 62)
    operation: Text = ""


class _Gpu(NodeAnswer):
    busy_percent: FiniteFloat
    power_w: FiniteFloat


class _Stuck(NodeAnswer):
    """The event of seatrial/remote/probes/hang.py."""

    event: Literal["stuck"]
    rank: RankNumber
    host: Text
    step: int
    groups: list[_Group] = Field(max_length=64)
    stack: list[Text] = Field(max_length=32)
    waits: bool
    gpu: _Gpu | None = None


def read_stuck(lines: Iterable[str]) -> list[RankTrace]:
    """The traces of all ranks that said where they stand, whatever stands before it in their lines."""
    found: dict[int, RankTrace] = {}
    for line in lines:
        start = line.find(_EVENT)
        if start < 0 or len(found) >= _MOST_LINES:
            continue
        try:
            stuck = read_answer(_Stuck, line[start:])
        except ValueError:
            continue
        found[stuck.rank] = _trace(stuck)
    return [found[rank] for rank in sorted(found)]


def _trace(stuck: _Stuck) -> RankTrace:
    groups = {}
    for group in stuck.groups:
        operations = {group.collective: group.operation} if group.collective else {}
        groups[group.id] = GroupTrace(group.name, tuple(group.ranks), group.collective, operations)
    stands = stuck.stack[0] if stuck.stack else ""
    return RankTrace(stuck.rank, groups, stuck.host, stands, stuck.waits, _busy(stuck.gpu))


def _busy(gpu: _Gpu | None) -> str:
    """How busy a GPU is, for a sentence; busy with little power means that it waits in a kernel of NCCL's."""
    return f"; its GPU is {gpu.busy_percent:.0f} % busy with {gpu.power_w:.0f} W" if gpu else ""
