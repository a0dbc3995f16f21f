import math
import random

import numpy as np
import pytest

from seatrial.judge.fleet.drift import find_change, find_steps


def _noisy(*levels: tuple[float, int], sigma: float = 0.02, seed: int = 3) -> list[float]:
    noise = random.Random(seed)
    return [level * math.exp(noise.gauss(0, sigma)) for level, count in levels for _ in range(count)]


def test_a_step_is_found_where_it_is() -> None:
    (step,) = find_steps(_noisy((386, 20), (350, 12)))
    assert step.at == 20
    assert step.before == pytest.approx(386, rel=0.02)
    assert step.after == pytest.approx(350, rel=0.02)


def test_down_and_up_again_are_two() -> None:
    steps = find_steps(_noisy((100, 15), (70, 10), (100, 15)))
    assert [step.at for step in steps] == [15, 25]
    assert steps[0].after == steps[1].before


def test_noise_has_no_steps() -> None:
    quiet = [
        find_steps(_noisy((100, 40), sigma=sigma, seed=seed)) for sigma in (0.003, 0.02, 0.2) for seed in range(60)
    ]
    assert sum(map(bool, quiet)) <= 1


def test_one_bad_night_is_no_level() -> None:
    values = _noisy((100, 30))
    values[12] = 40.0
    assert find_steps(values) == []


def test_a_step_below_two_percent_is_not_worth_a_mark() -> None:
    assert find_steps([100.0] * 10 + [98.5] * 10) == []
    assert [step.at for step in find_steps([100.0] * 10 + [97.0] * 10)] == [10]


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 4 + [2.0] * 3, [0.0] * 20, [1.0] * 10 + [math.nan] * 10])
def test_nothing_is_made_of_too_little(values: list[float]) -> None:
    assert find_steps(values) == []


@pytest.mark.parametrize("nights_ago", [2, 3, 10])
def test_the_report_marks_the_step_that_the_judge_sees(nights_ago: int) -> None:
    for seed in range(20):
        values = _noisy((100, 30 - nights_ago), (85, nights_ago), seed=seed)
        change = find_change(np.arange(30.0), np.log(values), 0.015)
        assert change is not None
        assert (change.kind, change.since) == ("step", 30 - nights_ago)
        (step,) = find_steps(values, change.since)
        assert step.at == change.since


def test_what_recovered_and_is_bad_again_is_bad_since_the_last_time() -> None:
    values = _noisy((100, 15), (80, 6), (100, 15), (80, 3))
    change = find_change(np.arange(39.0), np.log(values), 0.015)
    assert change is not None
    assert (change.kind, change.since) == ("step", 36)
    assert math.exp(change.size) == pytest.approx(0.8, rel=0.03)
    assert [step.at for step in find_steps(values, change.since)] == [15, 21, 36]
