"""The search for silent corruption, on processors: what healthy ones give, and what is seen."""

from types import ModuleType
from typing import Any

import pytest

from tests.integration.probes.conftest import Load


@pytest.fixture
def corruption(load: Load) -> ModuleType:
    return load("devices")


def test_healthy_processors_give_the_same_digest_each_time(
    corruption: ModuleType, device: Any
) -> None:
    first, again = (corruption.search(device, 2) for _ in range(2))
    assert first == again
    assert first["wrong"] == ""
    assert list(first["digests"]) == ["float32"]


def test_each_round_uses_different_data(corruption: ModuleType, device: Any) -> None:
    one, two = (corruption.mixed(device, 1000, seed) for seed in range(2))
    assert not device.same(one, two)
    assert corruption.search(device, 1)["digests"] != corruption.search(device, 2)["digests"]


def test_both_libraries_make_the_same_data(corruption: ModuleType, device: Any) -> None:
    values = corruption.fractions(device, 4, 7).tolist()
    assert values == [expected_fraction(7 * 4 + i) for i in range(4)]


def expected_fraction(index: int) -> float:
    """The same in Python's own integers, without a limit."""
    word = (1 << 64) - 1
    bits = index * (-7046029254386353131 & word) & word
    bits ^= bits >> 32
    bits = bits * (-4658895280553007687 & word) & word
    bits ^= bits >> 29
    return (bits >> 20 & 0xFFFFFF) / (1 << 24) - 0.5


def test_consistently_wrong_results_change_the_digest(corruption: ModuleType, device: Any) -> None:
    healthy, wrong = corruption.search(device, 1), corruption.search(device, 1, "wrong")
    assert wrong["wrong"] == ""
    assert wrong["digests"] != healthy["digests"]


def test_result_that_differs_between_repeats_is_reported_wrong(
    corruption: ModuleType, device: Any
) -> None:
    assert (
        corruption.search(device, 1, "unstable")["wrong"]
        == "float32: the same product differs when it is repeated"
    )


@pytest.mark.parametrize("element", [0, 77, 512 * 512 - 1])
def test_one_wrong_bit_anywhere_changes_the_digest(
    corruption: ModuleType, device: Any, element: int
) -> None:
    numbers = corruption.fractions(device, 512 * 512, 3)
    before = corruption.digest_of(device, numbers)
    numbers[element] += 2**-20
    assert corruption.digest_of(device, numbers) != before


def test_a_wrong_product_of_integers_is_seen(corruption: ModuleType, device: Any) -> None:
    """As from a device that rounds what it should hold exactly: only the conversion to 32 bits goes
    wrong here.
    """
    cast = device.cast

    def rounded(array: Any, dtype: str) -> Any:
        converted = cast(array, dtype)
        if dtype == "float32":
            converted[0, 0] += 1
        return converted

    device.cast = rounded
    assert corruption.exact_product(device, 0) == "a product of integers is not what it must be"
    assert corruption.exact_sums(device, 0) == "a sum of integers is not what it must be"
