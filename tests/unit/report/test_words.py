import pytest

from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.result import Expected
from seatrial.text import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (float("nan"), "NaN"),
        (float("-inf"), "-∞"),
        (0.0, "0"),
        (0.01234, "0.0123"),
        (4.5, "4.50"),
        (43.98, "44.0"),
        (99.96, "100"),
        (386.56, "387"),
        (1234567.8, "1,234,568"),
        (3.0, "3"),
    ],
)
def test_numbers_have_three_significant_digits(value: float | None, text: str) -> None:
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"),
        (9.63, "9.6 s"),
        (119.9, "119.9 s"),
        (248.3, "4 min 8 s"),
        (7260, "2 h 1 min"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


def test_open_intervals_are_printed_with_one_bound() -> None:
    assert words.interval(Expected(370, 405.2), "GB/s") == "370 – 405 GB/s"
    assert words.interval(Expected(low=0.2)) == "≥ 0.200"
    assert words.interval(Expected(high=9.5), "us") == "≤ 9.50 µs"
    assert words.interval(Expected()) == "–"


def test_conditions_are_read_in_the_fields_order() -> None:
    conditions: dict[str, ConditionValue] = {
        "zone": "b",
        "placement": "in_place",
        "ranks": 64,
        "message_bytes": 1 << 24,
        "operation": "all_reduce",
    }
    measurement = Measurement("busbw", 1.0, "GB/s", Subject("node", "node-3"), conditions)
    assert (
        words.measurement_name(measurement)
        == "busbw of all_reduce, 16M, 64 ranks, in place, zone b on node-3"
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no-such-encoding"])
def test_plain_text_is_ascii_for_terminals_without_utf8(encoding: str) -> None:
    assert words.plain("a\x1b[31m\nb\t≥ 3 ✓ \udce9 名", encoding).isascii()
    assert words.plain("a\nb  c", encoding) == "a b c"


def test_plain_keeps_all_characters_on_a_utf8_terminal() -> None:
    assert words.plain("≥ 3 µs\x00\x1b") == "≥ 3 µs"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (10_000, "10 kB"),
        (1_000_000, "1.0 MB"),
        (2_400_000_000, "2400 MB"),
    ],
)
def test_sizes_of_files_are_short_and_decimal(count: int, text: str) -> None:
    assert words.file_size(count) == text


@pytest.mark.parametrize(
    ("deviation", "text"),
    [
        (None, "–"),
        (float("inf"), "–"),
        (-0.0994, "-9.9 %"),
        (-0.0995, "-10 %"),
        (0.47, "+47 %"),
        (-0.9946, "-99.5 %"),
        (-0.9945, "-99 %"),
        (-1.0, "-100 %"),
        (12.5, "+1,250 %"),
    ],
)
def test_only_a_total_loss_is_printed_as_a_hundred_percent(
    deviation: float | None, text: str
) -> None:
    assert words.percent(deviation) == text


def test_long_lists_of_names_are_cut_with_a_count() -> None:
    assert words.some_of("abcd") == "a, b, c, d"
    assert words.some_of("abcde") == "a, b, c, d and 1 more"
    assert words.some_of("abc", 1) == "a and 2 more"
    assert (
        words.nearest_of("al_reduce", ["all_reduce", "ALL_GATHER", "reduce"])
        == "nearest: all_reduce, reduce"
    )
    assert words.nearest_of("zzz", ["all_reduce"]) == ""
    assert (words.number(1e15), words.number(1e15 - 1), words.number(99.94)) == (
        "1.00e+15",
        "999,999,999,999,999",
        "99.9",
    )
