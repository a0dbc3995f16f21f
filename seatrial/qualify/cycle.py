"""One pass over a cluster at work: test idle nodes by themselves, act on each batch, then test proven ones in pairs.

The clock, the tests and the cluster are given, so that a simulation of sixty days runs what a cluster runs.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from seatrial.config.qualify import Qualify
from seatrial.history.node_tests import NodeTest
from seatrial.model.errors import SeatrialError
from seatrial.platforms.service import NodeService, ServiceNode
from seatrial.qualify.choose import Wanted, batches, candidates, may_test, still_idle, why_not
from seatrial.qualify.evidence import ALONE, PAIRS, Evidence
from seatrial.qualify.gate import Decision, common_cause, decide
from seatrial.qualify.pairs import choose_pairs, proven

log = logging.getLogger("seatrial.qualify")

LONGEST = timedelta(minutes=45)  # of a pass, which comes every hour: no test begins later
Test = Callable[[str, Sequence[ServiceNode]], Sequence[NodeTest]]  # of a suite on nodes


@dataclass(slots=True)
class Outcome:
    """What a pass tested and decided; `refused` has a line for each named node that it could not take.

    `common` says why no node was put out. `failed` are lines of what the scheduler refused to do.
    """

    tested: list[NodeTest] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    common: str | None = None
    failed: list[str] = field(default_factory=list)

    def nodes(self, action: str) -> list[str]:
        """The nodes that the pass decided so about, the last decision on each."""
        last = {decision.node: decision.action for decision in self.decisions}
        return [node for node, decided in last.items() if decided == action]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster at work: its scheduler, what earlier tests found, how a test is made, and the time."""

    service: NodeService
    settings: Qualify
    test: Test
    tests: Callable[[], Sequence[NodeTest]]
    now: Callable[[], datetime]


def run_pass(cluster: Cluster, wanted: Wanted) -> Outcome:
    """Test what is wanted and act on it. Raises SeatrialError where the scheduler or the history does not answer."""
    return _Pass(cluster, wanted).run()


class _Pass:
    def __init__(self, cluster: Cluster, wanted: Wanted) -> None:
        self._cluster, self._wanted = cluster, wanted
        self._max_age = timedelta(days=cluster.settings.max_age_days)
        self._until = cluster.now() + LONGEST
        self.outcome = Outcome()

    def run(self) -> Outcome:
        nodes, evidence = self._cluster.service.nodes(), self._evidence()
        chosen = candidates(nodes, evidence, self._wanted, self._max_age)
        self.outcome.refused = [why_not(node) for node in chosen if not may_test(node)]
        free = [node for node in chosen if may_test(node)]
        for batch in batches(free, evidence, self._cluster.settings.at_once):
            self._test(ALONE, batch)
        if self._wanted.idle or self._wanted.names:
            self._pairs()
        return self.outcome

    def _pairs(self) -> None:
        """Test proven idle nodes in pairs; of named nodes, each with a neighbour."""
        nodes, evidence = self._cluster.service.nodes(), self._evidence()
        max_age = timedelta(days=self._cluster.settings.pair_max_age_days)
        most = max(1, self._cluster.settings.at_once // 2)
        free = proven(nodes, evidence, self._max_age)
        for pair in choose_pairs(free, evidence, max_age, most, self._wanted.names):
            self._test(PAIRS, pair)

    def _test(self, suite: str, batch: Sequence[ServiceNode]) -> None:
        """Test the nodes of the batch that are still idle, and act on what was found."""
        if self._cluster.now() >= self._until:
            return
        now = {node.name: node for node in self._cluster.service.nodes()}
        left = still_idle(batch, {name for name, node in now.items() if node.state == "idle"})
        if not left or (suite == PAIRS and len(left) < len(batch)):
            return
        before = self._evidence().tests
        tested = self._cluster.test(suite, left)
        self.outcome.tested += tested
        common = common_cause(tested, before, self._cluster.settings.in_a_row)
        self.outcome.common = common or self.outcome.common
        evidence = Evidence.of([*before, *tested], self._cluster.now())
        for decision in decide({node.name: node for node in left}, tested, evidence):
            self._act(decision, may_put_out=common is None)

    def _act(self, decision: Decision, *, may_put_out: bool) -> None:
        """Do what was decided, unless the cluster file has a dry run or the cause is common."""
        if decision.action == "keep out" and not may_put_out:
            return
        self.outcome.decisions.append(decision)
        if self._cluster.settings.dry_run or decision.action == "leave":
            return
        try:
            if decision.action == "let in":
                self._cluster.service.let_in(decision.node)
            else:
                self._cluster.service.put_out(decision.node, decision.run_id, decision.code)
        except SeatrialError as error:
            log.error("%s: %s", decision.node, error)
            self.outcome.failed.append(f"{decision.node}: {error}")

    def _evidence(self) -> Evidence:
        return Evidence.of(self._cluster.tests(), self._cluster.now())
