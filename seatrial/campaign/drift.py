"""Find numbers that are worse at the end of a campaign than at its beginning. Pure.

A node is compared with the others in each phase, so that a slowdown of all nodes at once blames
none. The test of Mann and Kendall decides whether there is a trend (Mann, Econometrica 13 (1945),
245; Kendall, Rank Correlation Methods (1975)).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seatrial.campaign.result import check_of
from seatrial.detection.noise import median_of
from seatrial.history.campaigns import CampaignState
from seatrial.history.machines import earlier_names
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason
from seatrial.model.result import Check, Expected, Judgement
from seatrial.model.verdict import Verdict
from seatrial.text.words import measurement_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seatrial.history.store import Store

OtherMachines = Mapping[str, Set[str]]  # names of nodes, by run
DRIFT = "drift"
LEAST_PHASES = 7  # least phases of a suite: with fewer, chance alone makes a trend
_LEAST_PEERS = 3  # least parts of one kind to compare each with their median
_LEAST_SPREAD = 32  # least parts of one kind to estimate the spread of healthy changes
# Modified z-score of a change (Iglewicz and Hoaglin, 1993) that no healthy part of thousands
# reaches
_OUTLYING = 5.0
_AT_ONCE = 4_000_000  # pairs of readings in memory at a time
_HOUR_S = 3600.0
_CHANCE = 0.02  # largest probability that chance alone names any series of a suite
_LIMIT = 0.05  # relative loss from which a series is degraded
_FLOOR = 0.5  # a series that keeps a smaller share fails


@dataclass(frozen=True, slots=True)
class PhaseNumbers:
    """The numbers of all phases of one suite: `readings` has a row for each phase, a column for
    each series.

    `began_s` is the start of each phase in seconds of the campaign, in order. Missing readings are
    NaN.
    """

    suite: str
    began_s: "NDArray[np.float64]"
    series: Sequence[Measurement]
    readings: "NDArray[np.float64]"


def drift_check(
    phases: Sequence[PhaseNumbers], *, one_machine: bool, minutes: Sequence[PhaseNumbers] = ()
) -> Check:
    """Judge whether numbers of the `phases` got worse during the campaign.

    `minutes` are hourly readings of devices. `one_machine`: one machine plays all nodes, so a
    slowdown of all of them is not judged. Series with fewer than `LEAST_PHASES` readings are not
    judged; the check is not run if that is so for all suites.
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
    return check_of(DRIFT, judgements, Reason.of("drift-none", count=len(judgements)))


def other_machines(state: CampaignState, store: "Store") -> OtherMachines:
    """Return the names that were those of other machines than at the end, by the run of the phase.

    Raises SeatrialError if the history cannot be read.
    """
    by_run = store.hardware([phase.run_id for phase in state.counted])
    newest = {node: own for then in by_run.values() for node, own in then.items()}
    return {run_id: earlier_names(newest, then).keys() for run_id, then in by_run.items()}


def phase_numbers(
    state: CampaignState, store: "Store", others: OtherMachines
) -> list[PhaseNumbers]:
    """Read the numbers of the phases of each suite, without those of `others`.

    The series are those of the suite's first phase. Raises SeatrialError if the history cannot be
    read.
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
        for row, run_id in zip(readings, run_ids, strict=True):
            if replaced := others.get(run_id):
                row[[not replaced.isdisjoint(m.subject.nodes) for m in series]] = np.nan
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
    medians = store.readings(run_ids, [m.series() for m in series]).medians()
    shape = (len(run_ids), len(series))
    table = np.full(shape, np.nan)
    table[medians["run"], medians["series"]] = medians["value"]
    return table


def _judgements(phases: PhaseNumbers, *, one_machine: bool) -> Iterator[Judgement]:
    """Yield a judgement for each series with readings at both ends of the campaign.

    Readings of like parts are divided by their median in each phase. A series that has lost more
    than `_LIMIT` drifts if the probability by chance is below `_CHANCE`, or if it is far below like
    parts.
    """
    count = len(phases.series)
    relative = np.array(phases.readings)
    judged = np.zeros(count, dtype=bool)
    for columns in alike(phases.series):
        is_compared = len(columns) >= _LEAST_PEERS
        if is_compared:  # a slowdown of all parts blames none
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
    chance[lost] = mann_kendall(relative[:, lost]) / 2  # one-sided, since only losses count
    # Bonferroni correction for the number of series
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
    """Return the share of each number that is left at the end; for times, the share of the speed.

    NaN for a series without a reading in the first or last hour.
    """
    begin, end = _ends(phases.began_s)
    falls = np.array([m.better == "higher" for m in phases.series])
    with np.errstate(divide="ignore", invalid="ignore"):
        before = median_of(readings[begin])
        after = median_of(readings[end])
        kept = after / before
        return np.where(falls, kept, 1 / kept)


def _scores(kept: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Return how far each part fell below like parts, in units of their robust spread.

    0 for parts with too few others, and if the changes of most are equal.
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
    """Yield the column indices of each metric, kind of part and conditions, except those without a
    better direction.

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
    """Return masks of the phases in the first and in the last hour; in the first and last third if
    the campaign is shorter than three hours.

    `began_s` are the starts of the phases.
    """
    since = began_s - began_s[0]
    length = since[-1]
    end = min(_HOUR_S, length / 3)
    return since <= end, since >= length - end


def _judgement(
    m: Measurement, suite: str, *, kept: float, chance: float, drifts: bool
) -> Judgement:
    """Return the judgement of a series that kept a share of its number.

    `chance` is the probability of such a loss without a drift. The judged value is the change in
    percent, expected to be at least -100 * `_LIMIT`.
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
    """Return the two-sided p-value of the null hypothesis "no trend" for each column of `readings`,
    whose rows are in order of time.

    NaNs are left out. By the normal approximation, without a correction for ties; 1 for a column
    with fewer than two readings.
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
        corrected_score = abs(score[column]) - 1  # continuity correction
        z = corrected_score / math.sqrt(variance)
        p_values[column] = math.erfc(z / math.sqrt(2))
    return p_values


def _variance(count: int) -> float:
    """Return the variance of Kendall's score of `count` readings without a trend or ties."""
    return count * (count - 1) * (2 * count + 5) / 18
