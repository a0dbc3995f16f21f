"""The findings of `connectivity`: remaining nodes, suspects and measurements. Pure."""

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
    """The findings of `connectivity` so far; nodes that are set aside leave `testbed`."""

    testbed: Testbed
    suspects: list[Suspect] = field(default_factory=list)
    problems: list[Reason] = field(default_factory=list)
    # Parts that work, but worse than they should
    impaired: list[Suspect] = field(default_factory=list)
    doubts: list[Reason] = field(default_factory=list)  # why a result shows nothing about the nodes
    notes: list[Reason] = field(default_factory=list)  # remarks without blame
    measurements: list[Measurement] = field(default_factory=list)
    # The best rate of all tries of each stream, including repeats
    streams: dict[Pair, float] = field(default_factory=dict)
    model_by_node: Models = field(default_factory=dict)
    # Inventories before any measurement
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    node_count: int = 0  # number of nodes at the beginning
    seconds: float = 0.0  # duration without repeats
    # Nodes that have become slow since their first streams
    slowed: set[str] = field(default_factory=set)

    def check(self) -> Check:
        """Return the check, before its measurements are judged."""
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
        """Add streams that were measured again; the faster rate of each counts, as disturbances
        pass.

        For a node that has recovered, only new streams count. Streams of a node that has become
        slow do not count, and the node is added to `slowed`, so that `localize` measures all nodes
        again: a mix of fine and slow streams would look like slow links.
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
        """Return the nodes that send or receive at far lower rates than at first."""
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
        """Blame and set aside each node in `evidence`."""
        self.blame(sure(evidence), evidence)

    def blame(self, suspects: Iterable[Suspect], set_aside: Iterable[str]) -> None:
        """Add `suspects` and remove the nodes in `set_aside`; a problem names those of them that
        are not suspects.
        """
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
        """Return the doubts, including one if nodes of a group are slow together."""
        split = divided(self.streams, self.model_by_node)
        if not split:
            return self.doubts
        return [*self.doubts, split]


def _others(suspects: Iterable[Suspect], shown: Iterable[Reason]) -> Reason:
    """Return a reason with the suspects that the `shown` reasons do not name; empty if there are
    none.
    """
    named = set[str]()
    for reason in shown:
        named.update(reason.places)
    others = host_list(suspect.name for suspect in suspects if suspect.name not in named)
    if not others:
        return Reason()
    return Reason.of("also-bad", others=others)
