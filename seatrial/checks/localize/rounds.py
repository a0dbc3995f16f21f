"""Rounds in which a bad collective runs in disjoint groups of nodes at once, an mpirun for each
group.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from seatrial.checks.collectives.outcome import SweepOutcome
from seatrial.checks.collectives.section import Collectives, PlannedSweep
from seatrial.checks.collectives.sweep import at_once, sweep_once
from seatrial.checks.connectivity.stages import roll_call
from seatrial.checks.contract import CheckContext
from seatrial.config.run import Run
from seatrial.localize.group_tests import GroupTest
from seatrial.localize.rounds import Budget, Group, State, plan, start, update
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, join, placed
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.ssh import in_parallel

log = logging.getLogger("seatrial.localize")

LOCALIZE = "localize"
_LEAST_TIMEOUT_S = 30.0  # least timeout of a test

Labelled = tuple[str, Group]


def budget_spent(run: Run, rounds: int) -> Reason:
    """Return the reason for no further rounds: the time is spent."""
    budget = f"{run.suite.budget_s:g}"
    return Reason.of("localize-budget-spent", rounds=rounds, budget_s=budget)


class Rounds:
    """Rounds of the `sweep` on `testbed`, which shrinks as nodes die.

    `state` has the tests so far and their localization. No round begins after `until`
    (time.monotonic). Suspects and problems are nodes that died, flooded their output or broke a
    test.
    """

    def __init__(
        self, context: CheckContext, section: Collectives, sweep: PlannedSweep, until: float
    ) -> None:
        testbed = context.testbed
        self.testbed = testbed
        self.sweep = sweep
        self._run = context.run
        self._section = section
        self._until = until
        self._suspects: list[Suspect] = []
        self._problems: list[Reason] = []
        self._spent = False
        gpus = _gpus(testbed)
        self.state: State = start(testbed.names, gpus, testbed.groups)

    def run(self) -> None:
        """Run rounds until settled, or until another round as long as the last would exceed the
        time limit.
        """
        last_s = 0.0
        while groups := plan(self.state, Budget()):
            began = time.monotonic()
            if began + last_s >= self._until:
                self._spent = True
                return
            self._round(groups)
            last_s = time.monotonic() - began
            log.info(
                "round %d, %d groups: %s",
                self.state.rounds,
                len(groups),
                self.state.localization.reason,
            )

    def _round(self, groups: Sequence[Group]) -> None:
        """Test the groups at once, without nodes that have died."""
        labelled = self._labelled(groups)
        node_counts = [len(group.nodes) for group in groups]
        parallel = at_once(self.testbed, node_counts)
        outcomes = in_parallel(labelled, self._test, parallel)
        tests = self._tests_of(labelled, outcomes)
        gone = set()
        has_failed = any(test.failed for test in tests)
        if has_failed or len(tests) < len(groups):
            gone = self._gone(outcomes)
        state = _without(self.state, gone)
        new = _without_nodes(tests, gone)
        self.state = update(state, new)

    def _labelled(self, groups: Sequence[Group]) -> list[Labelled]:
        """Return the groups with labels: LOCALIZE-ROUND-NUMBER."""
        number = self.state.rounds + 1
        labelled = []
        for n, group in enumerate(groups, 1):
            label = f"{LOCALIZE}-{number}-{n}"
            labelled.append((label, group))
        return labelled

    def _tests_of(
        self, labelled: Sequence[Labelled], outcomes: Sequence[SweepOutcome]
    ) -> list[GroupTest]:
        """Return the outcomes as tests of their groups, without outcomes that show nothing."""
        sizes = self.sweep.sizes.sizes()
        tests = []
        for (label, group), outcome in zip(labelled, outcomes, strict=True):
            busbw = _busbw(outcome, sizes)
            if busbw is not None:
                test = group.result(self.sweep.label, busbw)
                tests.append(replace(test, name=label))
        return tests

    def _test(self, labelled: Labelled) -> SweepOutcome:
        """Run the sweep in one group."""
        label, group = labelled
        timeout = {"timeout_s": self._timeout_s()}
        settings = self._section.model_copy(update=timeout)
        nodes = self.testbed.part(group.nodes, label)
        part = _with_gpus(nodes, group.gpus, self.state.gpus)
        return sweep_once(self._run, part, settings, self.sweep, label=label, is_repeat=True)

    def _timeout_s(self) -> float:
        """Return half of the remaining time, limited by the suite's timeout."""
        left_s = max(0.0, self._until - time.monotonic())
        half_s = max(_LEAST_TIMEOUT_S, left_s / 2)
        return min(self._section.timeout_s, half_s)

    def _gone(self, outcomes: Iterable[SweepOutcome]) -> set[str]:
        """Remove nodes that died or flood their output, and return them; blame these and nodes
        whose ranks broke a test.
        """
        present = roll_call(self._run, self.testbed)
        self._suspects += present.suspects
        self._problems += present.problems
        flooding: dict[str, Suspect] = {}
        lost: dict[str, Suspect] = {}
        for outcome in outcomes:
            for suspect in outcome.suspects:
                flooding[suspect.name] = suspect
            for suspect in outcome.lost:
                lost[suspect.name] = suspect
        for suspect in (flooding | lost).values():
            self._suspects.append(suspect)
            self._problems.append(placed(suspect.name, suspect.evidence))
        before = set(self.testbed.names)
        self.testbed = present.testbed.without(flooding)
        return before.difference(self.testbed.names)

    def check(self, fault: Verdict) -> Check:
        """Return the check, with the verdict `fault` if a part is named, else inconclusive."""
        localization = self.state.localization
        verdict = Verdict.INCONCLUSIVE
        is_found = any(finding.named for finding in localization.findings)
        if self._suspects or is_found:
            verdict = fault
        every = [*localization.suspects, *self._suspects]
        suspects = _surest(every)
        return Check(LOCALIZE, verdict, self._reason(), suspects=suspects)

    def _reason(self) -> Reason:
        """Return the problems, the result of the localization, and whether time ran out."""
        rounds = self.state.rounds
        reasons = list(self._problems)
        if self.state.tests:
            reasons.append(self.state.localization.reason)
        if self._spent:
            reasons.append(budget_spent(self._run, rounds))
        if reason := join(reasons):
            return reason
        return Reason.of("localize-nothing-measured", rounds=rounds)


