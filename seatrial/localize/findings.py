"""From the posterior to findings, suspects, a verdict, and the next test where the tests do not decide. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import exp
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from seatrial.localize.causes import Cause, CauseKind
from seatrial.localize.next_test import NextTest, most_telling, repeated
from seatrial.localize.observations import Bools, GroupTest, Ints, Observed, observe
from seatrial.localize.posterior import LEAST_OF_A_CUT, Effect, Posterior, infer
from seatrial.model.reason import Reason, code_of, join
from seatrial.model.result import Suspect, SuspectKind
from seatrial.model.verdict import Verdict
from seatrial.text.printable import printable
from seatrial.text.words import some_of

NAMED, SHOWN = 0.9, 0.05  # the confidence from which a part is named, and from which it is a suspect at all
_LEAST = 4  # comparable tests
_MANY_TESTS = 400
_ROWS, _NODES_SHOWN = 6, 8
# Slow tests that a cause needs, so that no stray names a part.
_ENOUGH: Mapping[CauseKind, int] = {
    "cut": LEAST_OF_A_CUT, "switch": 3, "placement": 3, "rail": 4, "node": 2, "gpu": 3, "link": 2,
}  # fmt: skip
_SUSPECTS: Mapping[CauseKind, SuspectKind] = {
    "node": "node", "gpu": "gpu", "rail": "rail", "link": "link", "switch": "switch",
}  # fmt: skip
FindingKind = Literal["cut", "rail", "node", "link", "placement", "none"]
_FINDINGS: Mapping[CauseKind, FindingKind] = {
    "cut": "cut", "switch": "cut", "placement": "placement", "rail": "rail", "gpu": "rail", "node": "node",
    "link": "link",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Evidence:
    """A test that convinces: its name, nodes, and its speed as a share of that of like tests; None if it failed."""

    source: str
    nodes: tuple[str, ...]
    ratio: float | None

    def to_dict(self) -> dict[str, Any]:
        nodes = [printable(node) for node in self.nodes[:_NODES_SHOWN]]
        return {"source": printable(self.source), "nodes": nodes, "ratio": self.ratio}


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause with the share of its effect; `sides` are the parts that it divides: of a cut, both groups of nodes."""

    cause: Cause
    kind: FindingKind
    confidence: float
    reason: str
    sides: tuple[tuple[str, ...], tuple[str, ...]]
    rows: tuple[Evidence, ...]
    slowdown: float  # median log slowdown of its slow tests; infinite where they fail

    @property
    def named(self) -> bool:
        return self.confidence >= NAMED

    @property
    def title(self) -> str:
        return _called(self.cause)

    @property
    def suspect(self) -> Suspect | None:
        """None for cuts and placements: no part is to blame."""
        kind = _SUSPECTS.get(self.cause.kind)
        return Suspect(kind, printable(self.cause.name), round(self.confidence, 3), self.reason) if kind else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "code": code_of(self.reason),
            "kind": self.kind,
            "sides": [list(map(printable, side)) for side in self.sides],
            "confidence": round(self.confidence, 3),
            "evidence": self.reason,
            "tests": [row.to_dict() for row in self.rows],
        }


@dataclass(frozen=True, slots=True)
class Localization:
    """What the tests show: the findings, the likeliest first, and the test that would decide between them."""

    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...]
    next_test: NextTest | None
    posterior: Posterior

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        return tuple(suspect for finding in self.findings if (suspect := finding.suspect))

    def to_dict(self) -> dict[str, Any]:
        """The document that `seatrial localize --json` prints."""
        nothing = {"code": "localize-none", "kind": "none", "sides": []}
        return {
            "verdict": self.verdict.value,
            "code": code_of(self.reason),
            "reason": self.reason,
            "suspects": [suspect.to_dict() for suspect in self.suspects],
            "findings": [finding.to_dict() for finding in self.findings] or [nothing],
            "next_test": self.next_test.to_dict() if self.next_test else None,
        }


