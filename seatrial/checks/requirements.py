"""What a check needs: enough nodes and ranks, and programs on the nodes."""

import platform
from collections.abc import Sequence

from seatrial.checks.contract import CheckContext, CheckType, Facts, StepResult
from seatrial.config.architecture import foreign_nodes
from seatrial.config.run import Run
from seatrial.model.errors import MissingError
from seatrial.model.reason import Reason
from seatrial.model.result import Check
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.text.words import some_of


def try_check(kind: CheckType, context: CheckContext) -> StepResult:
    """Run the check if enough is left of the testbed. Raises MissingError if nodes lack what it needs."""
    if reason := lacking(kind, context):
        raise MissingError(reason)
    if reason := too_small(context.run, context.testbed, kind.least_ranks):
        return StepResult(Check(kind.name, Verdict.NOT_RUN, reason), context.testbed)
    return kind.run(context)


def too_small(run: Run, testbed: Testbed, least_ranks: int = 2) -> str | None:
    """Why the nodes or ranks are too few to talk to each other; None when they are enough, or need not talk."""
    if least_ranks < 2:
        return None
    left = len(testbed.nodes)
    if left < min(2, run.cluster.nodes):
        return Reason.of("too-few-nodes", left=left)
    return None if testbed.world_size > 1 else Reason.of("too-few-ranks", ranks=testbed.world_size)


def lacking(kind: CheckType, context: CheckContext) -> str | None:
    """Why the nodes cannot run the check, by their facts; None when they can, or when the facts are not known yet.

    A version that no node could report counts as present.
    """
    facts = {node.name: context.facts[node.name] for node in context.testbed.nodes if node.name in context.facts}
    if not facts:
        return None
    if foreign := foreign_nodes(facts, context.run.cluster, platform.machine()):
        return foreign
    for need in kind.needs(context.testbed.has_gpus):
        if missing := [name for name in facts if _is_missing(need.name, facts, name)]:
            where = _where(facts, missing, context.run.image)
            return Reason.of("program-missing", program=need.name, where=where, remedy=need.remedy)
    return None


def _is_missing(need: str, facts: Facts, node: str) -> bool:
    """Whether the node reports that it has none, which is an empty text."""
    versions = facts[node]["versions"]
    return (versions[need] if need in versions else facts[node].get(need.replace("-", "_"))) == ""


def _where(facts: Facts, missing: Sequence[str], image: str | None) -> str:
    if len(missing) < len(facts):
        return f"on {some_of(missing)}"
    return f"in image {image}" if image else "on every node"
