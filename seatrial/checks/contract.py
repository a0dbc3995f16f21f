"""The contract of a check: one `CheckType` per check, all of them in `seatrial/checks/table.py`.

The flow, the suite file, the form in Prefect, progress, what nodes need, repeats and tolerances are derived from it.
docs/extending.md walks through an example.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from seatrial.checks.planned import PlannedNodes, PlannedPart, one_part
from seatrial.checks.repeated import Doubt, Repeated, TimeLeft
from seatrial.config.run import Run
from seatrial.config.yamlfile import Strict
from seatrial.model.baseline import Tolerance
from seatrial.model.result import Check
from seatrial.model.testbed import Testbed

Section = TypeVar("Section", bound=Strict)
Kept = TypeVar("Kept")
Facts = Mapping[str, Mapping[str, Any]]  # by node, as seatrial/remote/probes/facts.py prints them

UNIT = {"units": 1}  # `extra` of a log record that reports one more unit of progress


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What a check gets: the run, the nodes that are left, and the facts about them (empty until a check asks them).

    `kept` is what the checks before kept for their repeats.
    """

    run: Run
    testbed: Testbed
    facts: Facts = field(default_factory=dict)
    kept: tuple[object, ...] = ()

    def recall(self, model: type[Kept]) -> Kept | None:
        """What a check kept of that type; None where it did not."""
        return next((each for each in self.kept if isinstance(each, model)), None)

    def section(self, model: type[Section]) -> Section:
        """The suite's section of that model. Raises LookupError where the suite leaves it out."""
        section = self.run.suite.section(model)
        if section is None:
            raise LookupError(f"suite {self.run.suite.name} has no section {model.__name__}")
        return section


@dataclass(frozen=True, slots=True)
class StepResult:
    """The verdict and measurements of a check, and the testbed without the nodes that it took out.

    `facts` and `fingerprint` (version by package) come from a check that asks the nodes what they are; `notes` are
    remarks that blame nobody; `kept` is what the check's `repeat` needs to know of the first time.
    """

    check: Check
    testbed: Testbed
    facts: Facts = field(default_factory=dict)
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kept: object = None


@dataclass(frozen=True, slots=True)
class Need:
    """A program or package that a node must have, by its name in the facts (with `-` for `_`), and how to get it."""

    name: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that a check measures: its unit and meaning, and how much a healthy value varies.

    Without a `tolerance` it varies as seatrial/judge/tolerance.py assumes; `of_gpu` is that of a single GPU.
    """

    unit: str
    meaning: str
    tolerance: Tolerance | None = None
    of_gpu: Tolerance | None = None


TORCH = Need("torch", "install PyTorch where the nodes' Python finds it")

Repeat = Callable[[CheckContext, Sequence[Doubt], Repeated, TimeLeft], None]


@dataclass(frozen=True, slots=True)
class CheckType:
    """A check.

    - `section`: the model of its part of a suite file. A suite without it skips the check, unless `default` is set.
    - `description`: what the field of that section means, for the suite file's documentation.
    - `after`: the step or check that must have worked before.
    - `metrics`: what it measures, by the metric's name. docs/checks.md is made from it.
    - `needs`: what nodes must have, by whether they have GPUs.
    - `least_ranks`: over how many ranks it must run to mean anything.
    - `repeat`: measures again what the judge doubts. Without it, one measurement decides.
    - `units`: how many log records with `extra=UNIT` it writes, by its section and the nodes.
    - `plan`: what it will do, and how long that takes, by its section and the nodes.
    - `logs`: names of its raw logs, besides its own name and those of the operations that it measures.
    """

    name: str
    section: type[Strict]
    description: str
    run: Callable[[CheckContext], StepResult]
    after: str
    metrics: Mapping[str, Metric]
    default: Strict | None = None
    needs: Callable[[bool], tuple[Need, ...]] = lambda gpus: ()
    least_ranks: int = 1
    repeat: Repeat | None = None
    units: Callable[[Any, PlannedNodes], int] = lambda section, nodes: 1
    plan: Callable[[Any, PlannedNodes], Sequence[PlannedPart]] = one_part
    logs: tuple[str, ...] = ()
