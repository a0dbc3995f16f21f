"""What a check finds node by node, while the testbed shrinks by those that fail."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from seatrial.checks.connectivity.rates import Streams, divided, keep_best, slow_suspects
from seatrial.checks.connectivity.reachability import Pair
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, extended, join, placed
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.text.hostlist import host_list

log = logging.getLogger("seatrial.connectivity")

NAME = "connectivity"


@dataclass(slots=True)
class Findings:
    """What the stages of connectivity have found so far; `testbed` shrinks as nodes are set aside."""

    testbed: Testbed
    suspects: list[Suspect] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    impaired: list[Suspect] = field(default_factory=list)  # what works, and less well than it should
    doubts: list[str] = field(default_factory=list)  # why something says nothing of the nodes
    notes: list[str] = field(default_factory=list)  # remarks that blame nobody
    measurements: list[Measurement] = field(default_factory=list)
    streams: dict[Pair, float] = field(default_factory=dict)  # each the best of all its tries, also of the repeats
    model_by_node: Mapping[str, str] = field(default_factory=dict)
    node_count: int = 0  # at the beginning
    seconds: float = 0.0  # until all was tried, without repeats

    def check(self) -> Check:
        """What all that comes to, before any number is judged."""
        impaired = [*self.impaired, *slow_suspects(self.streams, self.model_by_node)]
        doubts = self._all_doubts()
        bad = [*self.problems, *(placed(suspect.name, suspect.evidence) for suspect in impaired), *doubts]
        more = f" (and {len(bad) - 3} more)" if len(bad) > 3 else ""
        unsure = Verdict.DEGRADED if impaired else Verdict.INCONCLUSIVE if doubts else Verdict.PASS
        good = f"{len(self.testbed.nodes)} of {self.node_count} nodes answer, reach each other and run MPI"
        return Check(
            name=NAME,
            verdict=Verdict.FAIL if self.problems else unsure,
            reason=extended(join(bad[:3]), more) or good,
            seconds=self.seconds,
            measurements=tuple(self.measurements),
            suspects=(*self.suspects, *impaired),
        )

    def try_again(self, streams: Streams) -> None:
        """Streams that were measured again count where they are faster: a hiccup of the first time clears up."""
        slow = {suspect.name for suspect in slow_suspects(self.streams, self.model_by_node)}
        keep_best(self.streams, streams)
        if cleared := sorted(slow - {suspect.name for suspect in slow_suspects(self.streams, self.model_by_node)}):
            log.info("%s: slow at first, not when measured again", host_list(cleared))

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
        if unblamed and not self._all_doubts():
            self.problems.append(Reason.of("left-out-without-blame", unblamed=host_list(unblamed)))
        self.testbed = self.testbed.without(names)

    def _all_doubts(self) -> list[str]:
        split = divided(self.streams, self.model_by_node)
        return [*self.doubts, split] if split else self.doubts
