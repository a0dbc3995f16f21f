"""The findings of `connectivity`: nodes that are left, whom it blames, what it measured. Pure."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from seatrial.checks.connectivity.rates import (
    LEAST_LINKS,
    LEAST_NODES,
    SLOW_FACTOR,
    Models,
    Streams,
    egress,
    ingress,
    keep_best,
    levelled,
    slow_nodes,
)
from seatrial.checks.connectivity.reachability import Pair
from seatrial.checks.connectivity.slow_streams import divided, slow_suspects
from seatrial.checks.contract import sure
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, join, placed
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.node_probe import Inventory
from seatrial.text.hostlist import host_list

log = logging.getLogger("seatrial.connectivity")
NAME = "connectivity"


@dataclass(slots=True)
class Findings:
    """Findings of connectivity so far; `testbed` shrinks as nodes are set aside."""

    testbed: Testbed
    suspects: list[Suspect] = field(default_factory=list)
    problems: list[Reason] = field(default_factory=list)
    # What works, and less well than it should
    impaired: list[Suspect] = field(default_factory=list)
    doubts: list[Reason] = field(default_factory=list)  # why something says nothing of the nodes
    notes: list[Reason] = field(default_factory=list)  # remarks without blame
    measurements: list[Measurement] = field(default_factory=list)
    # Each the best of all its tries, also of the repeats
    streams: dict[Pair, float] = field(default_factory=dict)
    model_by_node: Models = field(default_factory=dict)
    # Before anything was measured
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    node_count: int = 0  # at the beginning
    seconds: float = 0.0  # until all was tried, without repeats
    # The nodes that have slowed after their first streams
    slowed: set[str] = field(default_factory=set)

    def check(self) -> Check:
        """Return the check, before any number is judged."""
        impaired = [*self.impaired, *slow_suspects(self.streams, self.model_by_node)]
        suspects = (*self.suspects, *impaired)
        doubts = self._all_doubts()
        bad = list(self.problems)
        for suspect in impaired:
            bad.append(placed(suspect.name, suspect.evidence))
        shown = bad[:3]
        also = _others(suspects, shown)
        verdict = Verdict.PASS
        if self.problems:
            verdict = Verdict.FAIL
        elif impaired:
            verdict = Verdict.DEGRADED
        elif doubts:
            verdict = Verdict.INCONCLUSIVE
        left = len(self.testbed.nodes)
        good = Reason.of("connectivity-good", left=left, nodes=self.node_count)
        return Check(
            name=NAME,
            verdict=verdict,
            reason=join((*shown, also, *doubts)) or good,
            seconds=self.seconds,
            measurements=tuple(self.measurements),
            suspects=suspects,
        )

    def try_again(self, streams: Streams) -> None:
        """Add streams that were measured again; of each, the faster counts, since a hiccup of the
        first time passes.

        Of a node that was slow and is no more, only the new ones count. The new ones of a node that
        has slowed since do not, and all nodes are to be measured again (`localize`). Fine streams
        of one time beside slow ones of another would make links look slow.
        """
        suspected = self._slow_names()
        links = {frozenset(pair) for pair in streams}
        link_count = Counter(node for link in links for node in link)
        then = self._slow_nodes(self.streams)
        now = self._slow_nodes(streams)
        recovered = set()
        if len(link_count) >= LEAST_NODES:
            recovered = (then & link_count.keys()) - now
        for node in now & self._fallen(streams):
            if link_count[node] >= LEAST_LINKS:
                self.slowed.add(node)
        new = {pair: mb_s for pair, mb_s in streams.items() if self.slowed.isdisjoint(pair)}
        best = {
            pair: mb_s
            for pair, mb_s in self.streams.items()
            if recovered.isdisjoint(pair) or pair in new
        }
        keep_best(best, new)
        self.streams = best
        cleared = sorted(suspected - self._slow_names())
        if cleared:
            log.info("%s: slow at first, not when measured again", host_list(cleared))

    def _fallen(self, streams: Streams) -> set[str]:
        """Return the nodes that send or receive far less than at first."""
        fallen = set()
        for rates in (egress, ingress):
            first = rates(self.streams)
            for node, mb_s in rates(streams).items():
                if mb_s * SLOW_FACTOR < first.get(node, 0.0):
                    fallen.add(node)
        return fallen

    def _slow_nodes(self, streams: Streams) -> set[str]:
        return set(slow_nodes(levelled(streams, self.model_by_node)))

    def _slow_names(self) -> set[str]:
        """Return the names of the slow nodes and links."""
        slow = slow_suspects(self.streams, self.model_by_node)
        return {suspect.name for suspect in slow}

    def blame_nodes(self, evidence: Mapping[str, Reason]) -> None:
        """Blame each node that `evidence` names, and set it aside."""
        self.blame(sure(evidence), evidence)

    def blame(self, suspects: Iterable[Suspect], set_aside: Iterable[str]) -> None:
        """Keep `suspects`; nodes that are set aside without being one of them are named too."""
        for suspect in suspects:
            log.warning("%s %s: %s", suspect.kind, suspect.name, suspect.evidence)
            self.suspects.append(suspect)
            self.problems.append(placed(suspect.name, suspect.evidence))
        names = set(set_aside)
        blamed = {suspect.name for suspect in self.suspects}
        unblamed = host_list(sorted(names - blamed))
        if unblamed and not self._all_doubts():
            self.problems.append(Reason.of("left-out-without-blame", unblamed=unblamed))
        self.testbed = self.testbed.without(names)

    def _all_doubts(self) -> list[Reason]:
        """Return the doubts, with the one of nodes that are slow together."""
        split = divided(self.streams, self.model_by_node)
        if not split:
            return self.doubts
        return [*self.doubts, split]


def _others(suspects: Iterable[Suspect], shown: Iterable[Reason]) -> Reason:
    """Name the suspects of whom the reasons that are shown say nothing."""
    named = set[str]()
    for reason in shown:
        named.update(reason.places)
    others = host_list(suspect.name for suspect in suspects if suspect.name not in named)
    if not others:
        return Reason()
    return Reason.of("also-bad", others=others)
