"""One measurement against its baselines: verdicts, reasons, and how often both are wrong."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.model.baseline import Baseline
from seatrial.judge.baselines.history import from_history
from seatrial.judge.number import judge_number as judge
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.result import Judgement
from seatrial.model.verdict import Verdict

M = 1 << 20
CLUSTER = Subject("cluster", "lab")
_WORSE = [Verdict.PASS, Verdict.DEGRADED, Verdict.FAIL]


def busbw(value: float, size: int = 16 * M, ranks: int = 4) -> Measurement:
    conditions: dict[str, ConditionValue] = {
        "operation": "all_reduce",
        "message_bytes": size,
        "dtype": "float32",
        "ranks": ranks,
        "placement": "out_of_place",
    }
    return Measurement("busbw", value, "GB/s", CLUSTER, conditions)


def plateau(value: float) -> Measurement:
    return Measurement(
        "busbw_plateau", value, "GB/s", CLUSTER, {"operation": "all_reduce", "dtype": "float32", "ranks": 4}
    )


def step_time(value: float) -> Measurement:
    return Measurement("step_time", value, "ms", CLUSTER, {}, better="lower")


def verdict(measurement: Measurement, baselines: list[Baseline]) -> Verdict:
    return judged(measurement, baselines).verdict


def judged(measurement: Measurement, baselines: list[Baseline]) -> Judgement:
    judgement = judge(measurement, baselines)
    assert judgement is not None
    return judgement


def history(measurement: Measurement, values: list[float]) -> list[Baseline]:
    baseline = from_history(measurement, values)
    assert baseline is not None
    return [baseline]


def test_a_reason_can_be_checked_by_hand() -> None:
    m = plateau(0.02)
    result = judged(m, history(m, [0.5, 0.51, 0.55]))
    assert result.verdict is Verdict.FAIL
    assert result.source == "history"
    assert result.deviation == pytest.approx(-0.96, abs=0.005)
    assert result.reason == (
        "all_reduce busbw_plateau 0.02 GB/s is 96 % below the median 0.51 GB/s of 3 passing runs"
        " (expected at least 0.2021; at least 0.101 or it fails)"
    )


def test_between_interval_and_floor_is_degraded() -> None:
    m = plateau(0.15)
    result = judged(m, history(m, [0.5, 0.51, 0.55]))
    assert result.verdict is Verdict.DEGRADED
    assert result.reason.endswith("(expected at least 0.2021)")
    assert result.expected.low == pytest.approx(0.2021, abs=1e-4)


def test_where_lower_is_better_the_bounds_lie_above() -> None:
    values = [10.0, 10.0, 11.0]
    assert verdict(step_time(3.0), history(step_time(0), values)) is Verdict.PASS
    assert verdict(step_time(30.0), history(step_time(0), values)) is Verdict.DEGRADED
    assert verdict(step_time(100.0), history(step_time(0), values)) is Verdict.FAIL


def test_the_best_source_wins_whatever_the_order() -> None:
    def known(source: str) -> Baseline:
        return Baseline(source, 1.0, 0.9, None, 0.5, 1, f"the 1 GB/s of {source}")  # type: ignore[arg-type]

    everything = [known("catalog"), known("history"), known("pinned")]
    assert judged(plateau(1), everything).source == "pinned"
    assert judged(plateau(1), everything[:2]).source == "history"
    assert judged(plateau(1), everything[:1]).reason == (
        "all_reduce busbw_plateau 1 GB/s is at the 1 GB/s of catalog (expected at least 0.9)"
    )


def test_a_wide_history_does_not_excuse_what_the_catalog_calls_slow_but_a_pin_does() -> None:
    wide = history(plateau(480), [480.0, 481.0, 482.0])
    catalog = Baseline("catalog", 482.0, 431.0, None, 241.0, 1, "the 482 GB/s that was published")
    pin = Baseline("pinned", 300.0, 270.0, None, 135.0, 1, "the 300 GB/s that ann pinned")
    assert verdict(plateau(300), wide) is Verdict.PASS
    assert judged(plateau(300), [*wide, catalog]).source == "catalog"
    assert verdict(plateau(300), [*wide, catalog]) is Verdict.DEGRADED
    assert verdict(plateau(300), [*wide, catalog, pin]) is Verdict.PASS


def test_without_a_baseline_it_passes_by_sanity_only_and_says_so() -> None:
    result = judged(plateau(0.5), [])
    assert (result.verdict, result.source) == (Verdict.PASS, "sanity")
    assert "no baseline yet: judged by sanity only (finite, positive)" in result.reason


@pytest.mark.parametrize(
    ("measurement", "expected"),
    [
        (plateau(math.nan), Verdict.INCONCLUSIVE),
        (plateau(math.inf), Verdict.INCONCLUSIVE),
        (plateau(-1.0), Verdict.INCONCLUSIVE),
        (plateau(0.0), Verdict.FAIL),
        (busbw(0.0), Verdict.FAIL),
        (busbw(0.0, size=8), Verdict.PASS),
        (step_time(0.0), Verdict.INCONCLUSIVE),
        (step_time(math.nan), Verdict.INCONCLUSIVE),
        (Measurement("loss_drop", -0.1, "", CLUSTER), Verdict.PASS),
    ],
)
def test_a_broken_number_is_never_held_against_a_baseline(measurement: Measurement, expected: Verdict) -> None:
    generous = Baseline("pinned", 1.0, None, None, None, 1, "anything goes")
    assert verdict(measurement, [generous]) is expected


def test_what_is_only_recorded_is_not_judged() -> None:
    assert judge(Measurement("clock_skew", math.nan, "s", CLUSTER, better=None), []) is None
    assert judge(busbw(0.0, ranks=1), []) is None


values = st.lists(st.floats(0.01, 1000), min_size=3, max_size=20)


@given(values, st.floats(1e-4, 1e4), st.floats(1, 100), st.sampled_from([busbw, plateau]))
def test_more_bandwidth_is_never_worse(past: list[float], value: float, factor: float, make: type) -> None:
    baselines = history(make(1.0), past)
    assert _WORSE.index(verdict(make(value * factor), baselines)) <= _WORSE.index(verdict(make(value), baselines))


@given(values, st.floats(1e-4, 1e4), st.floats(1, 100))
def test_more_time_is_never_better(past: list[float], value: float, factor: float) -> None:
    baselines = history(step_time(1.0), past)
    assert _WORSE.index(verdict(step_time(value * factor), baselines)) >= _WORSE.index(
        verdict(step_time(value), baselines)
    )


@given(values, st.sampled_from([busbw, plateau, step_time]))
def test_the_centre_itself_always_passes(past: list[float], make: type) -> None:
    baselines = history(make(1.0), past)
    assert verdict(make(baselines[0].centre), baselines) is Verdict.PASS


@given(values, st.floats(1e-4, 1e4), st.floats(1e-3, 1e3))
def test_the_unit_does_not_matter(past: list[float], value: float, scale: float) -> None:
    """Noise is multiplicative, so GB/s and MB/s come to the same verdict (away from the edge)."""
    baselines = history(plateau(1.0), past)
    low, floor = baselines[0].low, baselines[0].floor
    if any(limit and abs(value / limit - 1) < 1e-9 for limit in (low, floor)):
        return
    scaled = history(plateau(1.0), [v * scale for v in past])
    assert verdict(plateau(value * scale), scaled) is verdict(plateau(value), baselines)
