"""Findings: a cause with its confidence, the tests that support it, and a sentence for people.

Pure.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

import numpy as np

from seatrial.localize.cause import Cause, CauseKind, Key, Sides
from seatrial.localize.criticism import NAMED, OFTEN
from seatrial.localize.effects import Effect
from seatrial.localize.group_tests import Names, TestsByName
from seatrial.localize.membership import unsure_nodes
from seatrial.localize.next_test import dividing
from seatrial.localize.observations import Band, Ints, Observed
from seatrial.localize.posterior import Posterior
from seatrial.model.reason import Reason, placed
from seatrial.model.result import Suspect, SuspectKind
from seatrial.text.printable import printable
from seatrial.text.words import some_of

_MOST_UNSURE = 0.25  # largest ratio of unsure to sure nodes of a named cut
# Least number of sure nodes of a named part; 1 for other kinds
_LEAST_SURE: Mapping[CauseKind, int] = {"leaf": 3}
SHOWN = 0.05  # least confidence in a part that is reported
_ROWS = 6
_NODES_SHOWN = 8
_SUSPECTS: Mapping[CauseKind, SuspectKind] = {
    "node": "node",
    "gpu": "gpu",
    "rail": "rail",
    "link": "link",
    "switch": "switch",
    "leaf": "switch",
}
FindingKind = Literal["cut", "rail", "node", "link", "placement", "socket", "leaf", "none"]
_FINDINGS: Mapping[CauseKind, FindingKind] = {
    "cut": "cut",
    "switch": "cut",
    "placement": "placement",
    "rail": "rail",
    "gpu": "rail",
    "node": "node",
    "link": "link",
    "socket": "socket",
    "leaf": "leaf",
}
_WORDS: Mapping[Band, str] = {
    "largest": "in the largest messages alone",
    "middle": "in messages of middle size",
    "small": "in small messages",
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """A test that supports a finding.

    `ratio` is its speed divided by that of like tests; None if it failed.
    """

    source: str
    nodes: Names
    ratio: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the test as a row of the finding's `tests` in JSON."""
        nodes = map(printable, self.nodes[:_NODES_SHOWN])
        return {"source": printable(self.source), "nodes": list(nodes), "ratio": self.ratio}


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause with the share of its effect.

    `sides` are the blamed part and the rest; for a cut, the groups of nodes.
    """

    cause: Cause
    kind: FindingKind
    confidence: float
    reason: Reason
    sides: Sides
    rows: tuple[Evidence, ...]
    slowdown: float  # median log slowdown of its slow tests; infinite where they fail
    band: Band = "large"  # message sizes that show it
    told_apart: bool = True  # whether tests separate its GPUs from each other
    unsure: Names = ()  # nodes that may or may not belong to the cause

    @property
    def named(self) -> bool:
        """Whether the confidence is high enough to name the cause."""
        return self.confidence >= NAMED

    @property
    def nodes(self) -> Names:
        """The nodes that surely belong to the cause."""
        return _without(self.unsure, self.cause.nodes)

    @property
    def title(self) -> str:
        """The name of the cause for people, with the nodes that surely belong to it, or all."""
        sides: Sides = ()
        if self.cause.sides:
            sides = self.sides
        return called(replace(self.cause, nodes=self.nodes or self.cause.nodes, sides=sides))

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """The suspects; none for cuts and placements, where no part is to blame.

        GPUs of a socket are suspects by node.
        """
        kind = _SUSPECTS.get(self.cause.kind)
        names = [printable(self.cause.name)]
        if self.cause.kind == "socket":
            kind = "gpu"
            gpus = printable(" ".join(self.cause.gpus))
            names = [f"{printable(node)}/{gpus}" for node in self.nodes]
        if kind is None:
            return ()
        confidence = round(self.confidence, 3)
        return tuple(Suspect(kind, name, confidence, self.reason) for name in names)

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as an entry of the JSON document of a localization."""
        return {
            "code": self.reason.code,
            "kind": self.kind,
            "sides": [list(map(printable, side)) for side in self.sides],
            "confidence": round(self.confidence, 3),
            "nodes": list(map(printable, self.nodes)),
            "unsure": list(map(printable, self.unsure)),
            "gpus": list(map(printable, self.cause.gpus)),
            "told_apart": self.told_apart,
            "sizes": self.band,
            "evidence": self.reason.sentence,
            "tests": [row.to_dict() for row in self.rows],
        }


Findings = Sequence[Finding]


def named_of(findings: Findings) -> list[Finding]:
    """Return the findings with enough confidence to be named."""
    return [finding for finding in findings if finding.named]


