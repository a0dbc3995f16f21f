"""Measure again what the judge doubts, while the nodes are still up: that operation at those sizes, those nodes' links.

What comes back are further measurements of the same series. What cannot be repeated is left out, so that the judge
goes by what there is.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from seatrial.checks.plateau import sizes_behind
from seatrial.checks.reachability import Pair
from seatrial.checks.throughput import Streams, explore_again, measurements, once_more
from seatrial.contact import Contact, greet, try_streams
from seatrial.errors import SeatrialError
from seatrial.measurement import Measurement
from seatrial.repeats import Doubt
from seatrial.run import Run
from seatrial.sizes import format_size
from seatrial.ssh import on_each
from seatrial.testbed import Testbed
from seatrial.verdict import Verdict
from tasks.collectives import too_small
from tasks.sweep import can_write_json, sizes_of, sweep_once
from tasks.training import training

log = logging.getLogger("seatrial.repeat")

_BROKEN = (Verdict.FAIL, Verdict.CORRUPT)


@dataclass(slots=True)
class Repeated:
    """What repeating a check's doubtful numbers came to: further measurements, and what broke meanwhile."""

    measurements: list[Measurement] = field(default_factory=list)
    problems: list[tuple[Verdict, str]] = field(default_factory=list)

    def broke(self, verdict: Verdict, reason: str) -> None:
        """Only a cluster that breaks or computes wrongly says something about the cluster."""
        if verdict in _BROKEN:
            self.problems.append((verdict, f"when it was repeated: {reason}"))


def measure_again(run: Run, testbed: Testbed, doubts: Mapping[str, Sequence[Doubt]]) -> dict[str, Repeated]:
    """By check, one more measurement of each of its doubtful series, as far as it can be had."""
    found = {}
    for check, doubted in doubts.items():
        repeated = found[check] = Repeated()
        repeat = _REPEATS.get(check)
        if repeat is None or too_small(run, testbed):
            continue
        try:
            repeat(run, testbed, doubted, repeated)
        except SeatrialError as error:
            log.warning("%s cannot be repeated: %s", check, error)
        wanted = {doubt.measurement.series() for doubt in doubted}
        repeated.measurements = [m for m in repeated.measurements if m.series() in wanted]
    return found


def _sweeps(run: Run, testbed: Testbed, doubts: Sequence[Doubt], repeated: Repeated) -> None:
    """Each operation once more, from the smallest to the largest of its doubtful sizes."""
    asked = run.suite.collectives
    if asked is None:
        return
    sizes = sizes_of(testbed, asked)
    writes_json = can_write_json(testbed, asked.operations[0])
    for operation in asked.operations:
        own = [d for d in doubts if d.measurement.conditions.get("operation") == operation]
        wanted = sorted({size for d in own for size in sizes_behind(d.measurement, sizes.sizes())})
        if not wanted:
            continue
        taken = max(d.taken for d in own)
        _say(f"{operation} at {_span(wanted)}", own)
        part = sizes.model_copy(update={"min_bytes": wanted[0], "max_bytes": wanted[-1]})
        outcome = sweep_once(
            run,
            testbed,
            asked.model_copy(update={"gpu" if testbed.has_gpus else "cpu": part}),
            operation,
            label=f"{operation}-again-{taken}",
            writes_json=writes_json,
        )
        repeated.measurements += outcome.measurements
        repeated.broke(outcome.verdict, outcome.reason)
        if outcome.fabric_gone:
            return


def _span(sizes: Sequence[int]) -> str:
    first, last = format_size(sizes[0]), format_size(sizes[-1])
    return first if first == last else f"{first} to {last}"


def _streams(run: Run, testbed: Testbed, doubts: Sequence[Doubt], repeated: Repeated) -> None:
    """TCP streams between each doubtful node and the neighbours that it had the first time, both ways."""
    names = [node.name for node in testbed.nodes]
    doubtful = [name for name in names if any(d.measurement.subject.name == name for d in doubts)]
    if not doubtful:
        return
    _say(f"TCP of {_some(doubtful)}", doubts)
    timeout_s, nth = run.suite.connectivity.timeout_s, max(d.taken for d in doubts)
    needed = {name for batch in once_more(names, doubtful, nth) for pair in batch for name in pair}
    greeted = on_each(
        [node for node in testbed.nodes if node.name in needed], partial(greet, testbed, timeout_s=timeout_s)
    )
    contacts = {name: answer for name, answer in greeted.items() if isinstance(answer, Contact)}

    def measure(pairs: Sequence[Pair]) -> Streams:
        return try_streams(testbed, contacts, [pair for pair in pairs if contacts.keys() >= set(pair)], timeout_s)

    try:
        found = explore_again(names, doubtful, nth, measure)
    finally:
        for contact in contacts.values():
            contact.transport.close()
    repeated.measurements += measurements(found)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _training(run: Run, testbed: Testbed, doubts: Sequence[Doubt], repeated: Repeated) -> None:
    """The whole training once more: its figures are of all its steps."""
    _say("training", doubts)
    check = training(run, testbed, label=f"training-again-{max(d.taken for d in doubts)}")
    if check:
        repeated.measurements += check.measurements
        repeated.broke(check.verdict, check.reason)


def _say(what: str, doubts: Sequence[Doubt]) -> None:
    first = max(doubts, key=lambda doubt: doubt.most - doubt.taken)
    log.info("%s suspicious: repeated %d of %d at most", what, first.taken, first.most - 1)


_Repeat = Callable[[Run, Testbed, Sequence[Doubt], Repeated], None]
_REPEATS: Mapping[str, _Repeat] = {"connectivity": _streams, "collectives": _sweeps, "training": _training}
