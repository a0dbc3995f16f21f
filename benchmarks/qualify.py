"""Sixty days of a cluster at work: how much `seatrial qualify` covers, what it finds, and what it costs.

    python benchmarks/qualify.py [--days 60] [--nodes 200] [--load 1.2] [--seed 1]

A clock of its own drives what a cluster runs: the pass of `seatrial/qualify`, the store, the judge and its repeats.
Simulated are the scheduler, its jobs and the numbers. Jobs take whole nodes. Their durations are log-normal with the
median of 206 s and the mean of 6,652 s of the GPU jobs of Helios (Hu et al., "Characterization and Prediction of Deep
Learning Workloads in Large-Scale GPU Datacenters", SC '21), at most a day. They arrive at the rate of the load, and
what would fill more than 98 % goes elsewhere.

Some nodes lose 10 % in one GPU on some day. Repaired nodes come to the gate, and of every third the repair has failed.
"""

import argparse
import heapq
import math
import random
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from seatrial.checks.contract import Repeated
from seatrial.checks.metrics import Doubt
from seatrial.config.cluster import Cluster as ClusterFile
from seatrial.config.qualify import Qualify
from seatrial.history import open_store
from seatrial.history.node_tests import NodeTest, node_tests_of
from seatrial.history.store import Store
from seatrial.judge.knowledge import RunContext
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check, RunResult
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.platforms.service import ServiceNode
from seatrial.qualify.choose import Wanted
from seatrial.qualify.coverage import coverage
from seatrial.qualify.cycle import Cluster, run_pass
from seatrial.qualify.evidence import PAIRS, Evidence
from seatrial.text.headline import conclude
from tasks.check import compare

_START = datetime(2026, 1, 5, tzinfo=UTC)
_MEDIAN_S, _MEAN_S = 206.0, 6652.0
_MOST_S = 86400.0  # a time limit of a day, as partitions have it
_SIZES = ((1, 0.70), (2, 0.12), (4, 0.09), (8, 0.06), (16, 0.03))  # whole nodes of a job, and their share
_FULLEST = 0.98  # a job that would fill more goes to another cluster
_BACKFILL = 100  # waiting jobs that the scheduler looks past
_LEAF = 16  # nodes behind a leaf switch
_TEST_S = {"qualify": 200.0, PAIRS: 90.0}
_PREEMPT_S = 6.0  # until the nodes of a test are free: tests/slurm/test_qualify.py measures it
_METRICS = (("matmul", "TFLOP/s", 712.0), ("memory_copy", "GB/s", 2900.0))
_GPUS = 4
_BETWEEN, _WITHIN, _STRAY = 0.004, 0.004, 0.01  # spread of GPUs, noise of a reading, share of readings that stray
_LOSS = 0.10
_FAULTS_PER_DAY = 1.0
_REPAIR = timedelta(days=1)


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
    idle_since: float = 0.0


@dataclass
class Job:
    number: int
    size: int
    duration_s: float
    asked: float


@dataclass
class Found:
    """What the simulation counts."""

    tests: int = 0
    gave_way: int = 0
    delays_s: list[float] = field(default_factory=list)
    false_keeps: int = 0
    healthy_tests: int = 0
    faults: int = 0
    tests_until_found: list[int] = field(default_factory=list)
    missed: int = 0
    let_in_faulty: int = 0
    gate_tests_of_faulty: int = 0
    let_in_healthy: int = 0
    covered: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)