def findings_of(posterior: Posterior, effect: Effect, band: Band) -> list[Finding]:
    """Return a finding for each part with a share of at least `SHOWN` in the effect."""
    first: dict[Key, Cause] = {}
    for cause in effect.causes:
        first.setdefault(cause.key, cause)
    likeliest = effect.likeliest.key
    findings = []
    for key, share in effect.parts.items():
        if share < SHOWN:
            continue
        differing = frozenset[str]()
        if key == likeliest:
            differing = effect.unsure
        confidence = min(share, 0.999)
        finding = finding_of(posterior, first[key], confidence, band, differing)
        findings.append(finding)
    return findings


def finding_of(
    posterior: Posterior,
    cause: Cause,
    confidence: float,
    band: Band,
    differing: Collection[str] = (),
) -> Finding:
    """Return the finding of a cause.

    Nodes in `differing`, in which likely variants of the cause differ, are unsure.
    """
    observed = posterior.observed
    tests = posterior.tests_of(cause)
    slow = tests[observed.slow[tests]]
    hit = observed.bad_of(tests)
    failed = len(hit) - len(slow)
    slowdown = inf
    ratio = 0.0
    if len(slow) > failed:
        ratio = float(np.median(observed.ratio[slow]))
        slowdown = -float(np.median(observed.value[slow]))
    doubtful = {*unsure_nodes(posterior, cause), *differing}
    unsure = tuple(sorted(doubtful))
    sides = tuple(_without(unsure, side) for side in _sides(observed, cause))
    if len(sides) > 2:
        sides = tuple(filter(None, sides)) or cause.sides
    more = _circumstances(observed, tests, band)
    if unsure:
        more += f"; not sure of {_listed(unsure)}"
        if not _is_sure_enough(cause, sides, unsure):
            confidence = min(confidence, 0.5)
    return Finding(
        cause=cause,
        kind=_FINDINGS[cause.kind],
        confidence=confidence,
        reason=_reason(posterior, cause, ratio, sides, unsure, more),
        sides=sides,
        rows=_rows(observed, shown_first(posterior, cause, hit), tests),
        slowdown=slowdown,
        band=band,
        told_apart=cause.kind != "socket" or dividing(posterior, cause) is None,
        unsure=unsure,
    )


def _is_sure_enough(cause: Cause, sides: Sides, unsure: Sequence[str]) -> bool:
    """Return whether enough of the cause is left without its unsure nodes to name it."""
    if cause.kind == "cut":
        sizes = list(map(len, sides))
        if len(unsure) > _MOST_UNSURE * sum(sizes):
            return False
        if min(sizes) < 2:
            return False
    sure = _without(unsure, cause.nodes)
    return len(sure) >= _LEAST_SURE.get(cause.kind, 1)


def _reason(
    posterior: Posterior,
    cause: Cause,
    ratio: float,
    sides: Sides,
    unsure: Sequence[str],
    more: str,
) -> Reason:
    """Return the sentence of a finding: `ratio` is that of its slow tests, 0 where they fail, and
    `more` is appended.
    """
    observed = posterior.observed
    tests = posterior.tests_of(cause)
    hit = observed.bad_of(tests)
    every = np.arange(len(observed.tests))
    without = np.setdiff1d(every, tests)
    partners = observed.nodes_of(hit).difference(cause.nodes)
    side, other = (*sides, (), ())[:2]
    end = " at one end" if cause.at_one_end else ""
    if end and cause.kind == "link":
        end = " from {} to {}, not back".format(*map(printable, observed.tests[hit[0]].nodes))
    return Reason.of(
        _code(cause, dead=not ratio),
        name=printable(cause.name),
        gpus=printable(" ".join(cause.gpus)),
        on=_listed(_without(unsure, cause.nodes)),
        end=end,
        slow=len(hit),
        tests=len(tests),
        percent=round(100 * ratio),
        partners=len(partners),
        nodes=len(partners),
        rest=len(without),
        inside=len(without),
        fine=int(observed.fine[without].sum()),
        groups=len(sides),
        side=_listed(side),
        other=_listed(other),
        sides=" | ".join(map(_listed, sides[:_NODES_SHOWN])),
        more=more,
    )


def _listed(names: Iterable[str]) -> str:
    """Format the first few names for a sentence."""
    return some_of(map(printable, names), _NODES_SHOWN)


def _without(unsure: Sequence[str], names: Sequence[str]) -> Names:
    """Return the names without unsure nodes; names are of nodes, or of GPUs as NODE/GPU."""
    return tuple(name for name in names if name.partition("/")[0] not in unsure)


def _code(cause: Cause, dead: bool) -> str:
    """Return the code of the reason; `dead` is whether the cause makes tests fail."""
    if cause.kind == "node" and dead:
        return "localize-node-fails"
    if len(cause.sides) > 2:
        return "localize-groups"
    return f"localize-{cause.kind}"


