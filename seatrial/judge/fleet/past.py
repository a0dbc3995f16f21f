"""Which earlier nights teach what is healthy, and which bear witness. Pure."""

from dataclasses import dataclass

import numpy as np

from seatrial.judge.fleet.grouped import Bools, Ints
from seatrial.judge.fleet.rules import RECENT_NIGHTS, REFERENCE_NIGHTS, RULES


@dataclass(frozen=True, slots=True)
class Chosen:
    """Rows of the nights given, oldest first. `renewed`: the reference ran other software than tonight's."""

    reference: Ints
    recent: Ints
    renewed: bool


def choose(passed: Bools, same_software: Bools) -> Chosen:
    """Split earlier nights (oldest first) into reference and recent ones; no night is both.

    The reference is the oldest passing nights of tonight's software, so that a slow decay cannot teach itself. While
    those are too few, it is the last passing nights before the software changed. A night that did not pass never
    teaches, but what was measured in it is still evidence.
    """
    own = np.flatnonzero(passed & same_software)
    before = np.flatnonzero(passed & ~same_software)
    if len(own) < RULES.nights_to_learn and len(before):
        return Chosen(before[-REFERENCE_NIGHTS:], np.flatnonzero(same_software)[-RECENT_NIGHTS:], renewed=True)
    reference = own[: max(RULES.nights_to_learn, min(REFERENCE_NIGHTS, len(own) - RECENT_NIGHTS))]
    start = int(reference[-1]) + 1 if len(reference) else 0
    later = np.flatnonzero(same_software[start:]) + start
    return Chosen(reference, later[-RECENT_NIGHTS:], renewed=False)
