"""All numbers of a run, each judged by what is known of it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from seatrial.catalog.published import published, swept_sizes
from seatrial.judge.judged_series import JudgedSeries
from seatrial.judge.knowledge import Knowledge
from seatrial.judge.number import from_pin, judge_number
from seatrial.judge.series import SeriesJudge, SeriesTable
from seatrial.judge.votes import is_noisy, is_sanity_pass
from seatrial.model.measurement import Measurement, by_series, once
from seatrial.model.result import Check, Judgement
from seatrial.model.verdict import Verdict


class ComparedNumbers:
    """The numbers of a run that are compared with their past and their peers.

    `judged` are their series so far, None without any; by name, `_place` is where they are.
    """

    def __init__(self, readings: Mapping[str, Sequence[Measurement]], knowledge: Knowledge) -> None:
        """Compare the first readings."""
        self._place = {name: i for i, name in enumerate(readings)}
        firsts = [taken[0] for taken in readings.values()]
        self._table = SeriesTable.of(firsts, knowledge.groups)
        past = knowledge.past_of(self._table)
        self._series = SeriesJudge(self._table, past, one_machine=knowledge.setup.one_machine)
        self.judged: JudgedSeries | None = None
        self.add(readings)

    def add(self, readings: Mapping[str, Sequence[Measurement]]) -> None:
        """Add the first readings of the series that are compared, then their second ones, and so
        on; and judge all.
        """
        by_place = dict[int, Sequence[Measurement]]()
        for name, taken in readings.items():
            if name in self._place:
                by_place[self._place[name]] = taken
        most = max(map(len, by_place.values()), default=0)
        for nth in range(most):
            values = np.full(len(self._place), np.nan)
            for place, taken in by_place.items():
                if nth < len(taken):
                    values[place] = taken[nth].value
            logs = self._table.logs(values)
            self._series.add(logs)
        if self._place:
            outcome = self._series.outcome()
            self.judged = JudgedSeries(self._series, outcome)

    def has_reference(self, name: str) -> bool:
        """Return whether a number is judged by its history or its peers."""
        if self.judged is None or name not in self._place:
            return False
        place = self._place[name]
        return self.judged.has_reference[place]

    def judgement(self, name: str) -> Judgement | None:
        """Return the judgement by history or peers, of a number that has them."""
        if self.judged is None or not self.has_reference(name):
            return None
        place = self._place[name]
        return self.judged.judgement(place)

    def reads_low(self, name: str) -> bool:
        """Return whether a number is no pass by its history or its peers."""
        if self.judged is None or not self.has_reference(name):
            return False
        verdict = self.judged.verdict(self._place[name])
        return verdict is not Verdict.PASS

    def name(self, place: int) -> str:
        """Return the name of a series."""
        first = self._table.first[place]
        return first.series()


class RunNumbers:
    """All numbers of a run, judged together; more readings may follow.

    By the name of a series: `check_of` is the check that measured it, `taken` are its readings, and
    `numbers` its judgement by what is known from elsewhere.
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
        """Return the numbers that have no pin, and no reading that is broken.

        Readings of like nodes in other runs come first.
        """
        every = by_series(self.knowledge.peers)
        every.update(self.taken)
        compared = dict[str, list[Measurement]]()
        for name, taken in every.items():
            is_whole = all(m.finite and m.value > 0 for m in taken)
            if is_whole and name not in self.knowledge.pinned:
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
        model.
        """
        taken = self.taken[name]
        m = once(taken)[0]
        check = self.check_of[name]
        swept = self._swept[check](m)
        baselines = list(published(m, self.knowledge.setup, swept))
        pin = self.knowledge.pinned.get(name)
        if pin and (pinned := from_pin(m, pin)):
            baselines.append(pinned)
        if not baselines and self.compared.has_reference(name):
            return None
        judgement = judge_number(m, baselines)
        if judgement and len(taken) > 1:
            judgement = replace(judgement, repeats=_values(taken))
        return judgement

    def judgement(self, name: str) -> Judgement | None:
        """Return the harsher judgement; a defect of the number itself comes first."""
        number = self.numbers[name]
        own = self.compared.judgement(name)
        if own is None:
            return number
        taken = self.taken[name]
        if len(taken) > 1:
            own = replace(own, measurement=once(taken)[0], repeats=_values(taken))
        if number is None or is_sanity_pass(number):
            return own
        is_harsher = number.verdict.severity < own.verdict.severity
        if is_harsher or not is_noisy(number):
            return number
        return own


def _values(taken: Sequence[Measurement]) -> tuple[float, ...]:
    """Return the values of the readings of a number."""
    return tuple(m.value for m in taken)
