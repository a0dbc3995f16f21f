"""Numbers that are worse at the end of a campaign than at its beginning. Pure.

A node is compared with the others of each phase, so that a slowdown of all nodes at once blames
none. Whether there is a trend says the test of Mann and Kendall (Mann, Econometrica 13 (1945), 245;
Kendall, Rank Correlation Methods (1975)).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seatrial.detection.noise import median_of
from seatrial.history.campaigns import CampaignState
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, join
from seatrial.model.result import Check, Expected, Judgement, Suspect
from seatrial.model.verdict import Verdict, worst
from seatrial.text.words import measurement_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seatrial.history.store import Store

DRIFT = "drift"
LEAST_PHASES = 7  # of a suite: with fewer, chance alone makes a trend
_LEAST_PEERS = 3  # parts of one kind, whose median tells what is usual
_LEAST_SPREAD = 32  # parts of one kind, whose changes tell how far healthy ones stray
# Modified z-score of a change (Iglewicz and Hoaglin, 1993) that no healthy one of thousands has
_OUTLYING = 5.0
_AT_ONCE = 4_000_000  # pairs of readings in memory
_HOUR_S = 3600.0
_CHANCE = 0.02  # that any number of a suite is named by chance, at most
_LIMIT = 0.05  # of what it was: a loss that is degraded
_FLOOR = 0.5  # of what it was: less than this fails


@dataclass(frozen=True, slots=True)
class PhaseNumbers:
    """The numbers of one suite's phases: `readings` has a row a phase, and a column a series.

    `began_s` is the time of the campaign, in order. What was not measured is NaN.
    """

    suite: str
    began_s: "NDArray[np.float64]"
    series: Sequence[Measurement]
    readings: "NDArray[np.float64]"


def drift_check(
    phases: Sequence[PhaseNumbers], *, one_machine: bool, minutes: Sequence[PhaseNumbers] = ()
) -> Check:
    """Judge whether numbers of the `phases` got worse during the campaign.

    `minutes` are readings that devices reported; without enough phases they are not judged.
    `one_machine`: one plays all nodes, so that a slowdown of all of them is not judged. Not run
    with fewer than `LEAST_PHASES` of every suite.
    """
    counts = [len(each.began_s) for each in phases]
    most = max(counts, default=0)
    if most < LEAST_PHASES:
        too_few = Reason.of("drift-too-few-phases", most=most, least=LEAST_PHASES)
        return Check(DRIFT, Verdict.NOT_RUN, too_few)
    judgements = list[Judgement]()
    for each in (*phases, *minutes):
        if len(each.began_s) >= LEAST_PHASES:
            judgements += _judgements(each, one_machine=one_machine)
    reasons = []
    suspects = []
    for judgement in judgements:
        if judgement.passed:
            continue
        reasons.append(judgement.reason)
        if suspect := _suspect(judgement):
            suspects.append(suspect)
    none = Reason.of("drift-none", count=len(judgements))
    return Check(
        name=DRIFT,
        verdict=worst(judgement.verdict for judgement in judgements),
        reason=join(reasons) or none,
        measurements=tuple(judgement.measurement for judgement in judgements),
        judgements=tuple(judgements),
        suspects=tuple(suspects),
    )


def phase_numbers(state: CampaignState, store: "Store") -> list[PhaseNumbers]:
    """Read the numbers of the phases of each suite.

    The series are those of its first phase. Raises SeatrialError where the history cannot be read.
    """
    by_suite = defaultdict(list)
    for phase in state.counted:
        by_suite[phase.suite].append(phase)
    numbers = []
    for suite, phases in by_suite.items():
        run_ids = [phase.run_id for phase in phases]
        began_s = [phase.began_s for phase in phases]
        series = store.measurements(run_ids[0])
        readings = _table(store, run_ids, series)
        numbers.append(
            PhaseNumbers(suite=suite, began_s=np.array(began_s), series=series, readings=readings)
        )
    return numbers


def _table(
    store: "Store", run_ids: Sequence[str], series: Sequence[Measurement]
) -> "NDArray[np.float64]":
    """Return the median of each series in each run; NaN where it was not measured.

    A row for each of `run_ids`, a column for each of `series`.
    """
    import pandas as pd

    stored_series = [m.series() for m in series]
    stored = store.readings(run_ids, stored_series)
    frame = pd.DataFrame({"run": stored.run, "series": stored.series, "value": stored.value})
    medians = frame.groupby(["run", "series"], sort=False)["value"].median()
    row = medians.index.get_level_values(0)
    column = medians.index.get_level_values(1)
    shape = (len(run_ids), len(series))
    table = np.full(shape, np.nan)
    table[row, column] = medians.to_numpy()
    return table


def _suspect(judgement: Judgement) -> Suspect | None:
    """Return the part that a judgement blames; None for the cluster as a whole, or a group."""
    subject = judgement.measurement.subject
    if subject.kind not in ("node", "gpu", "link"):
        return None
    return Suspect(subject.kind, subject.name, 0.9, judgement.reason, verdict=judgement.verdict)


def _judgements(phases: PhaseNumbers, *, one_machine: bool) -> Iterator[Judgement]:
    """Yield a judgement for each series that has readings at both ends.

    Readings of like parts are divided by their median in each phase. What then has lost more than
    `_LIMIT` drifts if chance explains it to less than `_CHANCE`, or if it is far below like parts.
    """
    count = len(phases.series)
    relative = np.array(phases.readings)
    judged = np.zeros(count, dtype=bool)
    for columns in alike(phases.series):
        is_compared = len(columns) >= _LEAST_PEERS
        if is_compared:  # what slows all of them down blames none
            usual = median_of(relative[:, columns].T)
            relative[:, columns] /= usual[:, None]
        judged[columns] = is_compared or not one_machine
    kept = _kept(phases, relative)
    counts = np.isfinite(relative).sum(axis=0)
    judged &= np.isfinite(kept)
    judged &= counts >= LEAST_PHASES
    outlying = np.zeros(count, dtype=bool)
    for columns in alike(phases.series):
        outlying[columns] = _scores(kept[columns]) >= _OUTLYING
    lost = judged & (kept < 1 - _LIMIT)
    chance = np.ones(count)
    chance[lost] = mann_kendall(relative[:, lost]) / 2  # losses alone are looked for
    # As many tests as series, by Bonferroni
    is_unlikely = chance * judged.sum() <= _CHANCE
    drifts = is_unlikely | (lost & outlying)
    for column in np.flatnonzero(judged).tolist():
        yield _judgement(
            phases.series[column],
            phases.suite,
            kept=float(kept[column]),
            chance=float(chance[column]),
            drifts=bool(drifts[column]),
        )


def _kept(phases: PhaseNumbers, readings: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Return what share of each number is left at the end; of times, what share of the speed.

    NaN without a reading in the first or last hour.
    """
    begin, end = _ends(phases.began_s)
    falls = np.array([m.better == "higher" for m in phases.series])
    with np.errstate(divide="ignore", invalid="ignore"):
        before = median_of(readings[begin])
        after = median_of(readings[end])
        kept = after / before
        return np.where(falls, kept, 1 / kept)