def localize(tests: Sequence[GroupTest], groups: Mapping[str, frozenset[str]] | None = None) -> Localization:
    """Say what slows tests, among nodes, GPUs, rails, links, cuts and placements.

    `groups` are nodes that share a switch, rack or block, by its name.
    """
    observed = observe(tests)
    posterior = infer(observed, groups or {})
    proven = tuple(effect for effect in posterior.effects if _supported(posterior, effect))
    posterior = replace(posterior, effects=proven)
    findings = [finding for effect in proven for finding in _findings(posterior, effect)]
    together = None
    if apart := _never_together(posterior, findings):  # fine with each other behind a slow switch, or each of them slow
        findings = [f for f in findings if set(f.cause.nodes).isdisjoint(apart) or f.cause.kind not in ("cut", "node")]
        cut = Cause("cut", "", tuple(sorted(apart)))
        nodes = (c.cause for c in posterior.columns if c.cause.kind == "node" and c.cause.name in apart)
        findings += [_finding(posterior, cause, 0.5) for cause in (cut, *nodes)]
        together = NextTest(tuple(sorted(apart)[:2]))
    if behind := _behind_a_cut(posterior, findings):
        findings = [replace(f, confidence=min(f.confidence, 0.5)) if f in behind else f for f in findings]
        together = together or _across(posterior, behind[0])
    if or_nodes := _as_well_of_nodes(posterior, findings):
        findings = [replace(f, confidence=min(f.confidence, 0.5)) if f in or_nodes else f for f in findings]
        together = together or _with_a_fine_node(posterior, or_nodes[0])
    findings.sort(key=lambda finding: -finding.confidence)
    return _concluded(posterior, tuple(findings), together)


def _never_together(posterior: Posterior, findings: Sequence[Finding]) -> set[str]:
    """Two or more nodes that no test has together with another of them: nodes that are named, or one side of a cut."""
    everywhere = {node for test in posterior.observed.tests for node in test.nodes}
    named = _apart(posterior, {f.cause.nodes[0] for f in findings if f.cause.kind == "node" and f.named})
    if len(named) > 1:
        return named
    cuts = [set(f.cause.nodes) for f in findings if f.cause.kind == "cut" and f.named]
    smaller = [min(side, everywhere - side, key=len) for side in cuts]
    return next((side for side in smaller if _apart(posterior, side) == side), set())


def _apart(posterior: Posterior, nodes: set[str]) -> set[str]:
    met = [nodes.intersection(test.nodes) for test in posterior.observed.tests]
    return nodes - {node for some in met if len(some) > 1 for node in some}


def _behind_a_cut(posterior: Posterior, findings: Sequence[Finding]) -> list[Finding]:
    """The named links whose ends no chain of fine tests joins: a cut between the ends explains them as well."""
    links = [finding for finding in findings if finding.cause.kind == "link" and finding.named]
    sides = _joined(posterior.observed) if links else {}
    return [link for link in links if sides[link.cause.nodes[0]] != sides[link.cause.nodes[1]]]


def _as_well_of_nodes(posterior: Posterior, findings: Sequence[Finding]) -> list[Finding]:
    """The named findings that other slow nodes explain as well, such as most of the nodes.

    Too few of their slow tests are of nodes that were fine in another one, save the node that is named itself.
    """
    observed = posterior.observed
    clear = _fine_nodes(observed, _told(observed))

    def is_sure(finding: Finding) -> bool:
        own = finding.cause.nodes if finding.cause.kind in ("node", "gpu") else ()
        tests = posterior.tests_of(finding.cause)
        bad = tests[observed.bad[tests]]
        sure = [i for i in bad if clear.union(own).issuperset(observed.tests[i].nodes)]
        return len(sure) >= _ENOUGH[finding.cause.kind]

    return [finding for finding in findings if finding.named and not is_sure(finding)]


def _told(observed: Observed) -> Bools:
    """Tests like which others are slow or failed, or fine between nodes that such tests clear.

    Where all are alike, all may be slow.
    """
    likes = [(test.collective, len(test.nodes), test.like[-1]) for test in observed.tests]
    told = {likes[i] for i in np.flatnonzero(observed.bad)}
    mask = np.array([like in told for like in likes], dtype=bool)
    clear = _fine_nodes(observed, mask)
    fine = np.flatnonzero(observed.fine & ~observed.fast & ~mask)
    told |= {likes[i] for i in fine if clear.issuperset(observed.tests[i].nodes)}
    told -= {likes[i] for i in np.flatnonzero(observed.fast)}
    return np.array([like in told for like in likes], dtype=bool)


def _fine_nodes(observed: Observed, told: Bools) -> set[str]:
    return {node for i in np.flatnonzero(told & observed.fine) for node in observed.tests[i].nodes}


def _with_a_fine_node(posterior: Posterior, finding: Finding) -> NextTest | None:
    """A pair of a node that was fine with one of the slow tests that was not, without the GPUs that are blamed."""
    observed, tests = posterior.observed, posterior.tests_of(finding.cause)
    clear = _fine_nodes(observed, _told(observed))
    doubtful = [n for i in tests[observed.bad[tests]] for n in observed.tests[i].nodes if n not in clear]
    met = {frozenset(test.nodes) for test in observed.tests}
    pairs = [(node, fine) for node in dict.fromkeys(doubtful) for fine in sorted(clear)]
    pair = next((pair for pair in pairs if frozenset(pair) not in met), pairs[0] if pairs else None)
    gpus = {each for test in observed.tests for each in test.gpus if finding.cause.name not in each}
    return NextTest(pair, (min(gpus),) * 2 if gpus and finding.kind == "rail" else ()) if pair else None


