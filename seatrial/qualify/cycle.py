"""One pass over a cluster at work: test idle nodes by themselves, act on each batch, then test
proven ones in pairs.

The clock, the tests and the cluster are given, so that a simulation of sixty days runs what a
cluster runs.
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

LONGEST = timedelta(minutes=50)  # of a pass, which comes every hour: no test begins later
# Between two looks of a pass that watches: at 95 % load a node is idle for minutes
LOOK = timedelta(minutes=1)
Test = Callable[[str, Sequence[ServiceNode]], Sequence[NodeTest]]  # of a suite on nodes


@dataclass(slots=True)
class Outcome:
    """What a pass tested and decided; `refused` has a line for each named node that it could not
    take.

    `common` says why no node was put out. `failed` is what the scheduler refused to do.
    """

    tested: list[NodeTest] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    common: Reason | None = None
    failed: list[Reason] = field(default_factory=list)

    def nodes(self, action: str) -> list[str]:
        """Return the nodes with that decision, by the last one on each."""
        last = {decision.node: decision.action for decision in self.decisions}
        return [node for node, decided in last.items() if decided == action]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster at work: its scheduler, what earlier tests found, how a test is made, the time and
    how to wait.

    `test` takes a suite and the nodes to test with it, and returns what was found on each. `tests`
    returns the tests until now, the oldest first.
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
    """A pass over the cluster: what it has tried so far, and what came of it."""

    def __init__(self, cluster: Cluster, selection: Selection) -> None:
        """Begin the pass now."""
        self._cluster = cluster
        self._selection = selection
        self._max_age = timedelta(days=cluster.settings.max_age_days)
        self._until = cluster.now() + LONGEST
        self._tried: set[str] = set()
        self._awaited: list[str] = []
        self._pairs_left = max(1, cluster.settings.at_once // 2)
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Test until nothing is left to do; a pass that watches looks again until the next pass
        comes.
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
            nodes = service.nodes()  # jobs begin and end meanwhile
        return self.outcome

    def _test_singly(self, nodes: Sequence[ServiceNode], evidence: Evidence) -> bool:
        """Test the next batch of nodes by themselves; return false if no due node is free.

        One pass tests a node once.
        """
        free = []
        for node in candidates(nodes, evidence, self._selection, self._max_age):
            if may_test(node) and node.name not in self._tried:
                free.append(node)
        if not free:
            return False
        # Only the first: what it finds may change which nodes come next
        batch, *_ = batches(free, evidence, self._cluster.settings.at_once)
        self._tried.update(node.name for node in batch)
        self._test(ALONE, batch)
        return True

    def _test_pair(self, nodes: Sequence[ServiceNode], evidence: Evidence) -> bool:
        """Test one pair of proven idle nodes; of named nodes, with a neighbour.

        Return false if none is due.
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
        """Wait until the next look, and say for which nodes if they have changed."""
        if due != self._awaited:
            log.info("waiting for nodes that are due and not idle: %s", host_list(due))
            self._awaited = due
        self._cluster.wait(LOOK)

    def _test(self, suite: str, batch: Sequence[ServiceNode]) -> None:
        """Test the nodes and act on what was found.

        A common cause keeps the nodes of this batch alone from being put out; the last one is told
        of the whole pass.
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
        """Do what was decided, unless the cluster file has a dry run or the cause is common.

        What the scheduler refuses is no error of the pass: it is told with the outcome.
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
        """Return what the tests until now say."""
        return Evidence.of(self._cluster.tests(), self._cluster.now())
