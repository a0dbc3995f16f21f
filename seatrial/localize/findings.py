"""Findings: a cause with its confidence, the tests that convince, and the sentence that says so.

Pure.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Any, Literal

import numpy as np

from seatrial.localize.causes import Cause, CauseKind, Sides
from seatrial.localize.criticism import NAMED, OFTEN
from seatrial.localize.membership import unsure_nodes
from seatrial.localize.next_test import dividing
from seatrial.localize.observations import Band, Ints, Observed, TestsByName
from seatrial.localize.posterior import Effect, Posterior
from seatrial.model.reason import Reason, placed
from seatrial.model.result import Suspect, SuspectKind
from seatrial.text.printable import printable
from seatrial.text.words import some_of

_MOST_UNSURE = 0.25  # nodes of a cut that is named, to each that is sure
_LEAST_SURE: Mapping[CauseKind, int] = {"leaf": 3}  # nodes that surely belong to what is named
SHOWN = 0.05  # the confidence from which a part is a suspect at all
_ROWS, _NODES_SHOWN = 6, 8
_SUSPECTS: Mapping[CauseKind, SuspectKind] = {
    "node": "node", "gpu": "gpu", "rail": "rail", "link": "link", "switch": "switch", "leaf": "switch",
}  # fmt: skip
FindingKind = Literal["cut", "rail", "node", "link", "placement", "socket", "leaf", "none"]
_FINDINGS: Mapping[CauseKind, FindingKind] = {
    "cut": "cut", "switch": "cut", "placement": "placement", "rail": "rail", "gpu": "rail", "node": "node",
    "link": "link", "socket": "socket", "leaf": "leaf",
}  # fmt: skip
_WORDS: Mapping[Band, str] = {
    "largest": "in the largest messages alone", "middle": "in messages of middle size", "small": "in small messages",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Evidence:
    """A test that convinces: its name, nodes, and its speed as a share of that of like tests; None
    if it failed.
    """

    source: str
    nodes: tuple[str, ...]
    ratio: float | None

    def to_dict(self) -> dict[str, Any]:
        nodes = [printable(node) for node in self.nodes[:_NODES_SHOWN]]
        return {"source": printable(self.source), "nodes": nodes, "ratio": self.ratio}


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause with the share of its effect; `sides` are the parts that it divides: of a cut, both
    groups of nodes.
    """

    cause: Cause
    kind: FindingKind
    confidence: float
    reason: Reason
    sides: Sides
    rows: tuple[Evidence, ...]
    slowdown: float  # median log slowdown of its slow tests; infinite where they fail
    band: Band = "large"  # of message sizes, that shows it
    told_apart: bool = True  # whether tests tell its GPUs from each other
    unsure: tuple[str, ...] = ()  # nodes that may belong to it or not

    @property
    def named(self) -> bool:
        return self.confidence >= NAMED

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that surely belong to it."""
        return _without(self.unsure, self.cause.nodes)

    @property
    def title(self) -> str:
        return called(
            replace(self.cause, nodes=self.nodes, sides=self.sides if self.cause.sides else ())
        )

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """The suspects; none for cuts and placements, where no part is to blame.

        GPUs of a socket are suspects by node.
        """
        confidence = round(self.confidence, 3)
        if self.cause.kind == "socket":
            gpus = printable(" ".join(self.cause.gpus))
            names = (f"{printable(node)}/{gpus}" for node in self.nodes)
            return tuple(Suspect("gpu", name, confidence, self.reason) for name in names)
        kind = _SUSPECTS.get(self.cause.kind)
        return (Suspect(kind, printable(self.cause.name), confidence, self.reason),) if kind else ()

    def to_dict(self) -> dict[str, Any]:
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


def findings_of(posterior: Posterior, effect: Effect, band: Band) -> list[Finding]:
    first: dict[tuple[CauseKind, str], Cause] = {}
    for cause in effect.causes:
        first.setdefault(cause.key, cause)
    shares = effect.parts
    shown = [key for key, share in shares.items() if share >= SHOWN]
    lead = effect.causes[0].key
    return [
        finding_of(
            posterior,
            first[key],
            min(shares[key], 0.999),
            band,
            effect.unsure if key == lead else (),
        )
        for key in shown
    ]


def finding_of(
    posterior: Posterior,
    cause: Cause,
    confidence: float,
    band: Band,
    differing: Collection[str] = (),
) -> Finding:
    """Make the finding of a cause; likely variants of it have other nodes of those that are
    `differing`.
    """
    observed, tests = posterior.observed, posterior.tests_of(cause)
    slow = tests[observed.slow[tests]]
    hit = tests[observed.bad[tests]]
    slowdown = (
        -float(np.median(observed.value[slow]))
        if len(slow) > (len(hit) - len(slow))
        else float("inf")
    )
    without = np.setdiff1d(np.arange(len(observed.tests)), tests)
    unsure = tuple(sorted({*unsure_nodes(posterior, cause), *differing}))
    sides = tuple(_without(unsure, side) for side in _sides(observed, cause))
    if len(sides) > 2:
        sides = tuple(side for side in sides if side)
    side, other = (*sides, (), ())[:2]
    partners = observed.nodes_of(hit).difference(cause.nodes)
    not_sure = f"; not sure of {some_of(map(printable, unsure), _NODES_SHOWN)}" if unsure else ""
    values = {
        "name": printable(cause.name),
        "gpus": printable(" ".join(cause.gpus)),
        "on": some_of(map(printable, _without(unsure, cause.nodes)), _NODES_SHOWN),
        "end": " at one end" if cause.at_one_end else "",
        "slow": len(hit),
        "tests": len(tests),
        "percent": round(100 * exp(-slowdown)),
        "partners": len(partners),
        "nodes": len(partners),
        "rest": len(without),
        "inside": len(without),
        "fine": int(observed.fine[without].sum()),
        "groups": len(sides),
        "side": some_of(map(printable, side), _NODES_SHOWN),
        "other": some_of(map(printable, other), _NODES_SHOWN),
        "sides": " | ".join(
            some_of(map(printable, side), _NODES_SHOWN) for side in sides[:_NODES_SHOWN]
        ),
        "more": _circumstances(observed, tests, band) + not_sure,
    }
    code = _code(cause, dead=slowdown == float("inf"))
    reason = Reason.of(code, **values)
    rows = _rows(observed, hit, tests)
    told_apart = cause.kind != "socket" or dividing(posterior, cause) is None
    divided = cause.kind != "cut" or (
        len(unsure) <= _MOST_UNSURE * sum(map(len, sides)) and min(map(len, sides)) > 1
    )
    if unsure and (
        not divided or len(_without(unsure, cause.nodes)) < _LEAST_SURE.get(cause.kind, 1)
    ):
        confidence = min(confidence, 0.5)
    return Finding(
        cause,
        _FINDINGS[cause.kind],
        confidence,
        reason,
        sides,
        rows,
        slowdown,
        band,
        told_apart,
        unsure,
    )


def _without(unsure: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return names of nodes, or of GPUs with that of their node in front, without unsure nodes."""
    return tuple(name for name in names if name.partition("/")[0] not in unsure)


