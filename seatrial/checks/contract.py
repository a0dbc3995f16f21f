"""The contract of a check: one `CheckType` per check, all of them in `seatrial/checks/table.py`.

The flow, the suite file, the form in Prefect, progress, what nodes need, repeats and tolerances are
derived from it. docs/extending.md walks through an example.

Durations follow from the suite (sizes, iterations, steps) and from rates assumed for H100 and H200
nodes and for two shared cores, because a suite is planned before anything is measured.
"""

import logging
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from seatrial.checks.metrics import Doubt, Metric
from seatrial.checks.taken_nodes import excused
from seatrial.config.architecture import Facts, foreign_nodes
from seatrial.config.run import Run
from seatrial.config.yamlfile import Strict
from seatrial.model.errors import MissingError, RemoteError
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, join, placed
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict, worst
from seatrial.text.words import some_of

START_S = {True: 15.0, False: 5.0}  # to start mpirun, torch and NCCL, by whether there are GPUs
log = logging.getLogger("seatrial.repeat")
_GRACE_S = 300  # extra time for a repeat that runs when the time for repeats is over
Section = TypeVar("Section", bound=Strict)
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class PlannedNodes:
    """The nodes that a suite is planned for: how many, the ranks on each, and whether they have
    GPUs.
    """

    count: int
    slots: int
    gpus: bool

    @property
    def ranks(self) -> int:
        return self.count * self.slots

    @property
    def words(self) -> str:
        each = f"{self.slots} GPU{'' if self.slots == 1 else 's'}" if self.gpus else "no GPU"
        return f"{self.count} node{'' if self.count == 1 else 's'} with {each}"


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A part of a check: what it does, and its estimated and maximum duration in seconds."""

    what: str
    about_s: float
    most_s: float


def one_part(section: Strict, nodes: PlannedNodes) -> list[PlannedPart]:
    """Plan a check as a single part, with the usual time to start ranks and its timeout as
    maximum.
    """
    usual_s = START_S[nodes.gpus]
    most_s = float(getattr(section, "timeout_s", usual_s))
    description = " ".join((type(section).__doc__ or "").partition("\n\n")[0].split()).rstrip(".")
    return [PlannedPart(description, min(usual_s, most_s), most_s)]


@dataclass(frozen=True, slots=True)
class Problem:
    """A verdict with its reason and, if known, its suspect."""

    verdict: Verdict
    reason: Reason
    suspect: Suspect | None = None

    @classmethod
    def of(cls, verdict: Verdict, suspect: Suspect) -> "Problem":
        """Return the problem of a suspect, with its evidence as the reason."""
        return cls(verdict, placed(suspect.name, suspect.evidence), suspect)


def sure(evidence: Mapping[str, Reason], confidence: float = 1.0) -> list[Suspect]:
    """Return a suspect for each node in `evidence`, with that confidence."""
    return [Suspect("node", name, confidence, why) for name, why in evidence.items()]


def unanswered(answers: Mapping[str, object]) -> dict[str, Reason]:
    """Return the errors of the nodes that gave no answer, by node name."""
    return {
        name: answer.reason for name, answer in answers.items() if isinstance(answer, RemoteError)
    }


def concluded(
    name: str,
    problems: Sequence[Problem],
    passed: Reason,
    started: float,
    measurements: Iterable[Measurement] = (),
    most_reasons: int | None = None,
) -> Check:
    """Return a check that began at `started` (time.monotonic), with the worst verdict of its
    problems, or a pass.

    `passed` is the reason of a pass. Otherwise the reason joins those of the first `most_reasons`
    problems.
    """
    return Check(
        name=name,
        verdict=worst([problem.verdict for problem in problems] or [Verdict.PASS]),
        reason=join(problem.reason for problem in problems[:most_reasons]) or passed,
        seconds=time.monotonic() - started,
        measurements=tuple(measurements),
        suspects=tuple(problem.suspect for problem in problems if problem.suspect),
    )


@dataclass(slots=True)
class Outcome:
    """Measurements, and the problems meanwhile."""

    measurements: list[Measurement] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def add(self, other: "Outcome") -> None:
        """Add the outcome of another part."""
        self.measurements += other.measurements
        self.problems += other.problems


@dataclass(slots=True)
class Repeated(Outcome):
    """The results of repeating a check's doubtful measurements, and what broke meanwhile.

    `suspects` are to blame for what broke. `over`: no more repeats, since the cluster has changed
    or time is up. `check` is the check recomputed with the repeats, before its measurements are
    judged; None if that changes nothing.
    """

    suspects: list[Suspect] = field(default_factory=list)
    over: bool = False
    check: Check | None = None

    def add_later(self, later: "Repeated") -> None:
        """Add the results of a later repeat."""
        self.add(later)
        self.suspects += later.suspects
        self.over = self.over or later.over
        self.check = later.check or self.check

    def added_to(self, check: Check) -> Check:
        """Return the raw check with the repeated measurements, and with the problems and suspects
        of the repeats.
        """
        own = self.check or check
        return replace(
            own,
            verdict=worst((own.verdict, *(problem.verdict for problem in self.problems))),
            reason=join((own.reason, *(problem.reason for problem in self.problems))),
            measurements=(*check.measurements, *self.measurements),
            suspects=(*own.suspects, *self.suspects),
        )

    def add_outcome(self, *outcomes: Problem) -> None:
        """Add the suspects, and the problems whose verdict is fail or corrupt; log other outcomes
        except a pass.
        """
        for outcome in outcomes:
            self.suspects += [outcome.suspect] if outcome.suspect else []
            if outcome.verdict in (Verdict.FAIL, Verdict.CORRUPT):
                self.problems.append(
                    Problem(outcome.verdict, placed("when it was repeated", outcome.reason))
                )
            elif outcome.verdict is not Verdict.PASS:
                log.warning("not repeated: %s", outcome.reason)


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """The end of the time for repeats: no repeat begins after `until` (time.monotonic)."""

    until: float

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until

    def limit(self, usual_s: float) -> float:
        """Return the time limit in seconds of a repeat that begins now."""
        return min(usual_s, max(self.until - time.monotonic(), 0.0) + _GRACE_S)


def was_cut(began: float, limit_s: float, usual_s: float) -> bool:
    """Return whether a shortened time limit may have ended a repeat; waiting ranks give up at half
    of it.
    """
    return limit_s < usual_s and time.monotonic() - began >= limit_s / 2


def unused_label(logs: Path, name: str) -> str:
    """Return the first label that has no log yet: `all_reduce-again-1`."""
    return next(
        label for n in count(1) if not (logs / f"{(label := f'{name}-again-{n}')}.log").exists()
    )


def log_repeat(subject: str, doubts: Sequence[Doubt]) -> None:
    """Log what is repeated, for which time, and the most times."""
    first = max(doubts, key=lambda doubt: doubt.most - doubt.taken)
    log.info("%s once more: repeat %d of %d at most", subject, first.taken, first.most - 1)


@dataclass(frozen=True, slots=True)
class CheckContext:
    """Input of a check: the run, the remaining nodes, and their facts, which are empty until a
    check asks for them.

    `kept` are the objects that earlier checks kept for their repeats.
    """

    run: Run
    testbed: Testbed
    facts: Facts = field(default_factory=dict)
    kept: tuple[object, ...] = ()

    def recall(self, model: type[Kept]) -> Kept | None:
        """Return the object of that type that a check has kept; None if there is none."""
        return next((each for each in self.kept if isinstance(each, model)), None)

    def section(self, model: type[Section]) -> Section:
        """Return the section of the suite that is an instance of `model`.

        Raises LookupError if the suite does not have it.
        """
        section = self.run.suite.section(model)
        if section is None:
            raise LookupError(f"suite {self.run.suite.name} has no section {model.__name__}")
        return section


@dataclass(frozen=True, slots=True)
class StepResult:
    """The verdict and measurements of a check, and the testbed without the nodes that it took out.

    `facts` and `fingerprint` (version by package) are set by a check that asks nodes for them.
    `notes` are remarks without blame. `kept` is what the check's `repeat` needs from this first
    time.
    """

    check: Check
    testbed: Testbed
    facts: Facts = field(default_factory=dict)
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[Reason, ...] = ()
    kept: object = None


@dataclass(frozen=True, slots=True)
class Need:
    """A program or package that a node must have, by its name in the facts (with `-` for `_`), and
    how to get it.
    """

    name: str
    remedy: str


TORCH = Need(
    "torch",
    "install PyTorch where the nodes' Python finds it; on this machine, seatrial's extra `local`",
)

Repeat = Callable[[CheckContext, Sequence[Doubt], Repeated, TimeLeft], None]


@dataclass(frozen=True, slots=True)
class CheckType:
    """A check.

    - `section`: the model of its part of a suite file. A suite without it skips the check, unless
      `default` is set.
    - `description`: what the field of that section means, for the suite file's documentation.
    - `after`: the step or check that must have worked before.
    - `metrics`: what it measures, by the metric's name. docs/checks.md is made from it.
    - `needs`: what nodes must have, by whether they have GPUs.
    - `least_ranks`: over how many ranks it must run to mean anything.
    - `repeat`: measures again what the judge doubts. Without it, one measurement decides.
    - `plan`: what it will do, and how long that takes, by its section and the nodes.
    - `logs`: names of its raw logs, besides its own name and those of the operations that it
      measures.
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
    plan: Callable[[Any, PlannedNodes], Sequence[PlannedPart]] = one_part
    logs: tuple[str, ...] = ()


