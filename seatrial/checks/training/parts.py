"""Each rank's report on itself at the end of a probe, which rank 0's summary must repeat.

Pure.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from pydantic import Field

from seatrial.checks.failures import Failure, classify_failure, missing_reports
from seatrial.checks.training.on_ranks import NAME
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason
from seatrial.model.result import Check, Suspect
from seatrial.model.verdict import Verdict
from seatrial.remote.answers import NodeAnswer, Text, read_answer
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.ranks import rank_of
from seatrial.text.words import some_of

MOST_RANKS = 100_000
_EVENT = '{"event": "part"'


class RankFigures(NodeAnswer):
    """The figures of one rank; `host` is as the rank reports it."""

    rank: int = Field(ge=0, lt=MOST_RANKS)
    host: Text


def disputed(result: MpiResult, ranks: Sequence[RankFigures]) -> Failure | None:
    """Return verdict and reason if a summary contradicts what the ranks report of themselves; None
    if it agrees.
    """
    if not ranks:
        return None
    kind = type(ranks[0])
    own = {}  # figures that each rank has printed itself
    for line in result.lines:
        if line.startswith(_EVENT):
            with suppress(ValueError):
                part = read_answer(kind, line)
                if part.rank == rank_of(line):
                    own[part.rank] = _figures(part)
    named = {rank.rank for rank in ranks if _figures(rank) != own.get(rank.rank)}
    named.update(rank for rank in range(len(ranks)) if rank not in own)
    if not named:
        return None
    return Verdict.INCONCLUSIVE, Reason.of(
        "rank-part-differs", ranks=some_of(map(str, sorted(named)))
    )


def incomplete(result: MpiResult, ranks: Sequence[RankFigures], world_size: int) -> Failure | None:
    """Return verdict and reason of a summary that lacks ranks or contradicts their reports; None if
    it is complete.
    """
    problem = missing_reports(result) or disputed(result, ranks)
    if problem:
        return problem
    if len(ranks) != world_size:
        return Verdict.FAIL, Reason.of(
            "training-ranks-missing", ranks=len(ranks), world_size=world_size
        )
    return None


def conclude_end(
    result: MpiResult,
    fault: Failure | None,
    good: Reason,
    measurements: Iterable[Measurement],
    suspects: Iterable[Suspect],
) -> Check:
    """Return the check of a training that ended; `suspects` are used only if the verdict is
    corrupt.
    """
    if fault is None and not result.ok:
        fault = classify_failure(result, began=True)
    verdict, reason = fault or (Verdict.PASS, good)
    return Check(
        name=NAME,
        verdict=verdict,
        reason=reason,
        seconds=result.seconds,
        measurements=tuple(measurements),
        suspects=tuple(suspects) if verdict is Verdict.CORRUPT else (),
    )


def _figures(rank: RankFigures) -> dict[str, object]:
    return rank.model_dump(exclude={"host"})
