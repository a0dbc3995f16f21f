"""What each rank reports of itself at the end of a probe, which the summary by rank 0 must repeat. Pure."""

from collections.abc import Sequence
from contextlib import suppress

from seatrial.model.reason import Reason
from seatrial.model.verdict import Verdict
from seatrial.remote.answers import NodeAnswer, read_answer
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.ranks import rank_of
from seatrial.text.words import some_of

_EVENT = '{"event": "part"'


class RankFigures(NodeAnswer):
    """The figures of one rank; its host is as the rank reports it."""

    rank: int
    host: str


def disputed(result: MpiResult, ranks: Sequence[RankFigures]) -> tuple[Verdict, Reason] | None:
    """Return verdict and reason if a summary contradicts what the ranks report of themselves; None if it agrees."""
    if not ranks:
        return None
    own = _own_parts(result, type(ranks[0]))
    others = [rank.rank for rank in ranks if _figures(rank) != own.get(rank.rank)]
    missing = [rank for rank in range(len(ranks)) if rank not in own]
    if not others and not missing:
        return None
    named = sorted({*others, *missing})
    return Verdict.INCONCLUSIVE, Reason.of("rank-part-differs", ranks=some_of(map(str, named)))


def _own_parts(result: MpiResult, kind: type[RankFigures]) -> dict[int | None, dict[str, object]]:
    """Return the figures that each rank has printed of itself."""
    parts = {}
    for line in result.lines:
        if line.startswith(_EVENT):
            with suppress(ValueError):
                part = read_answer(kind, line)
                if part.rank == rank_of(line):
                    parts[rank_of(line)] = _figures(part)
    return parts


def _figures(rank: RankFigures) -> dict[str, object]:
    return rank.model_dump(exclude={"host"})
