"""The simulated cluster of benchmarks/qualify.py, with its scheduler and its tests."""

import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.qualify_jobs import MOST_S, Job
from seatrial.checks.contract import Repeated
from seatrial.checks.metrics import Doubt
from seatrial.history.node_tests import NodeTest, node_tests_of
from seatrial.history.past import RunContext
from seatrial.history.store import Store
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check, RunResult
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.platforms.service import ServiceNode
from seatrial.qualify.evidence import PAIRS
from seatrial.tasks.check import compare
from seatrial.text.headline import conclude

_START = datetime(2026, 1, 5, tzinfo=UTC)
_FULLEST = 0.98
_WAITING = 500
_BACKFILL = 100  # waiting jobs that the scheduler looks past
WARM_UP_S = 3 * MOST_S
_LEAF = 16  # nodes behind a leaf switch
_TEST_S = {"qualify": 200.0, PAIRS: 90.0}
# Until the nodes of a test are free; tests/slurm/test_qualify.py took 0.8 s
_PREEMPT_S = (1.0, 8.0)
_METRICS = (("matmul", "TFLOP/s", 712.0),)
GPUS = 4
# Spread of GPUs, noise of a reading, share of readings that stray
_BETWEEN, _WITHIN, _STRAY = 0.004, 0.004, 0.01
_LOSS = 0.10
_FAULTS_PER_DAY = 3.0
_REPAIR = timedelta(days=1)
_REPAIRED = 0.5


@dataclass
class Node:
    """A node of the simulation; `slow` is the GPU that has lost 10 %, since when."""

    name: str
    group: str
    levels: Mapping[str, float]
    job: int | None = None
    testing: bool = False
    state: str = "in"  # in, gated, out
    failed: bool = False
    slow: int | None = None
    since: datetime | None = None


@dataclass
class Tally:
    """What the simulation counts."""

    tests: int = 0
    gave_way: int = 0
    delays_s: list[float] = field(default_factory=list)
    false_keeps: int = 0
    healthy_tests: int = 0
    tests_until_found: list[int] = field(default_factory=list)
    let_in_faulty: int = 0
    gate_tests_of_faulty: int = 0
    let_in_healthy: int = 0
    covered: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)


