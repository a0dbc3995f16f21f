"""The goodput of an interrupted training, from the events of its attempts. Pure.

    goodput = (wall - lost - resume - reschedule - save) / (wall - reschedule)

That is the formula of Google's Cluster Readiness Evaluation, so that results are comparable: the
time to get processes again is the scheduler's, and is excluded on both sides. `wall` is the time
from the start of the first attempt's steps to the end of the last one's; `lost`, the time since the
checkpoint that the next attempt resumes from; `resume`, the time to read it; `save`, the time for
which checkpoints blocked the training.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, FiniteFloat

from seatrial.checks.training.result import Finite
from seatrial.remote.answers import NodeAnswer


class Event(NodeAnswer):
    """An event of rank 0 other than the last one; `time` is seconds of the epoch by its node's
    clock.
    """

    event: Literal["start", "step", "checkpoint"]
    step: int = Field(ge=0)
    time: FiniteFloat
    loss: Finite = None
    step_time_ms: Finite = None
    restore_s: Finite = None
    blocked_s: FiniteFloat = 0.0


@dataclass(frozen=True)
class Attempt:
    """The events of one attempt, in order, and its end by rank 0's clock."""

    events: Sequence[Event]
    ended: float

    @property
    def start(self) -> Event:
        """The event before the first step."""
        return self.events[0]


@dataclass(frozen=True)
class Goodput:
    """Seconds of the whole training, and the seconds lost for each reason."""

    wall_s: float
    lost_s: float
    resume_s: float
    reschedule_s: float
    save_s: float

    @property
    def share(self) -> float:
        """The productive share of the time for which the training had its ranks."""
        taken = self.lost_s + self.resume_s + self.reschedule_s + self.save_s
        return (self.wall_s - taken) / (self.wall_s - self.reschedule_s)


def goodput(attempts: Sequence[Attempt]) -> Goodput | None:
    """Return the goodput of all attempts together; None where one did not reach its first step."""
    if not attempts or not all(attempt.events for attempt in attempts):
        return None
    lost = resume = reschedule = save = 0.0
    for attempt, following in zip(attempts, [*attempts[1:], None], strict=True):
        secured = attempt.ended
        if following is not None:
            secured = _checkpoint_time(attempt, following.start.step)
            lost += attempt.ended - secured
            restore = following.start.restore_s or 0.0
            resume += restore
            reschedule += following.start.time - restore - attempt.ended
        save += sum(
            event.blocked_s
            for event in attempt.events
            if event.event == "checkpoint" and event.time <= secured
        )
    wall = attempts[-1].ended - attempts[0].start.time
    if wall > reschedule:
        return Goodput(
            wall_s=wall, lost_s=lost, resume_s=resume, reschedule_s=reschedule, save_s=save
        )
    return None


def _checkpoint_time(attempt: Attempt, step: int) -> float:
    """Return when the checkpoint after `step` was saved, or the start of the attempt if there is
    none.
    """
    times = [
        event.time for event in attempt.events if event.event == "checkpoint" and event.step == step
    ]
    return times[-1] if times else attempt.start.time