def try_check(kind: CheckType, context: CheckContext) -> StepResult:
    """Run the check if enough is left of the testbed.

    Raises MissingError if nodes lack what it needs.
    """
    reason = lacking(kind, context)
    if reason:
        raise MissingError(reason)
    reason = too_small(context.run, context.testbed, kind.least_ranks)
    if reason:
        return StepResult(
            Check(name=kind.name, verdict=Verdict.NOT_RUN, reason=reason), context.testbed
        )
    result = kind.run(context)
    return replace(result, check=excused(result.check, context.testbed))


def too_small(run: Run, testbed: Testbed, least_ranks: int = 2) -> Reason | None:
    """Return the reason if nodes or ranks are too few to exchange data; else None."""
    if least_ranks < 2:
        return None
    left = len(testbed.nodes)
    if left < min(2, run.cluster.nodes):
        return Reason.of("too-few-nodes", left=left)
    if testbed.world_size > 1:
        return None
    return Reason.of("too-few-ranks", ranks=testbed.world_size)


def lacking(kind: CheckType, context: CheckContext) -> Reason | None:
    """Return the reason if the nodes cannot run the check, by their facts; None if they can, or if
    there are no facts.

    A version that a node could not report counts as present.
    """
    facts = {name: context.facts[name] for name in context.testbed.names if name in context.facts}
    if not facts:
        return None
    foreign = foreign_nodes(facts, context.run.cluster, platform.machine())
    if foreign:
        return foreign
    for need in kind.needs(context.testbed.has_gpus):
        own_fact = need.name.replace("-", "_")
        # Nodes report "" for what they lack.
        missing = [
            name
            for name, own in facts.items()
            if own["versions"].get(need.name, own.get(own_fact)) == ""
        ]
        if missing:
            where = f"in image {context.run.image}" if context.run.image else "on every node"
            if len(missing) < len(facts):
                where = f"on {some_of(missing)}"
            return Reason.of("program-missing", program=need.name, where=where, remedy=need.remedy)
    return None
