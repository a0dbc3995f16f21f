"""Whether all ranks sum alike and right, as torch does it for data parallel training: the probe all_reduce. Pure."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from seatrial.checks.broken import broken
from seatrial.checks.rank_nodes import node_of
from seatrial.model.reason import Reason
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.answers import NodeAnswer, Text, read_answer
from seatrial.remote.mpi import MpiResult

_EVENT = '{"event": "all_reduce"'


class RankSums(NodeAnswer):
    """What one rank received: `wrong` elements over all rounds, the first of them in round `first_wrong`."""

    rank: int = Field(ge=0)
    host: Text
    wrong: int = Field(ge=0)
    first_wrong: int | None = Field(ge=0)


class Sums(NodeAnswer):
    """The event that seatrial/remote/probes/all_reduce.py ends with."""

    event: Literal["all_reduce"]
    rounds: int = Field(ge=1)
    elements: int = Field(ge=1)
    backend: Text
    ranks: list[RankSums] = Field(max_length=100_000)


def read_sums(line: str) -> Sums | None:
    """The event in a line of output, whatever stands before it; None where there is no whole one."""
    start = line.find(_EVENT)
    if start < 0:
        return None
    try:
        return read_answer(Sums, line[start:])
    except ValueError:
        return None


def conclude_sums(name: str, testbed: Testbed, result: MpiResult) -> Check:
    """What one mpirun of the probe came to; the check passes where every element of every rank was right."""
    sums = next((sums for line in result.lines if (sums := read_sums(line))), None)
    if sums is None:
        verdict, reason = broken(result, began=False)
        return Check(name, verdict, reason, result.seconds)
    verdict, reason = _problem(sums, testbed) or (Verdict.PASS, _summary(sums))
    suspects = tuple(_suspects(sums, testbed)) if verdict is Verdict.CORRUPT else ()
    return Check(name, verdict, reason, result.seconds, suspects=suspects)


def _problem(sums: Sums, testbed: Testbed) -> tuple[Verdict, str] | None:
    if len(sums.ranks) != testbed.world_size:
        values = {"ranks": len(sums.ranks), "world_size": testbed.world_size}
        return Verdict.FAIL, Reason.of("training-ranks-missing", **values)
    bad = _bad(sums)
    if not bad:
        return None
    wrong, first = sum(rank.wrong for rank in bad), min(rank.first_wrong or 0 for rank in bad)
    values = {"wrong": wrong, "bad": len(bad), "ranks": len(sums.ranks), "first": first, "rounds": sums.rounds}
    return Verdict.CORRUPT, Reason.of("sums-wrong", **values)


def _summary(sums: Sums) -> str:
    return f"all_reduce: {sums.rounds} sums of {sums.elements:,} elements are right on all {len(sums.ranks)} ranks"


def _bad(sums: Sums) -> list[RankSums]:
    return [rank for rank in sums.ranks if rank.wrong]


def _suspects(sums: Sums, testbed: Testbed) -> Iterator[Suspect]:
    """The nodes of a few ranks that received what the others did not; where most have it, nobody knows who sent it."""
    bad = _bad(sums)
    for rank in bad if 2 * len(bad) < len(sums.ranks) else ():
        evidence = Reason.of("rank-sums-wrong", rank=rank.rank, wrong=rank.wrong, first=rank.first_wrong)
        yield Suspect("node", node_of(rank.rank, rank.host, testbed), 0.9, evidence)
