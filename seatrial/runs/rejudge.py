"""Judge a stored run by today's rules."""

from dataclasses import replace
from typing import TYPE_CHECKING

from seatrial.config.run import whole_name
from seatrial.history.past import RunContext
from seatrial.judge.assess import assess
from seatrial.judge.knowledge import explained, knowledge_of
from seatrial.model.result import RunResult, merge_suspects
from seatrial.model.setup import Setup
from seatrial.text.headline import EARLIER_RUNS, conclude, next_steps, since

if TYPE_CHECKING:
    from seatrial.history.store import Store


def rejudge(run: RunResult, store: "Store") -> RunResult:
    """Judge the run by today's rules and the runs before it; without its setup, not by catalog or
    physics.
    """
    nodes = len(run.nodes)
    setup = run.setup or Setup("", max(1, nodes), gpus_per_node=0, slots_per_node=1)
    checks = [check.unjudged() for check in run.checks]
    context = RunContext(
        cluster=run.cluster,
        suite=whole_name(run.suite),
        fingerprint=run.fingerprint,
        started=run.started,
        nodes=run.nodes,
    )
    knowledge = knowledge_of(checks, setup, store, context)
    assessed = assess(checks, knowledge)
    judged = explained(assessed.checks, knowledge.setup)
    verdict, reason = conclude(judged, nodes)
    suspects = merge_suspects(judged)
    earlier = store.runs_before(run.cluster, run.suite, run.started, EARLIER_RUNS)
    known = since(verdict, run.started, run.run_id, earlier)
    result = replace(
        run, verdict=verdict, reason=reason, checks=judged, suspects=suspects, since=known
    )
    return replace(result, next_steps=next_steps(result))
