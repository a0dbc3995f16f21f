"""What a check of a suite will do, about how long that takes, and how long it takes at most. Pure.

Work comes from the suite: sizes, iterations, steps. How fast nodes do it is assumed here, from H100 and H200 nodes and
from two shared cores, because a suite is planned before anything is measured.
"""

from dataclasses import dataclass

from seatrial.config.yamlfile import Strict


@dataclass(frozen=True, slots=True)
class PlannedNodes:
    """The nodes that a suite is planned for: how many, the ranks on each, and whether they have GPUs."""

    count: int
    slots: int
    gpus: bool

    @property
    def ranks(self) -> int:
        return self.count * self.slots

    @property
    def words(self) -> str:
        each = f"{self.slots} GPU{'' if self.slots == 1 else 's'}" if self.gpus else "no GPU"
        return f"{self.count} node{'' if self.count == 1 else 's'} with {each}"


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A part of a check: what it does, and the seconds that it takes, about and at most."""

    what: str
    about_s: float
    most_s: float


START_S = {True: 15.0, False: 5.0}  # mpirun, torch and NCCL, by whether there are GPUs


def one_part(section: Strict, nodes: PlannedNodes) -> list[PlannedPart]:
    """All of a check in one part, for one that says nothing else: it takes a start, and its timeout at most."""
    usual_s = START_S[nodes.gpus]
    most_s = float(getattr(section, "timeout_s", usual_s))
    description = " ".join((type(section).__doc__ or "").partition("\n\n")[0].split()).rstrip(".")
    return [PlannedPart(description, min(usual_s, most_s), most_s)]
