"""The contract of a check: one `CheckType` per check, all of them in `seatrial/checks/table.py`.

The flow, the suite file, the form in Prefect, progress, what nodes need, repeats and tolerances are derived from it.
docs/extending.md walks through an example.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from seatrial.config.run import Run
from seatrial.config.yamlfile import Strict
from seatrial.model.measurement import Measurement
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.tolerance import Tolerance
from seatrial.model.verdict import Verdict

log = logging.getLogger("seatrial.repeat")

Section = TypeVar("Section", bound=Strict)
Facts = Mapping[str, Mapping[str, Any]]  # by node, as seatrial/remote/probes/facts.py prints them

UNIT = {"units": 1}  # `extra` of a log record that says one unit of progress more
_BROKEN = (Verdict.FAIL, Verdict.CORRUPT)
_GRACE_S = 300  # what is under way when the time for repeats is over may go on for as long


@dataclass(frozen=True, slots=True)
class Context:
    """What a check gets: the run that it is part of, and the nodes that are left."""

    run: Run
    testbed: Testbed

    def section(self, model: type[Section]) -> Section:
        """The suite's section of that model. Raises LookupError where the suite has none, so the check is not tried."""
        found = self.run.suite.section(model)
        if found is None:
            raise LookupError(f"suite {self.run.suite.name} has no section {model.__name__}")
        return found


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a check came to: its verdict and measurements, and the testbed without the nodes that it took out.

    `facts` and `fingerprint` (version by package) are of a check that asks the nodes what they are; `notes` say what
    could not be found out and blames nobody.
    """

    check: Check
    testbed: Testbed
    facts: Facts = field(default_factory=dict)
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """What a node must have: its name in the facts (`nccl-tests` is `nccl_tests`), and how to get it."""

    name: str
    remedy: str


TORCH = Need("torch", "install PyTorch where the nodes' Python finds it")


@dataclass(frozen=True, slots=True)
class Doubt:
    """A measurement to take once more; it was taken `taken` times, and never will be more than `most` times."""

    measurement: Measurement
    taken: int
    most: int


@dataclass(slots=True)
class Repeated:
    """What repeating a check's doubtful numbers came to: further measurements, and what broke meanwhile.

    `suspects` are to blame for that. `over`: the cluster is not what was measured any more, or has no time left.
    """

    measurements: list[Measurement] = field(default_factory=list)
    problems: list[tuple[Verdict, str]] = field(default_factory=list)
    suspects: list[Suspect] = field(default_factory=list)
    over: bool = False

    def broke(self, verdict: Verdict, reason: str) -> None:
        """Only a cluster that breaks or computes wrongly says something about the cluster."""
        if verdict in _BROKEN:
            self.problems.append((verdict, f"when it was repeated: {reason}"))
        elif verdict is not Verdict.PASS:
            log.warning("not repeated: %s", reason)


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """How long repeats may take: none begins after `until` (of time.monotonic)."""

    until: float

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until

    def limit(self, usual_s: float) -> float:
        """The time limit of what begins now, in seconds."""
        return min(usual_s, max(self.until - time.monotonic(), 0.0) + _GRACE_S)


Repeat = Callable[[Context, Sequence[Doubt], Repeated, TimeLeft], None]


@dataclass(frozen=True, slots=True)
class CheckType:
    """A check.

    `section` is the model of its part of a suite file; a suite without it leaves the check out, unless `default` stands
    in. `after` names the step or check that has to work before. `needs` says what nodes with or without GPUs must have,
    `least_ranks` over how many ranks the check says anything. `repeat` measures again what the judge doubts. `units` is
    how many records with `extra=UNIT` it logs, by its section. `tolerances` are by metric, for those that differ from
    what judge/baselines/tolerance.py assumes. `logs` are names of its raw logs besides its own and its operations'.
    """

    name: str
    section: type[Strict]
    description: str
    run: Callable[[Context], StepResult]
    default: Strict | None = None
    after: str = "connectivity"
    needs: Callable[[bool], tuple[Need, ...]] = lambda gpus: ()
    least_ranks: int = 1
    repeat: Repeat | None = None
    units: Callable[[Any], int] = lambda section: 1
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    logs: tuple[str, ...] = ()


def too_small(run: Run, testbed: Testbed, least_ranks: int = 2) -> str | None:
    """Why there are too few nodes or ranks to talk to each other; None when there are enough."""
    if least_ranks < 2:
        return None if testbed.nodes else "needs a node, 0 left"
    left = len(testbed.nodes)
    if left < min(2, run.cluster.nodes):
        return f"needs at least two nodes, {left} left"
    return (
        None if testbed.world_size > 1 else f"needs at least two ranks, {testbed.world_size} here: set slots_per_node"
    )


def try_check(kind: CheckType, context: Context) -> StepResult:
    """Run the check, where enough is left of the testbed."""
    if reason := too_small(context.run, context.testbed, kind.least_ranks):
        return StepResult(Check(kind.name, Verdict.NOT_RUN, reason), context.testbed)
    return kind.run(context)