def _joined(observed: Observed) -> dict[str, str]:
    """Of each node, the first of those that chains of fine tests join it with."""
    above = {node: node for test in observed.tests for node in test.nodes}

    def first(node: str) -> str:
        while above[node] != node:
            above[node] = node = above[above[node]]
        return node

    for test, is_fine in zip(observed.tests, observed.fine, strict=True):
        for node in test.nodes[1:] if is_fine else ():
            above[first(node)] = first(test.nodes[0])
    return {node: first(node) for node in above}


def _across(posterior: Posterior, link: Finding) -> NextTest:
    """A pair that was not tested, of nodes that fine tests join with one end of the link each."""
    sides, met = _joined(posterior.observed), {frozenset(test.nodes) for test in posterior.observed.tests}
    ends = [[node for node, side in sides.items() if side == sides[end]] for end in link.cause.nodes]
    return next(
        (NextTest(pair) for pair in product(*ends) if frozenset(pair) not in met), NextTest(link.cause.nodes[:2])
    )


def _concluded(posterior: Posterior, findings: tuple[Finding, ...], together: NextTest | None) -> Localization:
    observed = posterior.observed
    named = [finding for finding in findings if finding.named]
    open_effects = [effect for effect in posterior.effects if max(_shares(effect).values()) < NAMED]
    odd = np.flatnonzero(unsettled(posterior))
    compared = int((~observed.alone & ~observed.failed).sum())
    if open_effects or together:
        causes = [f"{_called(f.cause)} ({f.confidence:.2f})" for f in findings if not f.named]
        next_test: NextTest | None = together or most_telling(posterior, open_effects[0])
        doubt = Reason.of("localize-undecided", causes=some_of(causes), next_test=next_test)
    elif len(odd):
        next_test = repeated(observed.tests[odd[0]])
        doubt = Reason.of("localize-odd", odd=len(odd), tests=len(observed.tests), next_test=next_test)
    else:
        next_test, doubt = None, None
    if named:
        reasons = [_placed(finding) for finding in named[:4]]
        below_half = any(finding.slowdown > np.log(2) for finding in named)
        fault = Verdict.FAIL if below_half else Verdict.DEGRADED
        return Localization(fault, join([*reasons, *([doubt] if doubt else [])]), findings, next_test, posterior)
    if doubt:
        return Localization(Verdict.INCONCLUSIVE, doubt, findings, next_test, posterior)
    nodes = len({node for test in observed.tests for node in test.nodes})
    if compared < _LEAST:
        next_test = repeated(observed.tests[0]) if observed.tests else None
        few = Reason.of("localize-too-few", tests=compared, next_test=next_test or "any pair of nodes")
        return Localization(Verdict.INCONCLUSIVE, few, (), next_test, posterior)
    return Localization(Verdict.PASS, Reason.of("localize-none", tests=compared, nodes=nodes), (), None, posterior)


def unsettled(posterior: Posterior) -> Bools:
    """Tests slow, failed or too fast for no known cause, of which no repeat was fine.

    The limit allows for the number of tests: one fleet in twenty has such a test by noise alone.
    """
    observed = posterior.observed
    limit = max(3.0, -NormalDist().inv_cdf(0.05 / max(1, len(observed.tests))))
    odd, tests = posterior.unexplained(limit=limit), observed.tests
    nodes = {tests[i].nodes for i in np.flatnonzero(odd)}
    again = [i for i, test in enumerate(tests) if test.nodes in nodes and observed.fine[i]]
    fine = {(tests[i].like, tests[i].nodes, tests[i].gpus) for i in again}
    for i in np.flatnonzero(odd):
        odd[i] = (tests[i].like, tests[i].nodes, tests[i].gpus) not in fine
    odd |= observed.fast
    return odd


def _shares(effect: Effect) -> dict[tuple[CauseKind, str], float]:
    """Shares of an effect by the part that is blamed."""
    shares: dict[tuple[CauseKind, str], float] = {}
    for cause, share in zip(effect.causes, effect.shares, strict=True):
        shares[cause.key] = shares.get(cause.key, 0.0) + share
    return shares


