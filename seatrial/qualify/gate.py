"""Decisions after the tests of a pass: let nodes in, keep them out or leave them, unless many fail
alike.

Pure.

Wrong results, a missing part and numbers below the floor keep a node out at once. A node that is
only slow is kept out once a second test agrees, since on a cluster at work, something else may have
used the node.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from seatrial.history.node_tests import NodeTest
from seatrial.model.reason import Reason
from seatrial.model.verdict import Verdict
from seatrial.platforms.service import ServiceNode
from seatrial.qualify.evidence import CONFIRMED_BY, PAIRS, Evidence, is_conclusive
from seatrial.qualify.pairs import slow_with

# Share of the nodes of a pass; if more fail alike, a common cause is likelier than many faults
MOST_ALIKE = 1 / 3
_LEAST_ALIKE = 2
Action = Literal["let in", "keep out", "leave"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to a node, and the test that is why; `reason` is for people."""

    node: str
    action: Action
    run_id: str
    code: str
    reason: Reason


def decide(
    nodes: Mapping[str, ServiceNode], tested: Sequence[NodeTest], evidence: Evidence
) -> list[Decision]:
    """Decide on each node that was tested; `evidence` includes the tests of this pass.

    The last conclusive test of a node counts. Decisions are in the order of the names; nodes that
    are not among `nodes` get none.
    """
    last = {test.node: test for test in tested if is_conclusive(test)}
    decisions = []
    for name, test in sorted(last.items()):
        if name in nodes:
            decisions.append(_decision(nodes[name], test, evidence))
    return decisions


def _decision(node: ServiceNode, test: NodeTest, evidence: Evidence) -> Decision:
    """Decide on one node: keep it out after a confirmed failure, let it in after a pass with a
    baseline.
    """
    name = node.name
    failure = _failure(name, test, evidence)
    if failure is not None:
        return Decision(
            node=name,
            action="keep out",
            run_id=failure.run_id,
            code=_failure_code(failure),
            reason=reason_kept_out(name, failure),
        )
    left = Decision(
        node=name, action="leave", run_id=test.run_id, code=test.code or "", reason=Reason()
    )
    # Nodes that somebody else took out of service are not let in
    waits = node.state == "gated" or (node.state == "out" and node.is_ours)
    if not waits:
        return left
    if evidence.record(name).is_proven and evidence.is_compared(name):
        let_in = Reason.of("qualify-let-in", node=name)
        return replace(left, action="let in", code="", reason=let_in)
    if test.passed:
        return replace(left, reason=Reason.of("qualify-not-compared", node=name))
    return left


def reason_kept_out(node: str, failure: NodeTest) -> Reason:
    """Return the reason to keep the node out after a failed test."""
    words = f"{failure.verdict.value} ({_failure_code(failure)}) in run {failure.run_id}"
    return Reason.of("qualify-kept-out", node=node, found=words)


def _failure(node: str, test: NodeTest, evidence: Evidence) -> NodeTest | None:
    """Return the test that keeps the node out; None if it passed, or needs one more test as
    confirmation.
    """
    record = evidence.record(node)
    if test.suite == PAIRS:
        partners = slow_with(record.paired)
        # Partners that did not pass since may be to blame themselves
        cleared = [name for name in partners if _passed_since(name, node, evidence)]
        if len(cleared) < CONFIRMED_BY:
            return None
        return record.paired[-1]
    failures = record.failures
    if not failures:
        return None
    first = failures[0]
    if first.verdict is Verdict.DEGRADED and len(failures) < CONFIRMED_BY:
        return None
    return first


def _passed_since(partner: str, node: str, evidence: Evidence) -> bool:
    """Return whether the partner's last test with a node other than `node` passed; false without
    such a test.
    """
    others = [test for test in evidence.record(partner).paired if test.partner != node]
    if not others:
        return False
    return others[-1].passed


def common_cause(
    tested: Sequence[NodeTest], before: Sequence[NodeTest], in_a_row: int
) -> Reason | None:
    """Return the reason to put no node out, or None: more than a third of `tested`, or `in_a_row`
    nodes, fail in the same way.

    `before` are earlier tests, the oldest first. Tests of pairs do not count, as one bad node fails
    both. Repeated failures of a node do not count either, as nodes in doubt and after a repair are
    tested first, one after the other.
    """
    conclusive = _of_nodes(tested)
    failed = [test for test in conclusive if test.verdict.is_fault]
    if not failed:
        return None
    by_code = Counter(map(_failure_code, failed))
    code, count = by_code.most_common(1)[0]
    if count >= _LEAST_ALIKE and count > MOST_ALIKE * len(conclusive):
        return Reason.of("qualify-common-cause", count=count, of=len(conclusive), failure=code)
    every = _of_nodes([*before, *conclusive])
    code, row = _failures_in_a_row(list(_first_failures(every)))
    if row >= in_a_row:
        return Reason.of("qualify-common-cause", count=row, of=row, failure=code)
    return None


def _of_nodes(tests: Iterable[NodeTest]) -> list[NodeTest]:
    """Return the conclusive tests of single nodes."""
    return [test for test in tests if is_conclusive(test) and test.suite != PAIRS]


def _first_failures(tests: Iterable[NodeTest]) -> Iterator[NodeTest]:
    """Yield the tests without repeated failures of the same node.

    After a pass, the next failure of the node counts again.
    """
    failed = dict[str, bool]()
    for test in tests:
        is_fault = test.verdict.is_fault
        is_repeated = is_fault and failed.get(test.node)
        if not is_repeated:
            yield test
        failed[test.node] = is_fault


def _failures_in_a_row(tests: Sequence[NodeTest]) -> tuple[str, int]:
    """Return the code of the last failure, and how many nodes in a row failed with it; ("", 0) if
    the last test passed.

    `tests` are in order of time.
    """
    code = ""
    nodes = set[str]()
    for test in reversed(tests):
        failure = _failure_code(test)
        if not test.verdict.is_fault or code not in ("", failure):
            break
        code = failure
        nodes.add(test.node)
    return code, len(nodes)


def _failure_code(test: NodeTest) -> str:
    """Return the key by which failures are alike: the code, or the verdict if there is none."""
    return test.code or test.verdict.value