def _circumstances(observed: Observed, tests: Ints, band: Band) -> str:
    """Return clauses on the message sizes, operations and days with slow tests, if speed depends on
    them.
    """
    clauses = []
    if band != "large":
        clauses.append(_WORDS[band])
    by_operation: TestsByName = defaultdict(list)
    for i in tests.tolist():
        by_operation[observed.tests[i].collective].append(i)
    if len(by_operation) > 1:
        operations = [_of_operation(observed, *each) for each in by_operation.items()]
        clauses.append(f"by operation: {', '.join(operations)}")
    days = _days(observed, tests)
    slow_days = _days(observed, observed.bad_of(tests))
    if slow_days and len(days) > 1:
        since = slow_days[0]
        if since == days[0]:
            since = f"the first test, {since}"
        clauses.append(f"since {since}")
    return "".join(f"; {clause}" for clause in clauses)


def _days(observed: Observed, tests: Ints) -> list[str]:
    """Return the known dates of the tests, in order."""
    days = {observed.tests[i].day for i in tests}
    return sorted(days - {""})


def _of_operation(observed: Observed, name: str, where: Sequence[int]) -> str:
    """Return a clause on one operation: how slow its tests are, and how many."""
    places = np.array(where)
    bad = observed.bad_of(places)
    often = len(bad) > OFTEN * len(places)
    shown = bad if often else places
    known = shown[observed.compared[shown]]
    ratio = "failed"
    if len(known):
        ratio = f"at {100 * np.median(observed.ratio[known]):.0f} %"
    if often:
        return f"{printable(name)} {ratio} in {len(bad)} of {len(places)}"
    return f"{printable(name)} not slow ({ratio})"


def shown_first(posterior: Posterior, cause: Cause, hit: Ints) -> Ints:
    """Return the slow tests of a cause that no other effect explains equally well; all if none."""
    alone = hit
    for effect in posterior.effects:
        if cause not in effect.causes:
            alone = np.setdiff1d(alone, posterior.tests_of(effect.likeliest))
    return alone if len(alone) else hit


def _rows(observed: Observed, hit: Ints, tests: Ints) -> tuple[Evidence, ...]:
    """Return the slowest tests of a cause, followed by the fastest fine one, which
    contradicts it.
    """
    order = np.argsort(observed.value[hit], kind="stable")
    slowest = hit[order].tolist()
    shown = slowest[:_ROWS]
    against = tests[observed.fine[tests]]
    if len(against):
        best = np.argmax(observed.value[against])
        fastest = int(against[best])
        shown = [*slowest[: _ROWS - 1], fastest]
    rows = []
    for i in shown:
        test = observed.tests[i]
        ratio = None
        if not test.failed:
            ratio = round(float(observed.ratio[i]), 3)
        rows.append(Evidence(test.name, test.nodes, ratio))
    return tuple(rows)


def _sides(observed: Observed, cause: Cause) -> Sides:
    """Return the blamed part and the rest, as nodes or GPUs; for a cut, its groups of nodes."""
    if cause.sides:
        return cause.sides
    if cause.kind in ("rail", "gpu", "socket", "leaf"):
        return _sides_of_gpus(observed, cause)
    if cause.kind == "link":
        one, other = cause.nodes
        return (one,), (other,)
    if cause.kind == "placement":
        return (), ()
    rest = observed.nodes.difference(cause.nodes)
    return cause.nodes, tuple(sorted(rest))


def _sides_of_gpus(observed: Observed, cause: Cause) -> tuple[Names, Names]:
    """Return the blamed GPU addresses and the others, as NODE/ADDRESS if the cause is on certain
    nodes.
    """
    blamed = set[str]()
    others = set[str]()
    for test in observed.tests:
        for node, gpus in test.ends:
            if cause.nodes and node not in cause.nodes:
                continue
            for gpu in gpus:
                side = blamed if gpu in cause.gpus else others
                if cause.nodes:
                    side.add(f"{node}/{gpu}")
                else:
                    side.add(gpu)
    return tuple(sorted(blamed)), tuple(sorted(others))


def called(cause: Cause) -> str:
    """Return a cause by kind and name: "node n07"; of a cut and of several nodes by their
    number.
    """
    if len(cause.sides) > 2:
        return f"a cut between {len(cause.sides)} groups"
    nodes = some_of(map(printable, cause.nodes), 3)
    if cause.kind == "cut":
        return f"a cut around {nodes}"
    if cause.kind in ("leaf", "socket"):
        part = "GPUs"
        if len(cause.gpus) == 1:
            part = "GPU address"
        gpus = printable(" ".join(cause.gpus))
        return f"{part} {gpus} of {_listed(cause.nodes)}"
    if cause.kind == "node" and len(cause.nodes) > 1:
        return f"node {nodes}"
    return f"{cause.kind} {printable(cause.name)}"


def titled(finding: Finding) -> Reason:
    """Return the reason, prefixed by the title of the finding unless it is a cut or a placement."""
    if finding.cause.kind in ("cut", "placement"):
        return finding.reason
    return placed(finding.title, finding.reason)