class Fleet:
    """The cluster, which is also the scheduler that `seatrial qualify` asks.

    Time is in seconds from the start.
    """

    def __init__(
        self, nodes: int, jobs: Iterator[Job], order: str, seed: int, store: Store | None
    ) -> None:
        self.random = random.Random(seed)
        self.nodes_by_name = {
            name: self._node(name, i) for i, name in enumerate(f"n{i:03}" for i in range(nodes))
        }
        self.store, self.at, self.tally = store, 0.0, Tally()
        self.tests: list[NodeTest] = []
        self._order = order
        self._ends: list[tuple[float, int, tuple[Node, ...]]] = []
        self._queue: deque[Job] = deque()
        self._number = self.busy = 0
        self._jobs = jobs
        self._coming = next(jobs)
        self._next = self._coming.after_s
        self._taken: set[str] = set()  # nodes under test that a job wants
        self.tests_since: Counter[str] = Counter()

    def _node(self, name: str, number: int) -> Node:
        levels = {
            f"{metric}/{gpu}": value * self.random.gauss(1, _BETWEEN)
            for metric, _, value in _METRICS
            for gpu in range(GPUS)
        }
        return Node(name, f"leaf-{number // _LEAF:02}", levels)

    @property
    def now(self) -> datetime:
        return _START + timedelta(seconds=self.at)

    @property
    def in_service(self) -> int:
        """How many nodes jobs may have."""
        return sum(node.state == "in" for node in self.nodes_by_name.values())

    # --- jobs

    def advance(self, until: float) -> None:
        """Let jobs come and end until then."""
        while (moment := min(self._ends[0][0] if self._ends else math.inf, self._next)) <= until:
            self.at = moment
            if moment < self._next:
                _, _, nodes = heapq.heappop(self._ends)
                self.busy -= len(nodes)
                for node in nodes:
                    node.job = None
            else:
                if len(self._queue) < _WAITING:
                    self._queue.append(self._coming)
                self._coming = next(self._jobs)
                self._next = self.at + self._coming.after_s
            if self._queue:
                self._schedule()
        self.at = until

    def _schedule(self) -> None:
        """Start jobs in turn; one that does not fit waits, and smaller ones behind it go first
        (backfill).
        """
        free = [n for n in self.nodes_by_name.values() if n.job is None and n.state == "in"]
        free.sort(key=self._preference)
        room = min(len(free), int(_FULLEST * self.in_service) - self.busy)
        waiting: list[Job] = []
        while self._queue and room and len(waiting) < _BACKFILL:
            job = self._queue.popleft()
            if job.nodes > room:
                waiting.append(job)
                continue
            self._start(job, free[: job.nodes])
            del free[: job.nodes]
            room -= job.nodes
        self._queue.extendleft(reversed(waiting))

    def _preference(self, node: Node) -> tuple[bool, float | str]:
        """Of nodes that jobs get; tests give way only where they must, but to a blind scheduler."""
        is_last = node.testing and self._order != "blind"
        return is_last, node.name if self._order == "lowest" else self.random.random()

    def _start(self, job: Job, nodes: Sequence[Node]) -> None:
        delay_s = 0.0
        if tested := [node.name for node in nodes if node.testing]:
            delay_s = self.random.uniform(*_PREEMPT_S)
            self.tally.delays_s.append(delay_s)
            self._taken.update(tested)
        self._number += 1
        self.busy += len(nodes)
        for node in nodes:
            node.job = self._number
        heapq.heappush(self._ends, (self.at + delay_s + job.duration_s, self._number, tuple(nodes)))

    # --- the scheduler as seatrial has it

    def nodes(self) -> list[ServiceNode]:
        return [self._service_node(node) for node in self.nodes_by_name.values()]

    def _service_node(self, node: Node) -> ServiceNode:
        if node.state == "gated":
            return ServiceNode(node.name, "gated", node.group, has_failed=node.failed)
        if node.state == "out" and node.job is None:
            return ServiceNode(node.name, "out", node.group, is_ours=True)
        return ServiceNode(node.name, "busy" if node.job is not None else "idle", node.group)

    def put_out(self, name: str, run_id: str, code: str) -> None:
        node = self.nodes_by_name[name]
        if node.slow is None:
            self.tally.false_keeps += 1
        elif node.state == "in":
            self.tally.tests_until_found.append(self.tests_since.pop(name, 0))
        node.state, node.failed = ("gated", True) if node.state == "gated" else ("out", False)
        node.since = self.now

    def let_in(self, name: str) -> None:
        node = self.nodes_by_name[name]
        if node.slow is None:
            self.tally.let_in_healthy += 1
        else:
            self.tally.let_in_faulty += 1
            self.tests_since[name] = 0
        node.state, node.failed = "in", False

    def wait(self, pause: timedelta) -> None:
        self.advance(self.at + pause.total_seconds())

    # --- tests

    def test(self, suite: str, nodes: Sequence[ServiceNode]) -> list[NodeTest]:
        """Take the nodes for as long as a test takes; a job that wants one of them ends it."""
        names = [node.name for node in nodes]
        taken = [self.nodes_by_name[name] for name in names]
        for node in taken:
            node.testing = True
        began, until = self.at, self.at + _TEST_S[suite]
        self._taken.clear()
        while self.at < until and not self._taken:
            self.advance(min(until, self.at + 5.0))
        for node in taken:
            node.testing = False
        self.tally.tests += 1
        result = (
            self._gave_way(suite, names, began)
            if self._taken
            else self._measured(suite, names, began)
        )
        if self.store:
            self.store.save(result, Path("/simulated"))
        tests = list(node_tests_of(result))
        self.tests += tests
        for test in tests:
            self._count(test)
        return tests

    def _count(self, test: NodeTest) -> None:
        node = self.nodes_by_name[test.node]
        if test.suite == PAIRS or test.verdict is Verdict.INCONCLUSIVE:
            return
        if node.slow is None:
            self.tally.healthy_tests += 1
        elif node.state == "gated":
            self.tally.gate_tests_of_faulty += 1
        else:
            self.tests_since[node.name] += 1

    def _gave_way(self, suite: str, names: Sequence[str], began: float) -> RunResult:
        self.tally.gave_way += 1
        check = Check("run", Verdict.INCONCLUSIVE, Reason.of("gave-way", job="a job"))
        return self._result(suite, names, began, [check])

    def _measured(self, suite: str, names: Sequence[str], began: float) -> RunResult:
        if suite == PAIRS or self.store is None:
            check = Check("collectives", Verdict.PASS, uncoded("all_reduce: every result is right"))
            return self._result(suite, names, began, [check])
        check = Check("devices", Verdict.PASS, Reason(), measurements=tuple(self._readings(names)))
        facts = [self._facts(name) for name in names]
        context = RunContext("simulated", suite, {"driver": "1"}, self.now, facts)
        setup = Setup("made-up", len(names), GPUS, GPUS)

        def repeat(doubts: Mapping[str, Sequence[Doubt]], until: float) -> dict[str, Repeated]:
            repeated = {}
            for name, some in doubts.items():
                repeated[name] = Repeated(
                    measurements=[self._reading(doubt.measurement) for doubt in some]
                )
            return repeated

        return self._result(
            suite, names, began, compare([check], setup, self.store, context, repeat)
        )

    def _readings(self, names: Sequence[str]) -> list[Measurement]:
        readings = []
        for name in names:
            for metric, unit, _ in _METRICS:
                for gpu in range(GPUS):
                    subject = Subject("gpu", f"{name}/gpu-{gpu}")
                    readings.append(self._reading(Measurement(metric, 0.0, unit, subject)))
        return readings

    def _reading(self, m: Measurement) -> Measurement:
        name, _, gpu = m.subject.name.partition("/gpu-")
        node = self.nodes_by_name[name]
        value = node.levels[f"{m.metric}/{gpu}"] * self.random.gauss(1, _WITHIN)
        if m.metric == "matmul" and node.slow == int(gpu):
            value *= 1 - _LOSS
        if self.random.random() < _STRAY:
            value *= 1 - self.random.uniform(0.03, 0.25)
        return Measurement(m.metric, value, m.unit, m.subject)

    def _facts(self, name: str) -> dict[str, object]:
        return {"name": name, "gpus": GPUS, "gpu_model": "made-up", "hardware_ids": [f"id-{name}"]}

    def _result(
        self, suite: str, names: Sequence[str], began: float, checks: Sequence[Check]
    ) -> RunResult:
        verdict, reason = conclude(checks, len(names))
        return RunResult(
            f"{suite}-{self.tally.tests:06}",
            "simulated",
            suite,
            _START + timedelta(seconds=began),
            self.now,
            verdict,
            reason,
            nodes=[self._facts(name) for name in names],
            checks=checks,
            fingerprint={"driver": "1"},
            timings={"launch": self.at - began},
        )

    # --- faults

    def break_and_repair(self, hours: float) -> None:
        """Let a healthy node in service lose 10 % now and then, and bring repaired ones to the
        gate.
        """
        if self.store and self.random.random() < _FAULTS_PER_DAY * hours / 24:
            node = self.random.choice(
                [n for n in self.nodes_by_name.values() if n.state == "in" and n.slow is None]
            )
            node.slow = self.random.randrange(GPUS)
            self.tests_since[node.name] = 0
        for node in self.nodes_by_name.values():
            waits = node.state == "out" or (node.state == "gated" and node.failed)
            if waits and node.since and self.now - node.since >= _REPAIR:
                node.state, node.failed, node.since = "gated", False, self.now
                if self.random.random() < _REPAIRED:
                    node.slow = None
