"""The result of a pass, in the form of a run's result: for people, alerts and the exit status.
Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from seatrial.history.node_tests import NOT_COMPARED
from seatrial.model.reason import Reason, join
from seatrial.model.result import Check, RunResult, Suspect
from seatrial.model.verdict import Verdict
from seatrial.platforms.service import ServiceNode
from seatrial.qualify.choose import Selection
from seatrial.qualify.coverage import Coverage
from seatrial.qualify.cycle import Outcome
from seatrial.qualify.evidence import ALONE, PAIRS, Evidence
from seatrial.qualify.gate import Decision, reason_kept_out
from seatrial.text.headline import conclude
from seatrial.text.hostlist import host_list

_DAY = timedelta(days=1)


def pass_result(
    run_id: str,
    cluster: str,
    started: datetime,
    finished: datetime,
    outcome: Outcome,
    selection: Selection,
) -> RunResult:
    """Return the result of a pass: failed if a node is kept out, inconclusive if a named node was
    not tested.
    """
    verdict = _verdict(outcome, selection)
    check = Check("gate", verdict, _reason(outcome), suspects=_suspects(outcome))
    return RunResult(
        run_id=run_id,
        cluster=cluster,
        suite=ALONE,
        started=started,
        finished=finished,
        verdict=check.verdict,
        reason=check.reason,
        checks=(check,),
        suspects=check.suspects,
        notes=tuple(lines(outcome)),
    )


def lines(outcome: Outcome) -> list[str]:
    """Return a line for each test, refused node, decision, common cause and error, in this
    order.
    """
    shown = []
    for test in outcome.tested:
        nodes = test.node
        if test.suite == PAIRS:
            nodes += f" with {test.partner}"
        verdict = test.verdict.value
        if test.code:
            verdict += f" ({test.code})"
        shown.append(f"{nodes}: {verdict}, run {test.run_id}")
    shown += outcome.refused
    for decision in outcome.decisions:
        if decision.reason:  # a decision that leaves a node as it is may have no reason
            shown.append(decision.reason.sentence)
    if outcome.common:
        shown.append(outcome.common.sentence)
    return [*shown, *map(str, outcome.failed)]


def standing_result(
    base: RunResult,
    nodes: Sequence[ServiceNode],
    outcome: Outcome,
    evidence: Evidence,
    coverage: Coverage,
) -> RunResult:
    """Return the result for alerts: all problems that persist, so that one pass without them does
    not end an alert.

    These are nodes that a test keeps out, or would without the dry run; a common cause; and nodes
    that were not tested in time.
    """
    standing = (_standing(node, evidence) for node in nodes)
    kept_out = tuple(suspect for suspect in standing if suspect)
    problems = [suspect.evidence for suspect in kept_out]
    reason = join((*problems, outcome.common))
    verdict = Verdict.PASS
    if reason:
        verdict = Verdict.FAIL
    checks = [Check("gate", verdict, reason, suspects=kept_out)]
    if late := coverage.overdue_nodes:
        days = f"{coverage.max_age / _DAY:g}"
        untested = Reason.of("qualify-untested", nodes=host_list(late), days=days)
        checks.append(Check("coverage", Verdict.INCONCLUSIVE, untested))
    verdict, why = conclude(checks)
    return replace(
        base,
        verdict=verdict,
        reason=why,
        checks=tuple(checks),
        suspects=kept_out,
        notes=tuple(coverage.lines()),
    )


def _verdict(outcome: Outcome, selection: Selection) -> Verdict:
    """Return the verdict of a pass from its decisions and tests.

    With names, each named node must have passed alone; without, each tested node. A pass that tests
    nothing because nothing is due passes.
    """
    if outcome.nodes("keep out") or outcome.common:
        return Verdict.FAIL
    if any(test.verdict.is_fault for test in outcome.tested):
        return Verdict.DEGRADED  # one more test has to confirm it
    last = {test.node: test.verdict for test in outcome.tested if test.suite != PAIRS}
    asked = selection.names or tuple(last)
    if all(last.get(name) is Verdict.PASS for name in asked):
        return Verdict.PASS
    return Verdict.INCONCLUSIVE


def _reason(outcome: Outcome) -> Reason:
    """Return why nodes are kept out, else how the tests of the pass ended."""
    problems = [decision.reason for decision in _kept_out(outcome)]
    if reason := join((*problems, outcome.common, *outcome.failed)):
        return reason
    if not outcome.tested:
        why = "".join(f"{line}; " for line in outcome.refused)
        return Reason.of("qualify-nothing-tested", why=why)
    passed = len({test.node for test in outcome.tested if test.passed})
    others = [test for test in outcome.tested if not test.passed]
    if others:
        first = others[0]
        return Reason.of(
            "qualify-open",
            passed=passed,
            nodes=host_list({test.node for test in others}),
            found=first.code or first.verdict.value,
        )
    blind = {test.node for test in outcome.tested if test.code == NOT_COMPARED}
    if blind:
        return Reason.of("qualify-passed-blind", passed=passed, blind=len(blind))
    return Reason.of("qualify-passed", passed=passed)


def _kept_out(outcome: Outcome) -> list[Decision]:
    """Return the decisions to keep a node out of service."""
    return [decision for decision in outcome.decisions if decision.action == "keep out"]


def _suspects(outcome: Outcome) -> tuple[Suspect, ...]:
    """Return the nodes that are kept out."""
    return tuple(
        Suspect("node", decision.node, 1.0, decision.reason) for decision in _kept_out(outcome)
    )


def _standing(node: ServiceNode, evidence: Evidence) -> Suspect | None:
    """Return the node as a suspect if a test keeps it out of service, or would without the dry run.

    That somebody else took the node out of service does not make it a suspect.
    """
    failures = evidence.record(node.name).failures
    is_out = node.has_failed or (node.state == "out" and node.is_ours)
    would_be_out = failures and not evidence.is_doubtful(node.name)
    if not is_out and not would_be_out:
        return None
    reason = Reason.of("qualify-kept-out", node=node.name, found=node.why)
    if failures:
        reason = reason_kept_out(node.name, failures[0])
    return Suspect("node", node.name, 1.0, reason)
