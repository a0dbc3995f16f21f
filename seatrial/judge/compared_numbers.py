"""The numbers of a run that are compared with their past and their peers. Pure.

Readings of like nodes in other runs are among them, where a run has too few nodes.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from seatrial.judge.judged_series import JudgedSeries
from seatrial.judge.knowledge import Knowledge
from seatrial.judge.series import SeriesJudge, SeriesTable
from seatrial.model.measurement import Measurement
from seatrial.model.result import Judgement


class ComparedNumbers:
    """Series that are judged together, as their readings come in.

    `judged` are their judgements so far, None without series; `_place` is the index of each by
    name.
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
        by_place = {
            self._place[name]: taken for name, taken in readings.items() if name in self._place
        }
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
        """Return whether history or peers judge a number as anything but a pass."""
        judgement = self.judgement(name)
        return judgement is not None and not judgement.passed

    def name(self, place: int) -> str:
        """Return the name of a series."""
        first = self._table.first[place]
        return first.series()
