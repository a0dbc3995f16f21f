"""What a pass found, as the result of a run: for people, for alerts and as an exit status. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from seatrial.history.node_tests import NOT_COMPARED
from seatrial.model.reason import Reason, join, uncoded
from seatrial.model.result import Check, RunResult, Suspect
from seatrial.model.verdict import Verdict, worst
from seatrial.platforms.service import ServiceNode
from seatrial.qualify.choose import Selection
from seatrial.qualify.coverage import Coverage
from seatrial.qualify.cycle import Outcome
from seatrial.qualify.evidence import ALONE, PAIRS, Evidence
from seatrial.qualify.gate import reason_kept_out
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
    """Return the result of a pass: bad where a node is kept out, inconclusive where a named node
    was not tested.
    """
    check = Check(
        "gate", _verdict(outcome, selection), _reason(outcome), suspects=_suspects(outcome)
    )
    return RunResult(
        run_id,
        cluster,
        ALONE,
        started,
        finished,
        check.verdict,
        check.reason,
        checks=(check,),
        suspects=check.suspects,
        notes=tuple(lines(outcome)),
    )


def lines(outcome: Outcome) -> list[str]:
    """Return a line for each test, then one for each node that goes in or out of service, and what
    stopped that.
    """
    shown = []
    for test in outcome.tested:
        partner = f" with {test.partner}" if test.suite == PAIRS else ""
        code = f" ({test.code})" if test.code else ""
        shown.append(f"{test.node}{partner}: {test.verdict.value}{code}, run {test.run_id}")
    shown += outcome.refused
    shown += [decision.reason.sentence for decision in outcome.decisions if decision.reason]
    shown += [outcome.common.sentence] if outcome.common else []
    return [*shown, *map(str, outcome.failed)]


def standing_result(
    base: RunResult,
    nodes: Sequence[ServiceNode],
    outcome: Outcome,
    evidence: Evidence,
    coverage: Coverage,
) -> RunResult:
    """Return the result for alerts: what is wrong until somebody ends it, so that one pass without
    it is no end.

    Nodes that a test keeps out, or would if it were no dry run; a common cause; nodes that were not
    tested in time.
    """
    suspects = [_standing(node, evidence) for node in nodes]
    kept_out = [suspect for suspect in suspects if suspect]
    reason = join((*(suspect.evidence for suspect in kept_out), outcome.common))
    checks = [
        Check("gate", Verdict.FAIL if reason else Verdict.PASS, reason, suspects=tuple(kept_out))
    ]
    if late := coverage.overdue_nodes:
        untested = Reason.of(
            "qualify-untested", nodes=host_list(late), days=f"{coverage.max_age / _DAY:g}"
        )
        checks.append(Check("coverage", Verdict.INCONCLUSIVE, untested))
    verdict, why = conclude(checks)
    notes = tuple(coverage.lines())
    return replace(
        base,
        verdict=verdict,
        reason=why,
        checks=tuple(checks),
        suspects=tuple(kept_out),
        notes=notes,
    )


def _verdict(outcome: Outcome, selection: Selection) -> Verdict:
    verdicts = [Verdict.FAIL] if outcome.nodes("keep out") or outcome.common else []
    faults = [test for test in outcome.tested if test.verdict.is_fault]
    verdicts += [Verdict.DEGRADED] if faults else []  # one more test is to confirm it
    last = {test.node: test.verdict for test in outcome.tested if test.suite != PAIRS}
    asked = selection.names or tuple(last)
    if any(last.get(name) is not Verdict.PASS for name in asked) and not verdicts:
        verdicts.append(Verdict.INCONCLUSIVE)
    return worst([Verdict.PASS, *verdicts])


def _reason(outcome: Outcome) -> Reason:
    problems = [decision.reason for decision in outcome.decisions if decision.action == "keep out"]
    if reason := join((*problems, outcome.common, *outcome.failed)):
        return reason
    passed = _count(test.node for test in outcome.tested if test.passed)
    others = [test for test in outcome.tested if not test.passed]
    if others:
        code = others[0].code or others[0].verdict.value
        return Reason.of(
            "qualify-open",
            passed=passed,
            nodes=host_list({test.node for test in others}),
            found=code,
        )
    if not outcome.tested:
        why = "".join(f"{line}; " for line in outcome.refused)
        return Reason.of("qualify-nothing-tested", why=why)
    blind = _count(test.node for test in outcome.tested if test.code == NOT_COMPARED)
    return uncoded(
        f"{passed} nodes passed" + (f", {blind} of them compared with nothing" if blind else "")
    )


def _count(names: Iterable[str]) -> int:
    return len(set(names))


def _suspects(outcome: Outcome) -> tuple[Suspect, ...]:
    kept_out = [decision for decision in outcome.decisions if decision.action == "keep out"]
    return tuple(Suspect("node", decision.node, 1.0, decision.reason) for decision in kept_out)


def _standing(node: ServiceNode, evidence: Evidence) -> Suspect | None:
    """Return the node as a suspect, if a test keeps it out of service or would."""
    failures = evidence.record(node.name).failures
    is_out = node.has_failed or (node.state == "out" and node.is_ours)
    if not is_out and (not failures or evidence.is_doubtful(node.name)):
        return None
    reason = Reason.of("qualify-kept-out", node=node.name, found=node.why)
    return Suspect(
        "node", node.name, 1.0, reason_kept_out(node.name, failures[0]) if failures else reason
    )
