"""One pass over a cluster at work: test idle nodes alone, act on each batch, then test proven nodes
in pairs.

The clock, the tests and the cluster are parameters, so that a simulation of sixty days runs the
same code as a cluster.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from seatrial.config.qualify import Qualify
from seatrial.history.node_tests import NodeTest
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import Reason, placed
from seatrial.platforms.service import Scheduler, ServiceNode
from seatrial.qualify.choose import Selection, batches, candidates, is_due, may_test, why_not
from seatrial.qualify.evidence import ALONE, PAIRS, Evidence
from seatrial.qualify.gate import Decision, common_cause, decide
from seatrial.qualify.pairs import choose_pair, proven
from seatrial.text.hostlist import host_list

log = logging.getLogger("seatrial.qualify")

LONGEST = timedelta(minutes=50)  # a pass runs every hour: no test begins later than this
# Between two checks for idle nodes: at 95 % load a node is idle for minutes only
LOOK = timedelta(minutes=1)
# Run a suite on nodes, and return a result for each
Test = Callable[[str, Sequence[ServiceNode]], Sequence[NodeTest]]


@dataclass(slots=True)
class Outcome:
    """What a pass tested and decided.

    `refused` has a line for each named node that it could not test. `common` is the common cause
    for which no node was put out. `failed` are errors of the scheduler.
    """

    tested: list[NodeTest] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    common: Reason | None = None
    failed: list[Reason] = field(default_factory=list)

    def nodes(self, action: str) -> list[str]:
        """Return the nodes whose last decision is `action`."""
        last = {decision.node: decision.action for decision in self.decisions}
        return [node for node, decided in last.items() if decided == action]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster at work, with the functions that a pass needs.

    `test` runs a suite on nodes and returns a result for each. `tests` returns all tests until now,
    the oldest first. `wait` sleeps.
    """

    service: Scheduler
    settings: Qualify
    test: Test
    tests: Callable[[], Sequence[NodeTest]]
    now: Callable[[], datetime]
    wait: Callable[[timedelta], None]


def run_pass(cluster: Cluster, selection: Selection) -> Outcome:
    """Test the selected nodes and act on the results.

    Raises SeatrialError where the scheduler or the history does not answer.
    """
    return _Pass(cluster, selection).run()


class _Pass:
    """One pass over the cluster, with the nodes tried so far and the outcome."""

    def __init__(self, cluster: Cluster, selection: Selection) -> None:
        """Start the time of the pass."""
        self._cluster = cluster
        self._selection = selection
        self._max_age = timedelta(days=cluster.settings.max_age_days)
        self._until = cluster.now() + LONGEST
        self._tried: set[str] = set()
        self._awaited: list[str] = []
        self._pairs_left = max(1, cluster.settings.at_once // 2)
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Test until nothing is left to do; with `watch`, check for idle nodes until the next pass
        begins.
        """
        service = self._cluster.service
        nodes = service.nodes()
        evidence = self._evidence()
        chosen = candidates(nodes, evidence, self._selection, self._max_age)
        for node in chosen:
            if not may_test(node):
                self.outcome.refused.append(why_not(node).sentence)
        while self._cluster.now() < self._until:
            if self._test_singly(nodes, evidence) or self._test_pair(nodes, evidence):
                evidence = self._evidence()
            elif self._selection.watch and (due := self._due(nodes, evidence)):
                self._wait_for(due)
                evidence = replace(evidence, now=self._cluster.now())
            else:
                break
            nodes = service.nodes()  # states change while tests run
        return self.outcome

    def _test_singly(self, nodes: Sequence[ServiceNode], evidence: Evidence) -> bool:
        """Test the next batch of single nodes; return false if no due node is free.

        A pass tests each node once.
        """
        free = []
        for node in candidates(nodes, evidence, self._selection, self._max_age):
            if may_test(node) and node.name not in self._tried:
                free.append(node)
        if not free:
            return False
        # Only the first batch: its results may change which nodes come next
        batch, *_ = batches(free, evidence, self._cluster.settings.at_once)
        self._tried.update(node.name for node in batch)
        self._test(ALONE, batch)
        return True

    def _test_pair(self, nodes: Sequence[ServiceNode], evidence: Evidence) -> bool:
        """Test a pair of proven idle nodes, at least one of them named if names are given.

        Return false if no pair is due.
        """
        selection = self._selection
        is_asked = selection.idle or selection.names
        if not is_asked or self._pairs_left <= 0:
            return False
        self._pairs_left -= 1
        max_age = timedelta(days=self._cluster.settings.pair_max_age_days)
        free = proven(nodes, evidence, self._max_age)
        pair = choose_pair(free, evidence, max_age, selection.names)
        if pair is None:
            return False
        self._test(PAIRS, pair)
        return True

    def _due(self, nodes: Sequence[ServiceNode], evidence: Evidence) -> list[str]:
        """Return the nodes, busy or not, that wait for a test."""
        due = []
        for node in nodes:
            if node.state == "out" or node.name in self._tried:
                continue
            if is_due(node, evidence, self._max_age):
                due.append(node.name)
        return due

    def _wait_for(self, due: list[str]) -> None:
        """Sleep until the next check, and log the nodes that are waited for if they have
        changed.
        """
        if due != self._awaited:
            log.info("waiting for nodes that are due and not idle: %s", host_list(due))
            self._awaited = due
        self._cluster.wait(LOOK)

    def _test(self, suite: str, batch: Sequence[ServiceNode]) -> None:
        """Test the nodes and act on the results.

        If they share a cause, no node of this batch is put out; the outcome has the last such
        cause.
        """
        before = self._evidence().tests
        tested = self._cluster.test(suite, batch)
        self.outcome.tested += tested
        common = common_cause(tested, before, self._cluster.settings.in_a_row)
        if common:
            self.outcome.common = common
        by_name = {node.name: node for node in batch}
        evidence = Evidence.of([*before, *tested], self._cluster.now())
        for decision in decide(by_name, tested, evidence):
            self._act(decision, may_put_out=common is None)

    def _act(self, decision: Decision, *, may_put_out: bool) -> None:
        """Carry out a decision, unless the cluster file asks for a dry run or nodes share a cause.

        An error of the scheduler does not end the pass; it is added to the outcome.
        """
        if decision.action == "keep out" and not may_put_out:
            return
        self.outcome.decisions.append(decision)
        if self._cluster.settings.dry_run or decision.action == "leave":
            return
        service = self._cluster.service
        try:
            if decision.action == "let in":
                service.let_in(decision.node)
            else:
                service.put_out(decision.node, decision.run_id, decision.code)
        except SeatrialError as error:
            log.error("%s: %s", decision.node, error)
            self.outcome.failed.append(placed(decision.node, error.reason))

    def _evidence(self) -> Evidence:
        """Return the evidence of all tests until now."""
        return Evidence.of(self._cluster.tests(), self._cluster.now())
