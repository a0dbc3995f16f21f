"""The state of a run while it happens. An error in a step becomes a check with a reason."""

import logging
import time
from asyncio import CancelledError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, lru_cache
from operator import is_not
from typing import TYPE_CHECKING, Any

from seatrial.checks.contract import CheckContext, StepResult
from seatrial.config.run import Run, secrets_of, setup_of
from seatrial.model.errors import LaunchError, MissingError, NodesError, RemoteError, SeatrialError
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, join, placed, rewritten
from seatrial.model.result import (
    Check,
    CheckResult,
    Judgement,
    NextStep,
    RunResult,
    Suspect,
    merge_suspects,
    now,
)
from seatrial.model.setup import Setup
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict, worst
from seatrial.remote.minutes import Minutes
from seatrial.runs.progress import step
from seatrial.text.headline import (
    EARLIER_RUNS,
    NO_HISTORY,
    EarlierRun,
    conclude,
    next_steps,
    since,
)
from seatrial.text.redact import Clean, Secrets

if TYPE_CHECKING:
    from seatrial.history.store import Store

log = logging.getLogger("seatrial")
# The facts of each node in run.json.
_SHOWN_FACTS = (
    "hostname",
    "cpus",
    "cpu_model",
    "memory_gb",
    "gpu_model",
    "gpu_clock_mhz",
    "nvlink_domain",
    "hardware_ids",
)

_LISTS = (list, tuple)
# The fields that may have a text from a node or a log
_TEXTS: Mapping[type, Sequence[str]] = {
    RunResult: (
        "cluster",
        "suite",
        "reason",
        "nodes",
        "fingerprint",
        "suspects",
        "checks",
        "localization",
    ),
    Suspect: ("name", "evidence"),
    Check: ("name", "reason", "measurements", "judgements", "suspects", "raw_result"),
    CheckResult: ("reason", "suspects"),
    Judgement: ("measurement", "reason"),
    Measurement: ("subject", "conditions"),
    Subject: ("name",),
}


def without_details(result: RunResult, why: str) -> RunResult:
    """Return the run without judgements and facts, to fit on a full disk; `why` is its only note.

    What has no bound is cut: reasons and the number of suspects.
    """
    checks = tuple(
        Check(c.name, c.verdict, rewritten(c.reason, _cut), c.seconds) for c in result.checks
    )
    return replace(
        result,
        reason=rewritten(result.reason, _cut),
        checks=checks,
        suspects=tuple(result.suspects)[:100],
        notes=(why,),
        localization=None,
    )


def _cut(text: str) -> str:
    """Return the first 2,000 characters."""
    return text[:2000]


def verdicts_alone(result: RunResult, checks: Sequence[Check], error: Exception) -> RunResult:
    """Return `result` with only the verdicts of `checks`; never a pass, since the error may hide a
    fault.
    """
    failed = Reason.of(
        "result-failed", error=f" ({type(error).__name__}); logs/run.log has the trace"
    )
    verdict = worst((Verdict.INCONCLUSIVE, *(check.verdict for check in checks)))
    bad = ", ".join(f"{check.name} {check.verdict.value}" for check in checks if not check.passed)
    verdicts = Reason.of("verdicts-alone", checks=bad)
    alone = [
        Check(
            name=check.name,
            verdict=check.verdict,
            reason=Reason.of("result-failed", error=""),
            seconds=check.seconds,
        )
        for check in checks
    ]
    alone.append(Check("result", Verdict.INCONCLUSIVE, failed))
    return replace(result, verdict=verdict, reason=join((verdicts, failed)), checks=tuple(alone))


