"""What earlier tests show of each node: when it last passed, and what it has failed since. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile

from seatrial.history.node_tests import NOT_COMPARED, UNATTRIBUTED, NodeTest

ALONE = "qualify"  # suite that tests nodes alone
PAIRS = "qualify-pairs"  # suite that tests pairs of nodes
GAVE_WAY = "gave-way"  # code of a test that was ended for another job
LONG_AGO = timedelta(days=3650)
CONFIRMED_BY = 2  # failed tests that confirm a slow node; for pairs, failed partners
Pair = tuple[str, str]  # names of two nodes or groups, sorted


def pair_of(first: str, second: str) -> Pair:
    """Return the names as a sorted pair."""
    if first <= second:
        return (first, second)
    return (second, first)


@dataclass(frozen=True, slots=True)
class Record:
    """The conclusive tests of one node, the oldest first: `alone`, and `paired` with another
    node.
    """

    alone: Sequence[NodeTest] = ()
    paired: Sequence[NodeTest] = ()

    @property
    def passed(self) -> datetime | None:
        """The end of the last passed test, alone or in a run of all nodes; None if none passed."""
        return next((test.ended for test in reversed(self.alone) if test.passed), None)

    @property
    def is_proven(self) -> bool:
        """Whether the last test of the node alone passed."""
        return bool(self.alone) and self.alone[-1].passed

    @property
    def failures(self) -> list[NodeTest]:
        """The failed tests of the node alone since its last pass, the newest first."""
        return list(takewhile(lambda test: test.verdict.is_fault, reversed(self.alone)))


@dataclass(frozen=True, slots=True)
class Evidence:
    """The tests of a cluster's nodes until `now`, the oldest first.

    `records` are the conclusive tests by node. `last` is the last test of each node, conclusive or
    not, except tests of pairs.
    """

    now: datetime
    tests: Sequence[NodeTest] = ()
    records: Mapping[str, Record] = field(default_factory=dict)
    last: Mapping[str, NodeTest] = field(default_factory=dict)

    @classmethod
    def of(cls, tests: Iterable[NodeTest], now: datetime) -> "Evidence":
        """Group the tests by node; inconclusive tests are not added to records."""
        ordered = sorted(tests, key=lambda test: test.ended)
        alone = defaultdict[str, list[NodeTest]](list)
        paired = defaultdict[str, list[NodeTest]](list)
        last = {}
        for test in ordered:
            of_its_kind = alone
            if test.suite == PAIRS:
                of_its_kind = paired
            elif test.code != GAVE_WAY:
                last[test.node] = test
            if is_conclusive(test):
                of_its_kind[test.node].append(test)
        names = alone.keys() | paired.keys()
        records = {name: Record(alone.get(name, ()), paired.get(name, ())) for name in names}
        return cls(now, ordered, records, last)

    def record(self, node: str) -> Record:
        """Return the conclusive tests of a node."""
        return self.records.get(node, Record())

    def age(self, node: str) -> timedelta:
        """Return the time since the node passed; ten years if it never did."""
        passed = self.record(node).passed
        return self.now - passed if passed else LONG_AGO

    def is_compared(self, node: str) -> bool:
        """Return whether the last test of the node alone was compared with a baseline."""
        alone = self.record(node).alone
        return bool(alone) and alone[-1].code != NOT_COMPARED

    def is_doubtful(self, node: str) -> bool:
        """Return whether the next test decides: the last one failed for the first time, or due to
        another node.
        """
        last = self.last.get(node)
        if last is None or last.passed:
            return False
        if last.verdict.is_fault:
            return len(self.record(node).failures) < CONFIRMED_BY
        return last.code == UNATTRIBUTED

    def open_test(self, node: str) -> str:
        """Return the outcome of the node's last test, for people; empty if it passed."""
        last = self.last.get(node)
        if last is None or last.passed:
            return ""
        return f", last test {last.verdict.value} ({last.code}) in run {last.run_id}"

    def pair_ages(self, group_of: Mapping[str, str]) -> dict[Pair, timedelta]:
        """Return the time since each pair of groups passed a test of two nodes.

        `group_of` is the current group of each node.
        """
        ages = {}
        for test in self.tests:
            if test.partner is None or test.suite == ALONE or not test.passed:
                continue
            first, second = group_of.get(test.node), group_of.get(test.partner)
            if first and second:
                ages[pair_of(first, second)] = self.now - test.ended
        return ages


def is_conclusive(test: NodeTest) -> bool:
    """Return whether the test passed or failed; inconclusive tests count for nothing."""
    return test.passed or test.verdict.is_fault