def _scores(kept: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Return how far each part fell below like parts, in units of their robust spread; 0 for few
    parts, and for all where most are equal.
    """
    none = np.zeros(len(kept))
    known = kept[np.isfinite(kept)]
    if len(known) < _LEAST_SPREAD:
        return none
    middle = np.median(known)
    distances = np.abs(known - middle)
    spread = 1.4826 * np.median(distances)  # the standard deviation of normal values
    if not spread:
        return none
    scores: NDArray[np.float64] = np.nan_to_num((middle - kept) / spread)
    return scores


def alike(series: Sequence[Measurement]) -> Iterator["NDArray[np.intp]"]:
    """Yield the columns of each metric, kind of part and conditions; those without a better
    direction are left out.

    Conditions are compared as text, so that 8 and "8" are the same.
    """
    columns = defaultdict(list)
    for column, m in enumerate(series):
        if not m.better:
            continue
        conditions = {name: str(value) for name, value in m.conditions.items()}
        in_order = sorted(conditions.items())
        key = (m.metric, m.subject.kind, tuple(in_order))
        columns[key].append(column)
    for like in columns.values():
        yield np.array(like)


def _ends(began_s: "NDArray[np.float64]") -> tuple["NDArray[np.bool_]", "NDArray[np.bool_]"]:
    """Return the phases of the first and of the last hour; of a campaign that is shorter than three
    hours, thirds.

    Two masks over the phases, which begin at `began_s`.
    """
    since = began_s - began_s[0]
    length = since[-1]
    end = min(_HOUR_S, length / 3)
    return since <= end, since >= length - end


def _judgement(
    m: Measurement, suite: str, *, kept: float, chance: float, drifts: bool
) -> Judgement:
    """Return the judgement of a series that kept a share of its number; `chance` is that of as much
    without a drift.

    Its number is the change in percent, at least -100 * `_LIMIT` expected.
    """
    change = Measurement(
        metric="drift",
        value=100 * (kept - 1),
        unit="%",
        subject=m.subject,
        conditions={**m.conditions, "of": m.metric, "suite": suite},
    )
    verdict = Verdict.PASS
    reason = Reason()
    if drifts:
        verdict = Verdict.DEGRADED
        if kept < _FLOOR:
            verdict = Verdict.FAIL
        lost_percent = 100 * (1 - kept)
        reason = Reason.of(
            "drift-found",
            what=measurement_name(m),
            percent=f"{lost_percent:.0f}",
            chance=f"{chance:.1g}",
        )
    return Judgement(
        measurement=change,
        verdict=verdict,
        reason=reason,
        source="beginning",
        expected=Expected(low=-100 * _LIMIT),
    )


def mann_kendall(readings: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Return the two-sided p of no trend, for each column of `readings`, whose rows are in the
    order of time.

    NaNs are left out. By the normal approximation, without a correction for ties; 1 for a column
    that has fewer than two readings.
    """
    rows, columns = readings.shape
    first, second = np.triu_indices(rows, 1)
    pairs = max(1, len(first))
    at_once = max(1, _AT_ONCE // pairs)
    score = np.zeros(columns)
    for begin in range(0, columns, at_once):
        some = slice(begin, begin + at_once)
        changes = readings[second, some] - readings[first, some]
        signs = np.sign(changes)
        score[some] = np.nansum(signs, axis=0)
    p_values = np.ones(columns)
    counts = np.isfinite(readings).sum(axis=0)
    for column in np.flatnonzero((counts > 1) & (score != 0)):
        variance = _variance(int(counts[column]))
        corrected_score = abs(score[column]) - 1  # for continuity
        z = corrected_score / math.sqrt(variance)
        p_values[column] = math.erfc(z / math.sqrt(2))
    return p_values


def _variance(count: int) -> float:
    """Return the variance of Kendall's score of so many readings, without a trend and without
    ties.
    """
    return count * (count - 1) * (2 * count + 5) / 18