@dataclass(slots=True)
class RunState:
    """Checks, timings, fingerprint and nodes of `run` so far; `done` are the finished steps."""

    run: Run
    started: datetime = field(default_factory=now)
    checks: list[Check] = field(default_factory=list)
    fingerprint: dict[str, str] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    notes: list[object] = field(default_factory=list)
    localization: Mapping[str, Any] | None = None  # its part of run.json
    isolated: Sequence[str] = ()  # a line for each node, for `next`
    finished: datetime | None = None  # set once, so that alerts and history agree
    # Runs of the cluster and suite that began after this one, by the clock of this machine
    later: int = 0
    # Of the cluster and suite, newest first; None without a history
    earlier: Sequence[EarlierRun] | None = None
    nodes_up: Testbed | None = None  # the nodes that are left
    launched: Testbed | None = None  # all nodes
    minutes: Minutes = field(default_factory=Minutes)  # what devices reported meanwhile
    _facts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _kept: list[object] = field(default_factory=list)

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Run a step: log and time it, and turn an error into a check.

        Exceptions that end this process are not caught.
        """
        started = time.monotonic()
        with step(name, self.timings):
            try:
                yield
                self.done.add(name)
            except Exception as error:
                if interruption := _interruption(error):
                    raise interruption from None
                self.add_failure(name, error, time.monotonic() - started)

    def add_failure(self, name: str, error: Exception, seconds: float = 0.0) -> None:
        """Add a check for an error in a step."""
        verdict, reason = _explain(error)
        is_explained = isinstance(error, SeatrialError)  # its reason says it all
        log.error("%s: %s", name, reason, exc_info=None if is_explained else error)
        blamed = error.evidence.items() if isinstance(error, NodesError) else ()
        suspects = tuple(Suspect("node", node, 1.0, why) for node, why in blamed)
        self.checks.append(
            Check(name=name, verdict=verdict, reason=reason, seconds=seconds, suspects=suspects)
        )

    def can_run(self, name: str, after: str) -> bool:
        """Return whether step `after` is done; if not, add a check `name` that says why.

        The cause is the last step that failed by itself.
        """
        if after in self.done:
            return True
        broken = (check for check in reversed(self.checks) if not check.passed)
        cause = next(
            (check for check in broken if check.reason.code != "prerequisite-failed"), None
        )
        reason = Reason.of("prerequisite-missing", step=after)
        if cause:
            reason = Reason.of("prerequisite-failed", step=cause.name)
        self.checks.append(Check(name, Verdict.NOT_RUN, reason))
        return False

    def set_testbed(self, testbed: Testbed) -> None:
        """Set the testbed; run.json names all its nodes, even those that are taken out later."""
        self.nodes_up = self.launched = testbed
        self.nodes = {node.name: node.to_dict() for node in testbed.nodes}

    def checked(self, result: StepResult) -> None:
        """Add the result of a check, and continue with the nodes that are left."""
        self.checks.append(result.check)
        self.nodes_up = result.testbed
        self.fingerprint |= result.fingerprint
        self.notes += result.notes
        self._facts |= result.facts
        if result.kept is not None:
            self._kept.append(result.kept)
        for name, fact in result.facts.items():
            shown = {
                **{key: fact.get(key) for key in _SHOWN_FACTS},
                "driver": fact["versions"].get("driver"),
            }
            self.nodes[name] |= {key: value for key, value in shown.items() if value}
        result.testbed.after_check(result.check.name)

    def context(self) -> CheckContext:
        """Return the input of the next check. Raises LaunchError before the launch."""
        return CheckContext(
            run=self.run, testbed=self.testbed, facts=self._facts, kept=tuple(self._kept)
        )

    @property
    def setup(self) -> Setup:
        """The cluster's facts, and whether one machine turned out to play all nodes."""
        setup = setup_of(self.run.cluster)
        if self.launched is None:
            return setup
        return replace(setup, one_machine=self.launched.shared_cores is not None)

    @property
    def testbed(self) -> Testbed:
        """The nodes that are left. Raises LaunchError before the launch."""
        if self.nodes_up is None:
            raise LaunchError.of("no-testbed")
        return self.nodes_up

    def add(self, check: Check) -> None:
        """Add a check that is not part of the suite."""
        self.checks.append(check)

    def doubt(self, why: Reason) -> None:
        """Make checks that are not passed inconclusive because of `why`, without suspects; wrong
        numbers stay.
        """
        self.checks = [
            replace(
                check,
                verdict=Verdict.INCONCLUSIVE,
                reason=placed(why.sentence, check.reason),
                suspects=(),
            )
            if check.verdict in (Verdict.DEGRADED, Verdict.FAIL, Verdict.INCONCLUSIVE)
            else check
            for check in self.checks
        ]
        self.checks.append(Check("turn", Verdict.INCONCLUSIVE, why))

    def discard_measurements(self, why: Reason) -> None:
        """Drop all measurements because of `why`: the nodes were given away meanwhile."""
        self.checks = [Check("run", Verdict.INCONCLUSIVE, why)]

    def read_earlier_runs(self, store: "Store") -> None:
        """Read the earlier runs that the summary compares with; if that fails it says so."""
        try:
            self.later = store.count_after(self.run.cluster.name, self.run.suite.name, self.started)
            self.earlier = store.runs_before(
                self.run.cluster.name, self.run.suite.name, self.started, EARLIER_RUNS
            )
        except SeatrialError as error:
            log.warning("history: %s", error)

    def note(self, text: object) -> None:
        """Add a note if there is one."""
        if text:
            self.notes.append(text)

    def result(self) -> RunResult:
        """Return the result so far without secrets; an error in making it leaves the verdicts
        alone.
        """
        try:
            return without_secrets(self._result(), secrets_of(self.run.cluster))
        except Exception as error:
            log.exception("the result cannot be put together")
            return verdicts_alone(self._empty(Verdict.INCONCLUSIVE, Reason()), self.checks, error)

    def _result(self) -> RunResult:
        """Return the result so far, with texts as they are."""
        verdict, reason = conclude(self.checks, len(self.nodes))
        result = replace(
            self._empty(verdict, reason),
            nodes=tuple(self.nodes.values()),
            checks=tuple(self.checks),
            suspects=tuple(merge_suspects(self.checks)),
            fingerprint=dict(sorted(self.fingerprint.items())),
            notes=tuple(map(str, self.notes)),
            setup=self.setup,
            localization=self.localization,
        )
        known = NO_HISTORY
        if self.earlier is not None:
            known = since(verdict, self.started, self.run.run_id, self.earlier, self.later)
        steps = (*map(NextStep, self.isolated), *next_steps(result))
        return replace(result, since=known, next_steps=steps)

    def _empty(self, verdict: Verdict, reason: Reason) -> RunResult:
        """Return a result without anything from the nodes."""
        return RunResult(
            run_id=self.run.run_id,
            cluster=self.run.cluster.name,
            suite=self.run.suite.name,
            started=self.started,
            finished=self.finished or now(),
            verdict=verdict,
            reason=reason,
            timings=dict(self.timings),
        )