class Fleet:
    """The cluster, which is also the scheduler that `seatrial qualify` asks. Time is in seconds from the start."""

    def __init__(self, nodes: int, load: float, seed: int, store: Store) -> None:
        self.random = random.Random(seed)
        self.nodes_by_name = {name: self._node(name, i) for i, name in enumerate(f"n{i:03}" for i in range(nodes))}
        self.store, self.at, self.found = store, 0.0, Found()
        self._ends: list[tuple[float, int, tuple[str, ...]]] = []
        self._queue: deque[Job] = deque()
        self._number = 0
        mean_size = sum(size * share for size, share in _SIZES)
        self._sigma = math.sqrt(2 * math.log(_MEAN_S / _MEDIAN_S))
        some = [self._duration_s() for _ in range(100_000)]
        self._rate = load * nodes / (mean_size * sum(some) / len(some))
        self._next = self.random.expovariate(self._rate)
        self._taken: set[str] = set()  # nodes under test that a job wants
        self._tests_since: Counter[str] = Counter()

    def _node(self, name: str, number: int) -> Node:
        levels = {
            f"{metric}/{gpu}": value * self.random.gauss(1, _BETWEEN)
            for metric, _, value in _METRICS
            for gpu in range(_GPUS)
        }
        return Node(name, f"leaf-{number // _LEAF:02}", levels)

    @property
    def now(self) -> datetime:
        return _START + timedelta(seconds=self.at)

    # --- jobs

    def advance(self, until: float) -> None:
        """Let jobs come and end until then."""
        while True:
            end = self._ends[0][0] if self._ends else math.inf
            moment = min(end, self._next)
            if moment > until:
                self.at = until
                return
            self.at = moment
            if end <= self._next:
                _, _, names = heapq.heappop(self._ends)
                for name in names:
                    self.nodes_by_name[name].job = None
                    self.nodes_by_name[name].idle_since = self.at
            else:
                self._arrive()
            self._schedule()

    def _duration_s(self) -> float:
        return min(self.random.lognormvariate(math.log(_MEDIAN_S), self._sigma), _MOST_S)

    def _arrive(self) -> None:
        self._number += 1
        sizes, shares = zip(*_SIZES, strict=True)
        size = self.random.choices(sizes, shares)[0]
        busy = sum(node.job is not None for node in self.nodes_by_name.values())
        if busy + size <= _FULLEST * len(self.nodes_by_name):
            self._queue.append(Job(self._number, size, self._duration_s(), self.at))
        self._next = self.at + self.random.expovariate(self._rate)

    def _schedule(self) -> None:
        """Start jobs in turn; one that does not fit waits, and smaller ones behind it go first (backfill)."""
        free = [n for n in self.nodes_by_name.values() if n.job is None and n.state == "in"]
        free.sort(key=lambda node: (node.testing, node.idle_since))  # tests give way only where they must
        waiting: list[Job] = []
        while free and self._queue and len(waiting) < _BACKFILL:
            job = self._queue.popleft()
            if len(free) < job.size:
                waiting.append(job)
                continue
            chosen, free = free[: job.size], free[job.size :]
            delay = _PREEMPT_S if any(node.testing for node in chosen) else 0.0
            if delay:
                self.found.delays_s.append(delay)
            for node in chosen:
                if node.testing:
                    self._taken.add(node.name)
                node.job = job.number
            end = self.at + delay + job.duration_s
            heapq.heappush(self._ends, (end, job.number, tuple(node.name for node in chosen)))
        self._queue.extendleft(reversed(waiting))

    # --- the scheduler as seatrial has it

    def nodes(self) -> list[ServiceNode]:
        return [self._service_node(node) for node in self.nodes_by_name.values()]

    def _service_node(self, node: Node) -> ServiceNode:
        if node.state == "gated":
            return ServiceNode(node.name, "gated", node.group, has_failed=node.failed)
        if node.state == "out":
            return ServiceNode(node.name, "out", node.group, is_ours=True)
        return ServiceNode(node.name, "busy" if node.job is not None else "idle", node.group)

    def take(self, names: Sequence[str]) -> ClusterFile:
        raise NotImplementedError

    def put_out(self, name: str, run_id: str, code: str) -> None:
        node = self.nodes_by_name[name]
        if node.slow is None:
            self.found.false_keeps += 1
        elif node.since is not None and node.state == "in":
            self.found.tests_until_found.append(self._tests_since.pop(name, 0))
        node.state, node.failed = ("gated", True) if node.state == "gated" else ("out", False)
        node.since = self.now

    def let_in(self, name: str) -> None:
        node = self.nodes_by_name[name]
        if node.slow is None:
            self.found.let_in_healthy += 1
        else:
            self.found.let_in_faulty += 1
        node.state, node.failed, node.idle_since = "in", False, self.at

    def wait(self, pause: timedelta) -> None:
        self.advance(self.at + pause.total_seconds())

    # --- tests

    def test(self, suite: str, nodes: Sequence[ServiceNode]) -> list[NodeTest]:
        """Take the nodes for as long as a test takes; a job that wants one of them ends it."""
        names = [node.name for node in nodes]
        for name in names:
            self.nodes_by_name[name].testing = True
        began, until = self.at, self.at + _TEST_S[suite]
        self._taken.clear()
        while self.at < until and not self._taken:
            self.advance(min(until, self.at + 5.0))
        for name in names:
            self.nodes_by_name[name].testing = False
        self.found.tests += 1
        result = self._gave_way(suite, names, began) if self._taken else self._measured(suite, names, began)
        self.store.save(result, Path("/simulated"))
        tests = list(node_tests_of(result))
        for test in tests:
            self._count(test)
        return tests

    def _count(self, test: NodeTest) -> None:
        node = self.nodes_by_name[test.node]
        if test.suite == PAIRS or test.verdict is Verdict.INCONCLUSIVE:
            return
        if node.slow is None:
            self.found.healthy_tests += 1
        elif node.state == "gated":
            self.found.gate_tests_of_faulty += 1
        else:
            self._tests_since[node.name] += 1

    def _gave_way(self, suite: str, names: Sequence[str], began: float) -> RunResult:
        self.found.gave_way += 1
        check = Check("run", Verdict.INCONCLUSIVE, Reason.of("gave-way", job="a job"))
        return self._result(suite, names, began, [check])

    def _measured(self, suite: str, names: Sequence[str], began: float) -> RunResult:
        if suite == PAIRS:
            check = Check("collectives", Verdict.PASS, "all_reduce: every result is right")
            return self._result(suite, names, began, [check])
        check = Check("devices", Verdict.PASS, "", measurements=tuple(self._readings(names)))
        facts = [self._facts(name) for name in names]
        context = RunContext("simulated", suite, {"driver": "1"}, self.now, facts)
        setup = Setup("made-up", len(names), _GPUS, _GPUS)

        def repeat(doubts: Mapping[str, Sequence[Doubt]], until: float) -> dict[str, Repeated]:
            repeated = {}
            for name, some in doubts.items():
                repeated[name] = Repeated(measurements=[self._reading(doubt.measurement) for doubt in some])
            return repeated

        return self._result(suite, names, began, compare([check], setup, self.store, context, repeat))

    def _readings(self, names: Sequence[str]) -> list[Measurement]:
        readings = []
        for name in names:
            for metric, unit, _ in _METRICS:
                for gpu in range(_GPUS):
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
        return {"name": name, "gpus": _GPUS, "gpu_model": "made-up", "hardware_ids": [f"id-{name}"]}

    def _result(self, suite: str, names: Sequence[str], began: float, checks: Sequence[Check]) -> RunResult:
        verdict, reason = conclude(checks, len(names))
        return RunResult(
            f"{suite}-{self.found.tests:06}",
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
        """Let a healthy node in service lose 10 % now and then, and bring repaired ones to the gate."""
        if self.random.random() < _FAULTS_PER_DAY * hours / 24:
            node = self.random.choice([n for n in self.nodes_by_name.values() if n.state == "in" and n.slow is None])
            node.slow, node.since = self.random.randrange(_GPUS), self.now
            self.found.faults += 1
            self._tests_since[node.name] = 0
        for node in self.nodes_by_name.values():
            waits = node.state == "out" or (node.state == "gated" and node.failed)
            if waits and node.since and self.now - node.since >= _REPAIR:
                node.state, node.failed = "gated", False
                if self.random.random() < 2 / 3:
                    node.slow = None
                node.since = self.now


def simulate(nodes: int, days: int, load: float, seed: int, folder: Path) -> tuple[Fleet, Cluster]:
    """The cluster after so many days, with a pass every hour."""
    store = open_store(f"sqlite:///{folder}/history.sqlite")
    fleet = Fleet(nodes, load, seed, store)
    fleet.advance(21 * 86400.0)  # until it is as busy as it will be
    settings = Qualify(dry_run=False)
    first = fleet.at
    remembered = timedelta(days=90)
    cluster = Cluster(
        fleet,
        settings,
        fleet.test,
        lambda: store.node_tests("simulated", fleet.now - remembered),
        lambda: fleet.now,
        fleet.wait,
    )
    began = time.monotonic()
    for hour in range(days * 24):
        fleet.advance(max(fleet.at, first + hour * 3600.0))
        fleet.break_and_repair(1.0)
        run_pass(cluster, Wanted(watch=True))
        busy = sum(node.job is not None for node in fleet.nodes_by_name.values())
        fleet.found.load.append(busy / nodes)
        if hour % 24 == 23:
            fleet.found.covered.append(covered(fleet, cluster, settings).share)
            print(
                f"day {hour // 24 + 1}: {100 * fleet.found.load[-1]:.0f} % busy, {fleet.found.tests} tests, covered"
                f" {100 * fleet.found.covered[-1]:.1f} %, {time.monotonic() - began:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    return fleet, cluster


def covered(fleet: Fleet, cluster: Cluster, settings: Qualify):  # type: ignore[no-untyped-def]
    in_service = [node for node in fleet.nodes() if node.state not in ("out", "gated")]
    return coverage(in_service, Evidence.of(cluster.tests(), fleet.now), settings, 0, {})


def report(fleet: Fleet, cluster: Cluster) -> list[tuple[str, str, str]]:
    """Rows of what is wanted, the goal, and what came out."""
    found = fleet.found
    last = covered(fleet, cluster, cluster.settings)
    overdue_pairs = len(last.overdue_pairs)
    late = sum(delay > 10 for delay in found.delays_s)
    by_then = sum(tests <= 2 for tests in found.tests_until_found)
    loads = sorted(found.load)
    return [
        ("busy nodes, 5th to 95th percentile of hours", "90 to 98 %", _span(loads)),
        ("nodes in service that passed within 7 days, after day 7", ">= 99 %", _percent(min(found.covered[7:] or [0]))),
        ("jobs delayed by more than 10 s", "0", f"{late} ({len(found.delays_s)} tests gave way for {_PREEMPT_S:g} s)"),
        ("losses of 10 % found within two tests", "all", f"{by_then} of {len(found.tests_until_found)} found"),
        ("healthy nodes kept out", "<= 1 in 1,000 tests", f"{found.false_keeps} in {found.healthy_tests} tests"),
        ("faulty nodes let in", "<= 1 in 100", f"{found.let_in_faulty} in {found.gate_tests_of_faulty} tests"),
        ("healthy nodes let in", "", str(found.let_in_healthy)),
        ("pairs of leaf switches untested for 30 days", "0", f"{overdue_pairs} of {len(last.pairs)}"),
        ("GPU hours of tests in the last week", "", f"{_hours(fleet):.0f} of {len(last.nodes) * _GPUS * 168}"),
    ]


def _hours(fleet: Fleet) -> float:
    since = fleet.now - timedelta(days=7)
    return sum(test.gpu_hours for test in fleet.store.node_tests("simulated", since))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _span(values: Sequence[float]) -> str:
    low, high = values[len(values) // 20], values[-len(values) // 20 - 1]
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--load", type=float, default=1.2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fleet, cluster = simulate(options.nodes, options.days, options.load, options.seed, Path(folder))
        for wanted, goal, came in report(fleet, cluster):
            print(f"| {wanted} | {goal} | {came} |")


if __name__ == "__main__":
    main()
