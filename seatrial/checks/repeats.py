"""Measure again what the judge doubts, while the nodes are still up: that operation at those sizes, those nodes' links.

What comes back are further measurements of the same series. What cannot be repeated is left out, so that the judge
goes by what there is.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from seatrial.checks.collectives.check import too_small
from seatrial.checks.collectives.plateau import sizes_behind
from seatrial.checks.collectives.sweep import can_write_json, sizes_of, sweep_once
from seatrial.checks.connectivity.check import roll_call
from seatrial.checks.connectivity.reachability import Pair
from seatrial.checks.connectivity.throughput import Streams, explore_again, measurements, once_more
from seatrial.checks.training.check import training
from seatrial.config.run import Run
from seatrial.judge.repeats import Doubt
from seatrial.model.errors import NodesError, SeatrialError
from seatrial.model.measurement import Measurement
from seatrial.model.result import Suspect
from seatrial.model.sizes import format_size
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.node_setup import Contact, greet, try_streams
from seatrial.remote.ssh import on_each
from seatrial.text.words import some_of

log = logging.getLogger("seatrial.repeat")

_BROKEN = (Verdict.FAIL, Verdict.CORRUPT)
_ENDED_EARLY = (Verdict.FAIL, Verdict.INCONCLUSIVE)
_GRACE_S = 300  # what is under way when the time for repeats is over may go on for as long


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
class _Time:
    """How long repeats may take: none begins after `until` (of time.monotonic)."""

    until: float

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until

    def limit(self, usual_s: float) -> float:
        """The time limit of what begins now."""
        return min(usual_s, max(self.until - time.monotonic(), 0.0) + _GRACE_S)


def measure_again(
    run: Run, testbed: Testbed, doubts: Mapping[str, Sequence[Doubt]], until: float = math.inf
) -> dict[str, Repeated]:
    """By check, one more measurement of each of its doubtful series, as far as it can be had before `until`."""
    found = {}
    for check, doubted in doubts.items():
        repeated = found[check] = Repeated()
        repeat, same = _REPEATS.get(check), [doubt for doubt in doubted if _compares(doubt, testbed)]
        if repeat is None or not same or too_small(run, testbed):
            continue
        try:
            repeat(run, testbed, same, repeated, _Time(until))
        except SeatrialError as error:
            log.warning("%s cannot be repeated: %s", check, error)
        wanted = {doubt.measurement.series() for doubt in same}
        repeated.measurements = [m for m in repeated.measurements if m.series() in wanted]
        if repeated.over:
            break
    return found


def _compares(doubt: Doubt, testbed: Testbed) -> bool:
    """Whether these nodes can measure it: over fewer ranks, since nodes were taken out, it is another number."""
    return doubt.measurement.conditions.get("ranks", testbed.world_size) == testbed.world_size


def _sweeps(run: Run, testbed: Testbed, doubts: Sequence[Doubt], repeated: Repeated, left: _Time) -> None:
    """Each operation once more, from the smallest to the largest of its doubtful sizes."""
    asked = run.suite.collectives
    if asked is None or left.over:
        return
    sizes = sizes_of(testbed, asked)
    writes_json = can_write_json(testbed, asked.operations[0])
    for operation in asked.operations:
        own = [d for d in doubts if d.measurement.conditions.get("operation") == operation]
        wanted = sorted({size for d in own for size in sizes_behind(d.measurement, sizes.sizes())})
        if not wanted or left.over:
            continue
        _say(f"{operation} at {_span(wanted)}", own)
        part = sizes.model_copy(update={"min_bytes": wanted[0], "max_bytes": wanted[-1]})
        limit_s, began = left.limit(asked.timeout_s), time.monotonic()
        outcome = sweep_once(
            run,
            testbed,
            asked.model_copy(update={"gpu" if testbed.has_gpus else "cpu": part, "timeout_s": limit_s}),
            operation,
            label=_unused(run, operation),
            writes_json=writes_json,
        )
        repeated.measurements += outcome.measurements
        repeated.over = outcome.fabric_gone
        cut = outcome.fabric_gone and _was_cut(began, limit_s, asked.timeout_s)
        _conclude(run, testbed, repeated, Verdict.INCONCLUSIVE if cut else outcome.verdict, outcome.reason)
        if repeated.over:
            return


def _conclude(run: Run, testbed: Testbed, repeated: Repeated, verdict: Verdict, reason: str) -> None:
    """What a repeat came to, and who is not there any more if it did not get through."""
    now = roll_call(run, testbed) if verdict in _ENDED_EARLY or repeated.over else None
    if now and now.problems:
        # Nodes that were taken away on purpose are no failure of the cluster.
        verdict = Verdict.FAIL if now.suspects else Verdict.INCONCLUSIVE
        reason = "; ".join((reason, *now.problems))
        repeated.suspects += now.suspects
        repeated.over = True
    repeated.broke(verdict, reason)


def _was_cut(began: float, limit_s: float, usual_s: float) -> bool:
    """Whether it might have ended well, given the usual time; ranks that wait give up at half of their limit."""
    return limit_s < usual_s and time.monotonic() - began >= limit_s / 2


def _unused(run: Run, what: str) -> str:
    """A label whose log is not there yet."""
    return next(label for n in count(1) if not (run.logs / f"{(label := f'{what}-again-{n}')}.log").exists())


def _span(sizes: Sequence[int]) -> str:
    first, last = format_size(sizes[0]), format_size(sizes[-1])
    return first if first == last else f"{first} to {last}"


def _streams(run: Run, testbed: Testbed, doubts: Sequence[Doubt], repeated: Repeated, left: _Time) -> None:
    """TCP streams between each doubtful node and the neighbours that it had the first time, both ways."""
    names = [node.name for node in testbed.nodes]
    doubtful = [name for name in names if any(d.measurement.subject.name == name for d in doubts)]
    if not doubtful or left.over:
        return
    _say(f"TCP of {some_of(doubtful, 3)}", doubts)
    timeout_s, nth = run.suite.connectivity.timeout_s, max(d.taken for d in doubts)
    planned = [pair for batch in once_more(names, doubtful, nth) for pair in batch]
    needed = {name for pair in planned for name in pair}
    greeted = on_each(
        [node for node in testbed.nodes if node.name in needed], partial(greet, testbed, timeout_s=timeout_s)
    )
    contacts = {name: answer for name, answer in greeted.items() if isinstance(answer, Contact)}

    def measure(pairs: Sequence[Pair]) -> Streams:
        there = [pair for pair in pairs if contacts.keys() >= set(pair)]
        return {} if left.over else try_streams(testbed, contacts, there, timeout_s)

    try:
        found = explore_again(names, doubtful, nth, measure)
    except NodesError as floods:
        repeated.suspects += [Suspect("node", name, 1.0, why) for name, why in floods.evidence.items()]
        repeated.broke(Verdict.FAIL, str(floods))
        return
    finally:
        for contact in contacts.values():
            contact.transport.close()
    # Without the best of its neighbours a healthy node looks slow.
    lacking = {name for pair in planned if pair not in found for name in pair}
    repeated.measurements += [m for m in measurements(found) if m.subject.name not in lacking]
    if silent := [str(greeted[name]) for name in greeted if name not in contacts]:
        _conclude(run, testbed, repeated, Verdict.INCONCLUSIVE, "; ".join(silent[:3]))


def _training(run: Run, testbed: Testbed, doubts: Sequence[Doubt], repeated: Repeated, left: _Time) -> None:
    """The whole training once more: its figures are of all its steps."""
    wanted = run.suite.training
    if wanted is None or left.over:
        return
    _say("training", doubts)
    limit_s, began = left.limit(wanted.timeout_s), time.monotonic()
    hurried = run.suite.model_copy(update={"training": wanted.model_copy(update={"timeout_s": limit_s})})
    check = training(replace(run, suite=hurried), testbed, label=_unused(run, "training"))
    if check is None:
        return
    repeated.measurements += check.measurements
    repeated.suspects += check.suspects
    repeated.over = bool(check.suspects) and check.verdict is Verdict.FAIL
    cut = check.verdict is Verdict.FAIL and not check.suspects and _was_cut(began, limit_s, wanted.timeout_s)
    repeated.broke(Verdict.INCONCLUSIVE if cut else check.verdict, check.reason)


def _say(what: str, doubts: Sequence[Doubt]) -> None:
    first = max(doubts, key=lambda doubt: doubt.most - doubt.taken)
    log.info("%s suspicious: repeated %d of %d at most", what, first.taken, first.most - 1)


_Repeat = Callable[[Run, Testbed, Sequence[Doubt], Repeated, _Time], None]
_REPEATS: Mapping[str, _Repeat] = {"connectivity": _streams, "collectives": _sweeps, "training": _training}
