"""Judge a run that is over by today's rules: what it measured, and what was known when it ran. No cluster is needed."""

from dataclasses import replace
from typing import TYPE_CHECKING

from seatrial.judge.assess import assess
from seatrial.judge.knowledge import RunContext, explained, knowledge_of
from seatrial.model.result import RunResult, conclude, merge_suspects
from seatrial.model.setup import Setup

if TYPE_CHECKING:
    from seatrial.history.store import Store


def rejudge(run: RunResult, store: "Store") -> RunResult:
    """The run as it would be judged today, by runs before it alone.

    Of a run that was kept without its cluster's facts neither catalog nor physics know anything.
    """
    setup = run.setup or Setup("", max(1, len(run.nodes)), 0, 1)
    checks = [check.unjudged() for check in run.checks]
    context = RunContext(run.cluster, run.suite, run.fingerprint, run.started, run.nodes)
    known = knowledge_of(checks, setup, store, context)
    judged = explained(assess(checks, known).checks, known.setup)
    verdict, reason = conclude(judged)
    return replace(run, verdict=verdict, reason=reason, checks=judged, suspects=merge_suspects(judged))
