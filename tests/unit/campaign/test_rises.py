"""What devices report minute by minute: packed without loss, and what rose is named."""

import numpy as np
import pytest

from seatrial.campaign.rises import hourly, minutes_check, risen
from seatrial.history.minutes import MetricMinutes, tables, unpacked
from seatrial.model.verdict import Verdict
from seatrial.remote.minutes import MinuteAnswer, Minutes


def _series(metric: str, *columns: list[float]) -> MetricMinutes:
    readings = np.array(columns, dtype=np.float32).T
    parts = [f"node-{i}/gpu-0" for i in range(len(columns))]
    return MetricMinutes(metric, parts, [60.0 * n for n in range(len(readings))], readings)


def test_packed_readings_are_unpacked_unchanged() -> None:
    readings = np.array([[612.3, np.nan], [0.1, 65_536_001]], dtype=np.float32)
    packed = MetricMinutes("power_w", ["a", "b"], [0, 60], readings).packed()
    np.testing.assert_array_equal(
        unpacked("power_w", ["a", "b"], [0, 60], packed).readings, readings
    )


def test_packed_row_of_the_wrong_size_is_an_error() -> None:
    packed = MetricMinutes("power_w", ["a"], [0, 60], np.zeros((2, 1), dtype=np.float32)).packed()
    with pytest.raises(ValueError, match="reshape"):
        unpacked("power_w", ["a"], [0, 60, 120], packed)


def test_a_node_that_does_not_answer_leaves_a_gap() -> None:
    minutes = Minutes()
    answer = MinuteAnswer(parts={"gpu-0": {"power_w": 600.0}})
    minutes.add(60, {"node-0": answer, "node-1": answer})
    minutes.add(120, {"node-0": answer})
    (table,) = tables(minutes.times_s, minutes.metrics)
    assert table.parts == ["node-0/gpu-0", "node-1/gpu-0"]
    np.testing.assert_array_equal(
        table.readings, np.array([[600, 600], [600, np.nan]], dtype=np.float32)
    )


@pytest.mark.parametrize(
    ("readings", "rose"),
    [([3, 3, 3], 0), ([3, 4, 6], 3), ([3, np.nan, 5], 2), ([7, 0, 1], 1), ([np.nan, 4, 4], 0)],
    ids=["steady", "rises", "across a gap", "begins anew", "first known later"],
)
def test_counter_rise_is_summed_across_gaps_and_resets(readings: list[float], rose: float) -> None:
    assert risen(_series("flaps", readings)).tolist() == [rose]


def test_memory_errors_and_slowdowns_are_named() -> None:
    check, notes = minutes_check([
        _series("ecc_uncorrected", [0, 0, 0], [0, 0, 1]),
        _series("slowdown", [0, 1, 1], [0, 0, 0]),
        _series("errors", [0, 9, 9], [0, 0, 0]),
        _series("temperature_c", [60, 61, 60], [60, 84, 60]),
    ])  # fmt: skip
    blamed = {suspect.name: suspect.verdict for suspect in check.suspects}
    assert blamed == {"node-1/gpu-0": Verdict.FAIL, "node-0/gpu-0": Verdict.DEGRADED}
    assert check.verdict is Verdict.FAIL
    assert [note.code for note in notes] == ["minutes-noted", "minutes-hottest"]
    assert "84 C, node-1/gpu-0" in notes[1].sentence


def test_peak_power_is_the_largest_sum_over_all_parts_in_one_minute() -> None:
    power = _series("power_w", [700, 650, 100], [100, 640, np.nan])
    _, notes = minutes_check([power])
    assert [note.code for note in notes] == ["minutes-most-power"]
    assert "1.29 kW at hour 0.02" in notes[0].sentence


def test_minutes_check_without_readings_is_not_run() -> None:
    assert minutes_check([])[0].verdict is Verdict.NOT_RUN


def test_hourly_medians_are_taken_of_gauges_and_not_of_counters() -> None:
    series = _series("clock_mhz", [1980.0] * 360, [*[1980.0] * 180, *[1500.0] * 180])
    numbers = hourly(series)
    assert numbers is not None
    assert len(numbers.began_s) == 13
    assert numbers.readings[-1].tolist() == [1980, 1500]
    assert hourly(_series("errors", [0, 0])) is None
