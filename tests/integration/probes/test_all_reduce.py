"""Sums over real ranks: right ones, and one element that is spoilt on one rank."""

import pytest

from seatrial.checks.training.check import Sums, read_sums
from tests.integration.probes.launched import by_hand, launch_many


@pytest.fixture(scope="module")
def sums() -> list[Sums]:
    """Over three ranks: the recipe's elements in two rounds, and four rounds of which rank 1 spoils
    one.
    """
    small = ["--spoil", "third sum:1", "--rounds", "4", "--elements", "1000"]
    ended = launch_many(3, "all_reduce", [["--rounds", "2"], small])
    assert ended.status == 7, ended.lines[-20:]
    return [event for line in ended.lines if (event := read_sums(line))]


def test_healthy_ranks_report_no_wrong_elements(sums: list[Sums]) -> None:
    clean = sums[0]
    assert (clean.rounds, clean.elements, clean.backend) == (2, 2_000_000, "gloo")
    assert [(rank.rank, rank.wrong) for rank in clean.ranks] == [(0, 0), (1, 0), (2, 0)]


def test_one_spoilt_element_is_seen_on_its_rank(sums: list[Sums]) -> None:
    assert [(rank.wrong, rank.first_wrong) for rank in sums[1].ranks] == [
        (0, None),
        (1, 2),
        (0, None),
    ]


def test_probe_started_by_hand_as_one_process_passes() -> None:
    options = ["--rounds", "1", "--elements", "10", "--device", "cpu"]
    done = by_hand("all_reduce", *options)
    event = read_sums(done.lines[-1])
    assert event
    assert [rank.wrong for rank in event.ranks] == [0]
