"""The training of real ranks: it learns, and says which rank is off."""

from typing import Any

import pytest

from seatrial.checks.training.result import TrainingResult, read_event
from tests.integration.probes.launched import Ended, launch_many


@pytest.fixture(scope="module")
def done() -> Ended:
    """Three ranks: a clean run of `quick`'s length, a NaN on rank 1, and rank 2 silently off."""
    runs = [
        ["--steps", "20"],
        ["--spoil", "fourth loss:1", "--steps", "6"],
        ["--spoil", "parameter:2", "--steps", "4"],
    ]
    done = launch_many(3, "training", runs)
    assert done.status == 7, done.lines[-20:]
    return done


@pytest.fixture(scope="module")
def summaries(done: Ended) -> list[dict[str, Any]]:
    events = map(read_event, done.lines)
    return [event.model_dump() for event in events if isinstance(event, TrainingResult)]


def test_training_learns_and_ranks_agree(done: Ended, summaries: list[dict[str, Any]]) -> None:
    clean = summaries[0]
    assert (clean["steps"], clean["world_size"], len(clean["step_time_ms"])) == (20, 3, 18)
    assert clean["last_loss"] < 0.5 * clean["first_loss"]  # quick asks for a drop of 10 %
    assert len({rank["checksum"] for rank in clean["ranks"]}) == 1
    assert all(rank["finite"] for rank in clean["ranks"])
    assert 0 < sum(clean["step_time_ms"]) < 1000 * done.seconds


def test_a_nan_is_seen_on_the_rank_where_it_arose(summaries: list[dict[str, Any]]) -> None:
    poisoned = summaries[1]
    assert [rank["finite"] for rank in poisoned["ranks"]] == [True, False, True]
    assert (poisoned["steps"], poisoned["last_loss"]) == (3, None)


def test_a_rank_that_silently_differs_is_seen(summaries: list[dict[str, Any]]) -> None:
    sums = [rank["checksum"] for rank in summaries[2]["ranks"]]
    assert sums[0] == sums[1] != sums[2]