def _code(cause: Cause, dead: bool) -> str:
    if cause.kind == "node" and dead:
        return "localize-node-fails"
    return "localize-groups" if len(cause.sides) > 2 else f"localize-{cause.kind}"


def _circumstances(observed: Observed, tests: Ints, band: Band) -> str:
    """Return the sizes, operations and days on which the tests of a part are slow, if they
    differ.
    """
    clauses = [_WORDS[band]] if band != "large" else []
    by_operation: TestsByName = defaultdict(list)
    for i in tests.tolist():
        by_operation[observed.tests[i].collective].append(i)
    if len(by_operation) > 1:
        clauses.append(
            "by operation: "
            + ", ".join(_of_operation(observed, *each) for each in by_operation.items())
        )
    days = sorted({observed.tests[i].day for i in tests if observed.tests[i].day})
    slow_days = sorted(
        {observed.tests[i].day for i in tests[observed.bad[tests]] if observed.tests[i].day}
    )
    if slow_days and len(days) > 1:
        clauses.append(
            f"since {slow_days[0]}"
            if slow_days[0] > days[0]
            else f"since the first test, {days[0]}"
        )
    return "".join(f"; {clause}" for clause in clauses)


def _of_operation(observed: Observed, name: str, where: Sequence[int]) -> str:
    places = np.array(where)
    bad = places[observed.bad[places]]
    often = len(bad) > OFTEN * len(places)
    shown = bad if often else places
    known = shown[~observed.failed[shown] & ~observed.alone[shown]]
    ratio = (
        f"at {100 * exp(float(np.median(observed.value[known]))):.0f} %" if len(known) else "failed"
    )
    return (
        f"{printable(name)} {ratio} in {len(bad)} of {len(places)}"
        if often
        else f"{printable(name)} not slow ({ratio})"
    )


