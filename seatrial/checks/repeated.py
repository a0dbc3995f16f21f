"""Measuring again what the judge doubts: what is asked for, how long it may take, and what it came to."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from seatrial.model.measurement import Measurement
from seatrial.model.reason import placed
from seatrial.model.result import Check, Suspect
from seatrial.model.verdict import Verdict

log = logging.getLogger("seatrial.repeat")

_BROKEN = (Verdict.FAIL, Verdict.CORRUPT)
_GRACE_S = 300  # what is under way when the time for repeats is over may go on for as long


@dataclass(frozen=True, slots=True)
class Doubt:
    """A measurement to take once more; it was taken `taken` times, and never will be more than `most` times."""

    measurement: Measurement
    taken: int
    most: int


@dataclass(slots=True)
class Repeated:
    """What repeating a check's doubtful numbers came to: further measurements, and what broke meanwhile.

    `suspects` are to blame for that. `over`: the cluster is not what was measured any more, or has no time left.
    `check` is what the check comes to by itself, before its numbers are judged, given the repeats; None where they
    change nothing about that.
    """

    measurements: list[Measurement] = field(default_factory=list)
    problems: list[tuple[Verdict, str]] = field(default_factory=list)
    suspects: list[Suspect] = field(default_factory=list)
    over: bool = False
    check: Check | None = None

    def add(self, later: "Repeated") -> None:
        """Add what a later repeat came to."""
        self.measurements += later.measurements
        self.problems += later.problems
        self.suspects += later.suspects
        self.over = self.over or later.over
        self.check = later.check or self.check

    def broke(self, verdict: Verdict, reason: str) -> None:
        """Only a cluster that breaks or computes wrongly says something about the cluster."""
        if verdict in _BROKEN:
            self.problems.append((verdict, placed("when it was repeated", reason)))
        elif verdict is not Verdict.PASS:
            log.warning("not repeated: %s", reason)


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """How long repeats may take: none begins after `until` (of time.monotonic)."""

    until: float

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until

    def limit(self, usual_s: float) -> float:
        """The time limit of what begins now, in seconds."""
        return min(usual_s, max(self.until - time.monotonic(), 0.0) + _GRACE_S)


def was_cut(began: float, limit_s: float, usual_s: float) -> bool:
    """Whether it might have ended well, given the usual time; ranks that wait give up at half of their limit."""
    return limit_s < usual_s and time.monotonic() - began >= limit_s / 2


def unused_label(logs: Path, name: str) -> str:
    """A label whose log is not there yet: `all_reduce-again-1`."""
    return next(label for n in count(1) if not (logs / f"{(label := f'{name}-again-{n}')}.log").exists())


def log_repeat(what: str, doubts: Sequence[Doubt]) -> None:
    """Log what is measured again, and how often at most."""
    first = max(doubts, key=lambda doubt: doubt.most - doubt.taken)
    log.info("%s suspicious: repeated %d of %d at most", what, first.taken, first.most - 1)