def _supported(posterior: Posterior, effect: Effect) -> bool:
    """Whether enough tests that nothing else explains are slow or failed for it to be more than a stray."""
    odd = posterior.unexplained(without=effect)
    return effect.none < 1 - NAMED and any(_enough(posterior, cause, odd) for cause in effect.causes[:3])


def _enough(posterior: Posterior, cause: Cause, odd: Bools) -> bool:
    observed, tests = posterior.observed, posterior.tests_of(cause)
    hit = tests[odd[tests]]
    # Of so many tests two strays may be of one pair.
    more = 1 if cause.kind == "link" and len(observed.tests) >= _MANY_TESTS else 0
    return bool(observed.slow[hit].sum() + observed.failed[hit].sum() // 2 >= _ENOUGH[cause.kind] + more)


def _findings(posterior: Posterior, effect: Effect) -> list[Finding]:
    first: dict[tuple[CauseKind, str], Cause] = {}
    for cause in effect.causes:
        first.setdefault(cause.key, cause)
    shares = _shares(effect)
    shown = [key for key, share in shares.items() if share >= SHOWN]
    return [_finding(posterior, first[key], min(shares[key], 0.999)) for key in shown]


def _finding(posterior: Posterior, cause: Cause, confidence: float) -> Finding:
    observed, tests = posterior.observed, posterior.tests_of(cause)
    slow = tests[observed.slow[tests]]
    hit = tests[observed.bad[tests]]
    slowdown = -float(np.median(observed.value[slow])) if len(slow) > (len(hit) - len(slow)) else float("inf")
    without = np.setdiff1d(np.arange(len(observed.tests)), tests)
    sides = _sides(observed, cause)
    partners = {node for i in hit for node in observed.tests[i].nodes} - set(cause.nodes)
    values = {
        "name": printable(cause.name),
        "end": " at one end" if cause.at_one_end else "",
        "slow": len(hit),
        "tests": len(tests),
        "percent": round(100 * exp(-slowdown)),
        "partners": len(partners),
        "nodes": len(partners),
        "rest": len(without),
        "inside": len(without),
        "fine": int(observed.fine[without].sum()),
        "side": some_of(map(printable, sides[0]), _NODES_SHOWN),
        "other": some_of(map(printable, sides[1]), _NODES_SHOWN),
    }
    dead = cause.kind == "node" and slowdown == float("inf")
    reason = Reason.of("localize-node-fails" if dead else f"localize-{cause.kind}", **values)
    return Finding(cause, _FINDINGS[cause.kind], confidence, reason, sides, _rows(observed, hit, tests), slowdown)


def _rows(observed: Observed, hit: Ints, tests: Ints) -> tuple[Evidence, ...]:
    """The slowest tests of a cause, and last the fastest of them, which speaks against it."""
    against = tests[observed.fine[tests]]
    fastest = [int(against[np.argmax(observed.value[against])])] if len(against) else []
    slowest = hit[np.argsort(observed.value[hit], kind="stable")].tolist()
    rows = []
    for i in (*slowest[: _ROWS - len(fastest)], *fastest):
        test = observed.tests[i]
        rows.append(Evidence(test.name, test.nodes, None if test.failed else round(exp(observed.value[i]), 3)))
    return tuple(rows)


def _sides(observed: Observed, cause: Cause) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The part that is blamed and the rest: nodes, or the addresses of GPUs."""
    if cause.kind in ("rail", "gpu"):
        node, _, address = cause.name.rpartition("/")
        seen = {
            gpu for test in observed.tests for name, gpus in zip(test.nodes, test.gpus, strict=False)
            if node in ("", name) for gpu in gpus
        }  # fmt: skip
        prefix = f"{node}/" if node else ""
        return (cause.name,), tuple(prefix + gpu for gpu in sorted(seen - {address}))
    if cause.kind == "link":
        return (cause.nodes[0],), (cause.nodes[1],)
    if cause.kind == "placement":
        return (), ()
    everywhere = {node for test in observed.tests for node in test.nodes}
    return cause.nodes, tuple(sorted(everywhere - set(cause.nodes)))


def _called(cause: Cause) -> str:
    """A cause by kind and name: "node n07"; of a cut and of several nodes by their number."""
    several = len(cause.nodes) > 1 and cause.kind in ("cut", "node")
    name = some_of(map(printable, cause.nodes), 3) if several else printable(cause.name)
    return f"{cause.kind} {name}" if cause.kind != "cut" else f"a cut around {name}"


def _placed(finding: Finding) -> str:
    if finding.cause.kind in ("cut", "placement"):
        return finding.reason
    return Reason(f"{_called(finding.cause)}: {finding.reason}", code_of(finding.reason))
