"""The goodput of an interrupted training, from its events."""

import pytest

from seatrial.checks.training.goodput import Attempt, Event, goodput


def event(name: str, step: int, time: float, **more: float) -> Event:
    return Event.model_validate({"event": name, "step": step, "time": time, **more})


def test_lost_time_is_counted_by_its_cause() -> None:
    first = [
        event("start", 0, 100.0),
        event("step", 4, 150.0),
        event("checkpoint", 5, 152.0, blocked_s=2.0),
    ]
    # That one never got whole
    lost = [event("step", 8, 190.0), event("checkpoint", 9, 195.0, blocked_s=4.0)]
    second = [event("start", 5, 230.0, restore_s=6.0), event("step", 9, 300.0)]
    result = goodput([Attempt([*first, *lost], 200.0), Attempt(second, 300.0)])
    assert result
    assert (result.wall_s, result.lost_s, result.resume_s, result.reschedule_s, result.save_s) == (
        200,
        48,
        6,
        24,
        2,
    )
    assert result.share == pytest.approx((200 - 48 - 6 - 24 - 2) / (200 - 24))


def test_without_a_checkpoint_all_of_an_attempt_is_lost() -> None:
    first = Attempt([event("start", 0, 0.0), event("step", 3, 40.0)], 50.0)
    result = goodput([first, Attempt([event("start", 0, 60.0), event("step", 3, 100.0)], 100.0)])
    assert result
    assert (result.lost_s, result.reschedule_s) == (50, 10)


def test_an_attempt_without_a_step_has_no_goodput() -> None:
    assert goodput([]) is None
    assert goodput([Attempt([], 1.0)]) is None