def _interruption(error: BaseException | None) -> BaseException | None:
    """Return the signal behind an error, if any: Prefect's engine may fail itself while it ends for
    one.
    """
    while isinstance(error, Exception):
        error = error.__cause__ or error.__context__
    if isinstance(error, (CancelledError, GeneratorExit)):
        return None
    return error


def _explain(error: Exception) -> tuple[Verdict, Reason]:
    """Return the verdict and reason of an error: only errors of the cluster are a `fail`."""
    match error:
        case MissingError():
            return Verdict.NOT_RUN, error.reason
        case RemoteError() | NodesError():
            return Verdict.FAIL, error.reason
        case SeatrialError():
            return Verdict.INCONCLUSIVE, error.reason
        case _:
            return Verdict.INCONCLUSIVE, Reason.of(
                "internal-error", error=type(error).__name__, message=str(error)
            )


@lru_cache(1)
def _cleaner(secrets: Secrets) -> Clean:
    """Take `secrets`, what looks like one, and control characters out of a text; each text is
    looked at once.
    """

    @cache
    def clean(text: str) -> str:
        return secrets.out_of_line(text)

    return clean


def without_secrets(result: RunResult, secrets: Secrets) -> RunResult:
    """Return the run with every text clean: reasons, evidence, notes, facts, names of nodes, checks
    and suites.

    Names of facts are ours, and stay.
    """
    clean = _cleaner(secrets)
    # Notes are seatrial's own, and may have several lines
    notes = tuple("\n".join(map(clean, note.split("\n"))) for note in result.notes)
    fingerprint = {clean(name): version for name, version in result.fingerprint.items()}
    result = replace(result, notes=notes, fingerprint=fingerprint)
    cleaned: RunResult = _cleaned(result, clean)
    return cleaned


def _cleaned(value: Any, clean: Clean) -> Any:
    """Return the value with its texts clean, in lists, objects and the fields of `_TEXTS` too.

    Return the same object if nothing changes: a thousand nodes have a hundred thousand judgements.
    """
    if isinstance(value, str):
        text = clean(value)
        return value if text == value else text
    if isinstance(value, Reason):
        return rewritten(value, clean)
    if isinstance(value, dict):
        facts = {key: _cleaned(each, clean) for key, each in value.items()}
        return facts if any(map(is_not, facts.values(), value.values())) else value
    if isinstance(value, _LISTS):
        items = [_cleaned(each, clean) for each in value]
        return type(value)(items) if any(map(is_not, items, value)) else value
    changed = {}
    for name in _TEXTS.get(type(value), ()):
        before = getattr(value, name)
        after = _cleaned(before, clean)
        if after is not before:
            changed[name] = after
    return replace(value, **changed) if changed else value
