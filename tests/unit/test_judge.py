"""One measurement against its baselines: verdicts and reasons."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge.number import judge_number as judge
from seatrial.judge.votes import counting
from seatrial.model.baseline import Baseline, Source
from seatrial.model.measurement import Measurement
from seatrial.model.result import Judgement
from seatrial.model.verdict import Verdict
from tests.sample_sweeps import CLUSTER, busbw, plateau

_WORSE = [Verdict.PASS, Verdict.DEGRADED, Verdict.FAIL]


def step_time(value: float) -> Measurement:
    return Measurement("step_time", value, "ms", CLUSTER, {}, better="lower")


def verdict(measurement: Measurement, baselines: list[Baseline]) -> Verdict:
    return judged(measurement, baselines).verdict


def judged(measurement: Measurement, baselines: list[Baseline]) -> Judgement:
    judgement = judge(measurement, baselines)
    assert judgement is not None
    return judgement


def approved(better: str = "higher", centre: float = 0.5, width: float = 0.4) -> list[Baseline]:
    """What a person approved: `degraded` beyond `width`, `fail` beyond twice that."""
    bound = centre * (1 + width) if better == "lower" else centre * (1 - width)
    low, high = (None, bound) if better == "lower" else (bound, None)
    floor = bound * 2 if better == "lower" else bound / 2
    return [Baseline("pinned", centre, low, high, floor, 1, f"the {centre:g} that ann pinned")]


def test_reason_states_value_pin_and_limits() -> None:
    result = judged(plateau(0.02), approved())
    assert result.verdict is Verdict.FAIL
    assert result.source == "pinned"
    assert result.deviation == pytest.approx(-0.96, abs=0.005)
    assert result.reason.sentence == (
        "all_reduce busbw_plateau 0.0200 GB/s is 96 % below the 0.5 that ann pinned"
        " (expected at least 0.300 GB/s; at least 0.150 GB/s or it fails)"
    )


def test_equally_bad_numbers_are_sorted_lowest_first() -> None:
    every = [judged(plateau(value), approved()) for value in (0.04, 0.01, 0.02)]
    assert [judgement.measurement.value for judgement in counting(every)] == [0.01, 0.02, 0.04]


def test_value_between_interval_and_floor_is_degraded() -> None:
    result = judged(plateau(0.2), approved())
    assert result.verdict is Verdict.DEGRADED
    assert result.reason.sentence.endswith("(expected at least 0.300 GB/s)")
    assert result.expected.low == pytest.approx(0.3)


def test_bounds_lie_above_the_baseline_when_lower_is_better() -> None:
    known = approved("lower", 10.0, 1.0)
    assert verdict(step_time(3.0), known) is Verdict.PASS
    assert verdict(step_time(30.0), known) is Verdict.DEGRADED
    assert verdict(step_time(100.0), known) is Verdict.FAIL


def test_best_baseline_source_is_used_in_any_order() -> None:
    def known(source: Source) -> Baseline:
        return Baseline(source, 1.0, 0.9, None, 0.5, 1, f"the 1 GB/s of {source}")

    everything = [known("model"), known("catalog"), known("pinned")]
    assert judged(plateau(1), everything).source == "pinned"
    assert judged(plateau(1), everything[:2]).source == "catalog"
    assert judged(plateau(1), everything[:1]).reason.sentence == (
        "all_reduce busbw_plateau 1 GB/s is at the 1 GB/s of model (expected at least 0.900 GB/s)"
    )


def test_pin_takes_precedence_over_a_slower_catalog_verdict() -> None:
    catalog = Baseline("catalog", 482.0, 431.0, None, 241.0, 1, "the 482 GB/s that was published")
    pin = Baseline("pinned", 300.0, 270.0, None, 135.0, 1, "the 300 GB/s that ann pinned")
    assert verdict(plateau(300), [catalog]) is Verdict.DEGRADED
    assert verdict(plateau(300), [catalog, pin]) is Verdict.PASS


def test_number_without_a_baseline_passes_by_sanity_and_says_so() -> None:
    result = judged(plateau(0.5), [])
    assert (result.verdict, result.source) == (Verdict.PASS, "sanity")
    assert "no baseline yet (finite, positive)" in result.reason.sentence


@pytest.mark.parametrize(
    ("measurement", "expected"),
    [
        (plateau(math.nan), Verdict.INCONCLUSIVE),
        (plateau(math.inf), Verdict.INCONCLUSIVE),
        (plateau(-1.0), Verdict.INCONCLUSIVE),
        (plateau(0.0), Verdict.FAIL),
        (busbw(0.0), Verdict.FAIL),
        (busbw(0.0, 8), Verdict.PASS),
        (step_time(0.0), Verdict.INCONCLUSIVE),
        (step_time(math.nan), Verdict.INCONCLUSIVE),
        (Measurement("loss_drop", -0.1, "", CLUSTER), Verdict.PASS),
    ],
)
def test_invalid_number_is_judged_without_its_baseline(
    measurement: Measurement, expected: Verdict
) -> None:
    generous = Baseline("pinned", 1.0, None, None, None, 1, "anything goes")
    assert verdict(measurement, [generous]) is expected


def test_measurements_without_a_better_direction_and_of_one_rank_are_not_judged() -> None:
    assert judge(Measurement("clock_skew", math.nan, "s", CLUSTER, better=None), []) is None
    assert judge(busbw(0.0, ranks=1), []) is None


centres, makers = st.floats(0.01, 1000), st.sampled_from([busbw, plateau])


@given(centres, st.floats(1e-4, 1e4), st.floats(1, 100), makers)
def test_higher_bandwidth_never_gets_a_worse_verdict(
    centre: float, value: float, factor: float, make: type
) -> None:
    known = approved(centre=centre)
    assert _WORSE.index(verdict(make(value * factor), known)) <= _WORSE.index(
        verdict(make(value), known)
    )


@given(centres, st.floats(1e-4, 1e4), st.floats(1, 100))
def test_longer_time_never_gets_a_better_verdict(
    centre: float, value: float, factor: float
) -> None:
    known = approved("lower", centre)
    assert _WORSE.index(verdict(step_time(value * factor), known)) >= _WORSE.index(
        verdict(step_time(value), known)
    )
