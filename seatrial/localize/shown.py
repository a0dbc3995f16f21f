"""What tests have shown of nodes and pairs, as a basis for the next round. Pure."""

from dataclasses import dataclass, field

from seatrial.localize.group_tests import GroupTest, Names
from seatrial.localize.observations import Observed


@dataclass(slots=True)
class Shown:
    """What is known of nodes and pairs.

    fine: nodes with a fine test on all GPUs, or on each GPU alone.
    apart: nodes that were tested on single GPUs.
    met: pairs that were tested.
    good: pairs that were fine together on all GPUs.
    compared: pairs in `good` that were tested on single GPUs.
    """

    fine: set[str] = field(default_factory=set)
    apart: set[str] = field(default_factory=set)
    met: set[frozenset[str]] = field(default_factory=set)
    good: dict[Names, None] = field(default_factory=dict)
    compared: set[Names] = field(default_factory=set)

    @classmethod
    def by(cls, observed: Observed, gpus: int) -> "Shown":
        """Read the tests of nodes with `gpus` GPUs each."""
        shown = cls()
        slow_apart = set[str]()
        for test, is_fine in zip(observed.tests, observed.fine.tolist(), strict=True):
            if is_fine or len(test.nodes) == 2:
                shown.met.update(map(frozenset, test.neighbours))
            if not test.gpus or len(test.gpus[0]) >= gpus:
                if is_fine:
                    shown._add_fine(test)
                continue
            shown.apart.update(test.nodes)
            if test.nodes in shown.good:
                shown.compared.add(test.nodes)
            if not is_fine:
                slow_apart.update(test.nodes)
        shown.fine |= shown.apart - slow_apart
        return shown

    def _add_fine(self, test: GroupTest) -> None:
        """Add a fine test on all GPUs."""
        self.fine.update(test.nodes)
        if len(test.nodes) == 2:
            self.good[test.nodes] = None