def _surest(suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Return each suspect once, with its highest confidence."""
    surest = {}
    for suspect in sorted(suspects, key=lambda suspect: suspect.confidence):
        surest[suspect.kind, suspect.name] = suspect
    return tuple(surest.values())


def _without(state: State, gone: Set[str]) -> State:
    """Return the state without nodes, and without the tests that they took part in."""
    nodes = [node for node in state.nodes if node not in gone]
    tests = _without_nodes(state.tests, gone)
    return replace(state, nodes=tuple(nodes), tests=tuple(tests))


def _without_nodes(tests: Iterable[GroupTest], gone: Set[str]) -> list[GroupTest]:
    return [test for test in tests if gone.isdisjoint(test.nodes)]


def _gpus(testbed: Testbed) -> tuple[str, ...]:
    """Return the GPUs that every node has, if they can be tested alone; else ()."""
    if testbed.launcher:
        return ()
    numbers = set[int]()
    for node in testbed.nodes:
        numbers |= {node.gpus, node.slots}
    if len(numbers) > 1 or 0 in numbers:
        return ()
    count = numbers.pop()
    return tuple(f"gpu-{number}" for number in range(count))


def _with_gpus(part: Testbed, gpus: Sequence[str], every: Sequence[str]) -> Testbed:
    """Return the testbed with a rank for each GPU of `gpus` only; unchanged if these are all.

    CUDA_VISIBLE_DEVICES selects them, which ROCm obeys too; ranks take GPUs by their local number.
    """
    if len(gpus) == len(every):
        return part
    ranks = len(gpus)
    nodes = []
    for node in part.nodes:
        nodes.append(replace(node, slots=ranks, gpus=ranks))
    numbers = [gpu.removeprefix("gpu-") for gpu in gpus]
    visible = ("CUDA_VISIBLE_DEVICES", ",".join(numbers))
    env = (*part.env, visible)
    return replace(part, nodes=tuple(nodes), env=env)


def _busbw(outcome: SweepOutcome, sizes: Sequence[int]) -> Mapping[int, float] | None:
    """Return GB/s by message bytes: empty for a failed test, None for an outcome that shows
    nothing.
    """
    if outcome.verdict is Verdict.CORRUPT:
        return {}
    rates = _out_of_place(outcome.measurements)
    if len(rates) == len(sizes):
        return rates
    if outcome.verdict is Verdict.FAIL:
        return {}
    return None


def _out_of_place(measurements: Iterable[Measurement]) -> dict[int, float]:
    """Return the out-of-place busbw by message bytes."""
    rates = {}
    for m in measurements:
        if m.metric != "busbw":
            continue
        if m.conditions["placement"] == "out_of_place":
            size = int(m.conditions["message_bytes"])
            rates[size] = m.value
    return rates
