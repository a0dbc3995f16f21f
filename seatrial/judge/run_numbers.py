"""All numbers of a run, each judged by every source that knows it. Pure.

The sources are physics, an approved value, the catalog and the model, and the past and peers of the
number. The harsher judgement counts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from seatrial.catalog.published import published, swept_sizes
from seatrial.judge.compared_numbers import ComparedNumbers
from seatrial.judge.knowledge import Knowledge
from seatrial.judge.number import from_pin, judge_number
from seatrial.judge.votes import is_noisy, is_sanity_pass
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement, by_series, once
from seatrial.model.result import Check, Judgement


class RunNumbers:
    """All numbers of a run, judged together; more readings may follow.

    By the name of a series: `check_of` is the check that measured it, `taken` are its readings, and
    `numbers` its judgement by sources other than earlier runs and peers. `compared` holds the
    series without a pin and without a broken reading.
    """

    def __init__(self, checks: Sequence[Check], knowledge: Knowledge) -> None:
        """Judge the numbers of the checks by what is known."""
        self.knowledge = knowledge
        self.check_of = dict[str, str]()
        self._swept = {}
        measured = list[Measurement]()
        for check in checks:
            self._swept[check.name] = swept_sizes(check.measurements)
            for m in check.measurements:
                self.check_of[m.series()] = check.name
            measured += check.measurements
        self.taken = by_series(m for m in measured if m.better)
        self.compared = ComparedNumbers(self._to_compare(), knowledge)
        self.numbers = {name: self._number(name) for name in self.taken}

    def _to_compare(self) -> dict[str, list[Measurement]]:
        """Return what is compared, readings of like nodes in other runs first."""
        every = by_series(self.knowledge.peers)
        every.update(self.taken)
        compared = dict[str, list[Measurement]]()
        for name, taken in every.items():
            if name not in self.knowledge.pinned and _are_whole(taken):
                compared[name] = taken
        return compared

    def add(self, measurements: Iterable[Measurement]) -> None:
        """Add further readings, in the order they were taken."""
        new = by_series(m for m in measurements if m.better)
        for name, taken in new.items():
            self.taken.setdefault(name, []).extend(taken)
        self.compared.add(new)
        for name in new:
            if name in self.check_of:
                self.numbers[name] = self._number(name)

    def _number(self, name: str) -> Judgement | None:
        """Return the judgement by what is known from elsewhere: physics, a pin, the catalog or the
        model; None if there is nothing but history or peers.
        """
        taken = self.taken[name]
        m = once(taken)[0]
        baselines = self._baselines(name, m)
        if not baselines and self.compared.has_reference(name):
            return None
        judgement = judge_number(m, baselines)
        if judgement and len(taken) > 1:
            judgement = replace(judgement, repeats=_values(taken))
        return judgement

    def _baselines(self, name: str, m: Measurement) -> list[Baseline]:
        """Return what the catalog, the model and a pin say of a number."""
        check = self.check_of[name]
        swept = self._swept[check](m)
        baselines = list(published(m, self.knowledge.setup, swept))
        pin = self.knowledge.pinned.get(name)
        if pin and (pinned := from_pin(m, pin)):
            baselines.append(pinned)
        return baselines

    def judgement(self, name: str) -> Judgement | None:
        """Return the harsher judgement, of what is known from elsewhere and of its reference."""
        number = self.numbers[name]
        own = self.compared.judgement(name)
        if own is None:
            return number
        taken = self.taken[name]
        if len(taken) > 1:
            m = once(taken)[0]
            own = replace(own, measurement=m, repeats=_values(taken))
        if number is None or is_sanity_pass(number):
            return own
        return _harsher(number, own)


def _harsher(number: Judgement, own: Judgement) -> Judgement:
    """Return the harsher judgement; a defect of the number itself comes first."""
    is_harsher = number.verdict.severity < own.verdict.severity
    if is_harsher or not is_noisy(number):
        return number
    return own


def _are_whole(taken: Iterable[Measurement]) -> bool:
    """Return whether none of the readings of a number is broken."""
    return all(m.finite and m.value > 0 for m in taken)


def _values(taken: Sequence[Measurement]) -> tuple[float, ...]:
    """Return the values of the readings of a number."""
    return tuple(m.value for m in taken)