def _rows(observed: Observed, hit: Ints, tests: Ints) -> tuple[Evidence, ...]:
    """Return the slowest tests of a cause, and last the fastest of them, which contradicts it."""
    against = tests[observed.fine[tests]]
    fastest = [int(against[np.argmax(observed.value[against])])] if len(against) else []
    slowest = hit[np.argsort(observed.value[hit], kind="stable")].tolist()
    rows = []
    for i in (*slowest[: _ROWS - len(fastest)], *fastest):
        test = observed.tests[i]
        rows.append(
            Evidence(
                test.name, test.nodes, None if test.failed else round(exp(observed.value[i]), 3)
            )
        )
    return tuple(rows)


def _sides(observed: Observed, cause: Cause) -> Sides:
    """Return the part that is blamed and the rest: nodes, or GPUs; of a cut, all groups of
    nodes.
    """
    if cause.sides:
        return cause.sides
    if cause.kind in ("rail", "gpu", "socket", "leaf"):
        return _sides_of_gpus(observed, cause)
    if cause.kind == "link":
        return (cause.nodes[0],), (cause.nodes[1],)
    if cause.kind == "placement":
        return (), ()
    return cause.nodes, tuple(sorted(observed.nodes.difference(cause.nodes)))


def _sides_of_gpus(observed: Observed, cause: Cause) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the blamed addresses and the others; on blamed nodes each with the name of its node in
    front.
    """
    seen: set[tuple[str, str]] = set()
    for test in observed.tests:
        for node, gpus in zip(test.nodes, test.gpus, strict=False):
            if node in cause.nodes or not cause.nodes:
                seen.update((node, gpu) for gpu in gpus)
    blamed = {(node, gpu) for node, gpu in seen if gpu in cause.gpus}

    def named(gpus: set[tuple[str, str]]) -> tuple[str, ...]:
        return tuple(sorted({f"{node}/{gpu}" if cause.nodes else gpu for node, gpu in gpus}))

    return named(blamed), named(seen - blamed)


def called(cause: Cause) -> str:
    """Return a cause by kind and name: "node n07"; of a cut and of several nodes by their
    number.
    """
    if len(cause.sides) > 2:
        return f"a cut between {len(cause.sides)} groups"
    if cause.kind == "cut":
        return f"a cut around {some_of(map(printable, cause.nodes), 3)}"
    if cause.kind in ("leaf", "socket"):
        part = "GPU address" if len(cause.gpus) == 1 else "GPUs"
        return (
            f"{part} {printable(' '.join(cause.gpus))} of "
            f"{some_of(map(printable, cause.nodes), _NODES_SHOWN)}"
        )
    several = len(cause.nodes) > 1 and cause.kind == "node"
    name = some_of(map(printable, cause.nodes), 3) if several else printable(cause.name)
    return f"{cause.kind} {name}"


def titled(finding: Finding) -> Reason:
    if finding.cause.kind in ("cut", "placement"):
        return finding.reason
    return placed(finding.title, finding.reason)
