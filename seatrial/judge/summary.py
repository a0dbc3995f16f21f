"""What a judged check says in one sentence. Pure."""

from collections.abc import Sequence

from seatrial.judge.baselines.learned import Learned
from seatrial.judge.baselines.selection import Knowledge
from seatrial.judge.divided import known_groups, splits_of
from seatrial.model.reason import join, rewritten
from seatrial.model.result import Check, Judgement
from seatrial.model.verdict import Verdict


def summary(check: Check, new: Sequence[Judgement], counted: Sequence[Judgement], groups: Sequence[str]) -> str:
    """The check's own words first, then the worst judgement, or what all of them rest on.

    `counted` are the bad ones that decide, worst first; `groups` say which nodes were compared with each other alone.
    """
    if not counted:
        return join((check.reason, _rests_on(new), *groups)) if check.verdict is Verdict.PASS else check.reason
    more = f" (and {len(counted) - 1} more)" if len(counted) > 1 else ""
    worst = rewritten(counted[0].reason, lambda text: text + more)
    return worst if check.verdict is Verdict.PASS else join((check.reason, worst))


def groups_of(check: Check, knowledge: Knowledge, learned: Learned) -> list[str]:
    """The groups of like nodes that the numbers of a check rest on, by facts and by numbers."""
    if not any(m.better and m.subject.nodes for m in check.measurements):
        return []
    by_facts = [knowledge.groups.words] if knowledge.groups.words else []
    return [*by_facts, *known_groups(splits_of(check, learned.splits))]


def _rests_on(judgements: Sequence[Judgement]) -> str:
    """What a check that passes was held against, what was repeated, and the single sizes that were let pass."""
    sources = sorted({j.source for j in judgements} - {"sanity"})
    against = f"as expected by {' and '.join(sources)}" if sources else "no baseline yet: judged by sanity only"
    repeated = sum(bool(j.repeats) for j in judgements)
    odd = sum(j.verdict is not Verdict.PASS for j in judgements)
    parts = (
        against,
        f"{_numbers(repeated)} repeated" if repeated else "",
        f"{odd} single {'size' if odd == 1 else 'sizes'} off, too few to count" if odd else "",
    )
    return "; ".join(part for part in parts if part)


def _numbers(count: int) -> str:
    return "1 number was" if count == 1 else f"{count} numbers were"
