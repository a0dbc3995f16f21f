"""What is to be measured once more before the verdicts of a run are sure. Pure."""

from collections import defaultdict
from collections.abc import Container, Sequence
from math import inf

import numpy as np

from seatrial.checks.metrics import Doubt, Doubts, is_repeated_only_low
from seatrial.detection.outliers import MOST_READINGS
from seatrial.judge.judged_series import JudgedSeries
from seatrial.judge.run_numbers import RunNumbers
from seatrial.judge.votes import is_noisy, too_few_to_count
from seatrial.model.measurement import Measurement
from seatrial.model.result import Judgement

_AGREEING = 2  # of three readings: a judgement by a baseline takes two on the same side


def doubts_of(run: RunNumbers) -> Doubts:
    """Return by check what to measure once more."""
    doubts = _doubts_by_name(run)
    few = _single_sizes(run, doubts)
    by_check: dict[str, list[Doubt]] = defaultdict(list)
    for name, doubt in doubts.items():
        if name not in few:
            check = run.check_of[name]
            by_check[check].append(doubt)
    return dict(by_check)


def _doubts_by_name(run: RunNumbers) -> dict[str, Doubt]:
    """Return the numbers to repeat, and how often at most: until chance is small against the loss,
    or until two readings agree.
    """
    doubts = dict[str, Doubt]()
    in_doubt = set[str]()
    if run.compared.judged is not None:
        in_doubt = _in_doubt(run, run.compared.judged)
    for name, number in run.numbers.items():
        taken = run.taken[name]
        if name in in_doubt:
            most = MOST_READINGS
        elif number is not None and is_noisy(number) and _is_undecided(number, taken):
            most = 2 * _AGREEING - 1
        else:
            continue
        doubts[name] = Doubt(taken[0], len(taken), most)
    return doubts


def _single_sizes(run: RunNumbers, doubts: Container[str]) -> set[str]:
    """Return the single sizes that would not count even if all numbers in doubt were bad."""

    def may_be_bad(m: Measurement) -> bool:
        name = m.series()
        number = run.numbers.get(name)
        if name in doubts or (number and not number.passed):
            return True
        return run.compared.reads_low(name)

    firsts = (taken[0] for taken in run.taken.values())
    return too_few_to_count(firsts, may_be_bad)


def _in_doubt(run: RunNumbers, judged: JudgedSeries) -> set[str]:
    """Return numbers to repeat.

    Numbers that take a whole check, or show only large losses, are repeated if they read low, with
    their peers if one machine plays all nodes; others whenever a judgement is unsure.
    """
    outcome = judged.outcome
    least = outcome.expected - outcome.limit / 3
    low = outcome.doubtful & (outcome.value < least)
    if run.knowledge.setup.one_machine:
        group = judged.table.group
        low |= outcome.supporting & np.isin(group, group[low])
    repeated = set[str]()
    asked = np.flatnonzero(outcome.doubtful | outcome.supporting)
    for i in asked.tolist():
        m = judged.table.first[i]
        name = m.series()
        check = run.check_of.get(name)
        if check is None:  # a peer from another run
            continue
        if low[i] or not is_repeated_only_low(m, check):
            repeated.add(name)
    return repeated


def _is_undecided(j: Judgement, taken: Sequence[Measurement]) -> bool:
    """Return whether fewer than two readings agree on a number that is bad."""
    if len(taken) == 1:
        return not j.passed
    low = j.expected.low
    high = j.expected.high
    if low is None:
        low = -inf
    if high is None:
        high = inf
    outside = sum(m.value < low or m.value > high for m in taken)
    inside = len(taken) - outside
    return max(outside, inside) < _AGREEING
