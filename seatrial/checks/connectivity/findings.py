"""What a check finds node by node, while the testbed shrinks by those that fail."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, placed
from seatrial.model.result import Suspect
from seatrial.model.testbed import Testbed
from seatrial.text.hostlist import host_list

log = logging.getLogger("seatrial.connectivity")


@dataclass(slots=True)
class Findings:
    """What the stages of connectivity have found so far; `testbed` shrinks as nodes are set aside."""

    testbed: Testbed
    suspects: list[Suspect] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    slow: list[Suspect] = field(default_factory=list)  # what works, and is far slower than the rest
    doubts: list[str] = field(default_factory=list)  # why something says nothing of the nodes
    notes: list[str] = field(default_factory=list)  # remarks that blame nobody
    measurements: list[Measurement] = field(default_factory=list)

    def blame_nodes(self, evidence: Mapping[str, str]) -> None:
        """Blame each node that `evidence` names, and set it aside."""
        self.blame((Suspect("node", name, 1.0, why) for name, why in evidence.items()), evidence)

    def blame(self, suspects: Iterable[Suspect], set_aside: Iterable[str]) -> None:
        """Keep `suspects`; nodes that are set aside without being one of them are named too."""
        for suspect in suspects:
            log.warning("%s %s: %s", suspect.kind, suspect.name, suspect.evidence)
            self.suspects.append(suspect)
            self.problems.append(placed(suspect.name, suspect.evidence))
        self._take_out(set(set_aside))

    def _take_out(self, names: set[str]) -> None:
        unblamed = sorted(names - {suspect.name for suspect in self.suspects})
        if unblamed and not self.doubts:
            self.problems.append(Reason.of("left-out-without-blame", unblamed=host_list(unblamed)))
        self.testbed = self.testbed.without(names)
