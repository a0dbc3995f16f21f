"""From the posterior to findings, suspects, a verdict, and the next test where the tests do not decide. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import exp
from statistics import NormalDist, median
from typing import Any, Literal

import numpy as np

from seatrial.localize.causes import ALWAYS, Cause, CauseKind
from seatrial.localize.cut import joined_by
from seatrial.localize.next_test import NextTest, are_told_apart, dividing, most_telling, repeated
from seatrial.localize.observations import BANDS, Band, Bools, GroupTest, Ints, Observed, observe
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
    "socket": 3, "leaf": 4,
}  # fmt: skip
_MORE_IF_SOMETIMES = 2  # tests, of a cause that slows only a share of its tests
_SUSPECTS: Mapping[CauseKind, SuspectKind] = {
    "node": "node", "gpu": "gpu", "rail": "rail", "link": "link", "switch": "switch", "leaf": "switch",
}  # fmt: skip
FindingKind = Literal["cut", "rail", "node", "link", "placement", "socket", "leaf", "none"]
_FINDINGS: Mapping[CauseKind, FindingKind] = {
    "cut": "cut", "switch": "cut", "placement": "placement", "rail": "rail", "gpu": "rail", "node": "node",
    "link": "link", "socket": "socket", "leaf": "leaf",
}  # fmt: skip
_STRAYS = 0.03  # the share of tests that are slow for a reason of their own, at the most
_OFTEN = 0.1  # the share of tests that are slow in an operation that a cause slows, at the least
_REASONS = 4
_WORDS: Mapping[Band, str] = {
    "largest": "in the largest messages alone", "middle": "in messages of middle size", "small": "in small messages",
}  # fmt: skip
_SEVERITY = (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.DEGRADED, Verdict.FAIL)
_MISFIT = 0.3  # of the slow tests, that no cause explains


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
    sides: tuple[tuple[str, ...], ...]
    rows: tuple[Evidence, ...]
    slowdown: float  # median log slowdown of its slow tests; infinite where they fail
    band: Band = "large"  # of message sizes, that shows it
    told_apart: bool = True  # whether tests tell its GPUs from each other
    unsure: tuple[str, ...] = ()  # nodes that belong to it, or not

    @property
    def named(self) -> bool:
        return self.confidence >= NAMED

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that surely belong to it."""
        return tuple(node for node in self.cause.nodes if node not in self.unsure)

    @property
    def title(self) -> str:
        called = _called(replace(self.cause, nodes=self.nodes))
        return called if self.told_apart else f"one or more of {called}"

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """None for cuts and placements: no part is to blame. GPUs of a socket are suspects by node."""
        confidence = round(self.confidence, 3)
        if self.cause.kind == "socket":
            gpus = printable(" ".join(self.cause.gpus))
            names = (f"{printable(node)}/{gpus}" for node in self.nodes)
            return tuple(Suspect("gpu", name, confidence, self.reason) for name in names)
        kind = _SUSPECTS.get(self.cause.kind)
        return (Suspect(kind, printable(self.cause.name), confidence, self.reason),) if kind else ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "code": code_of(self.reason),
            "kind": self.kind,
            "sides": [list(map(printable, side)) for side in self.sides],
            "confidence": round(self.confidence, 3),
            "nodes": list(map(printable, self.nodes)),
            "unsure": list(map(printable, self.unsure)),
            "gpus": list(map(printable, self.cause.gpus)),
            "told_apart": self.told_apart,
            "sizes": self.band,
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
        return tuple(suspect for finding in self.findings for suspect in finding.suspects)

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


def tests_of(localization: Localization) -> list[dict[str, Any]]:
    """Each test with its median busbw, and with that of the large messages as a share of what like tests reach."""
    seen = localization.posterior.observed
    values = zip(seen.tests, seen.value.tolist(), (seen.failed | seen.alone).tolist(), seen.bad.tolist(), strict=True)
    return [
        {
            "name": printable(test.name),
            "collective": printable(test.collective),
            "nodes": list(map(printable, test.nodes)),
            "gpus": list(map(printable, test.gpus[0])) if test.gpus else [],
            "busbw_gb_s": median(test.busbw_gb_s.values()) if test.busbw_gb_s else None,
            "ratio": None if unknown else round(exp(value), 3),
            "slow": slow,
        }
        for test, value, unknown, slow in values
    ]


def localize(tests: Sequence[GroupTest], groups: Mapping[str, frozenset[str]] | None = None) -> Localization:
    """Say what slows tests, among nodes, GPUs, rails, links, cuts and placements.

    `groups` are nodes that share a switch, rack or block, by its name. The large messages are looked at first, then
    those of other sizes for faults that only these show.
    """
    observed = observe(tests)
    found = _localized(observed, groups or {}, "large")
    for band in BANDS[1:]:
        of_band = observe(tests, band)
        if (of_band.slow & ~observed.slow).sum() >= min(_ENOUGH.values()):
            found = _with_band(found, _localized(of_band, groups or {}, band))
    return found


def _with_band(found: Localization, of_band: Localization) -> Localization:
    """What was found, with what other sizes name beside it; what they cannot decide, if all was fine so far."""
    known = {node for finding in found.findings for node in finding.cause.nodes}
    fleetwide = any(not finding.cause.nodes or finding.kind == "cut" for finding in found.findings)
    named = [f for f in of_band.findings if f.named and known.isdisjoint(f.cause.nodes)]
    new = [f for f in named if not fleetwide and (f.cause.nodes or not known) and (f.kind != "cut" or not known)]
    if new:
        findings = tuple(sorted((*found.findings, *new), key=_rank))
        reasons = [found.reason] if any(finding.named for finding in found.findings) else []
        reason = join([*reasons, *(_placed(finding) for finding in new[:_REASONS])])
        verdict = max(_verdict(findings), found.verdict, key=_SEVERITY.index)
        return replace(found, verdict=verdict, reason=reason, findings=findings)
    if found.verdict is Verdict.PASS and of_band.findings:
        return of_band
    return found


def _localized(observed: Observed, groups: Mapping[str, frozenset[str]], band: Band) -> Localization:
    posterior = infer(observed, groups)
    slowed = posterior.touched
    if slowed.any():  # the level of the others, if the slowed ones were taken for it
        again = observe(observed.tests, band, slowed)
        if (np.abs(again.value - observed.value) > observed.scale).any():
            posterior = infer(again, groups)
            observed = again
    proven = tuple(effect for effect in posterior.effects if _supported(posterior, effect))
    posterior = replace(posterior, effects=proven)
    findings: list[Finding] = []
    for finding in (finding for effect in proven for finding in _findings(posterior, effect, band)):
        if not any(finding.sides == known.sides and finding.kind == known.kind for known in findings):
            findings.append(finding)
    together = None
    apart = posterior.either or _never_together(posterior, findings)
    if apart:  # fine with each other behind a slow switch, or each of them slow
        findings = [f for f in findings if set(f.cause.nodes).isdisjoint(apart) or f.cause.kind not in ("cut", "node")]
        cut = Cause("cut", "", tuple(sorted(apart)))
        nodes = (c.cause for c in posterior.columns if c.cause.kind == "node" and c.cause.name in apart)
        always = {cause.name: cause for cause in (cut, *nodes) if cause.penetrance == ALWAYS}
        findings += [_finding(posterior, cause, 0.5, band) for cause in always.values()]
        together = NextTest(tuple(sorted(apart)[:2]))
    if behind := _behind_a_cut(posterior, findings):
        findings = [replace(f, confidence=min(f.confidence, 0.5)) if f in behind else f for f in findings]
        together = together or _across(posterior, behind[0])
    if or_nodes := _as_well_of_nodes(posterior, findings):
        findings = [replace(f, confidence=min(f.confidence, 0.5)) if f in or_nodes else f for f in findings]
        together = together or _with_a_fine_node(posterior, or_nodes[0])
    misfit = _misfits(posterior)
    if misfit:
        findings = [replace(f, confidence=min(f.confidence, 0.5)) for f in findings]
    findings.sort(key=_rank)
    return _concluded(posterior, tuple(findings), together, misfit)


def _misfits(posterior: Posterior) -> bool:
    """Whether more slow tests are left than strays could be, and not just a few of all that are slow.

    Then the right cause is none of the candidates, and the best of them is no more than that.
    """
    observed = posterior.observed
    left = int((unsettled(posterior) & observed.slow).sum())  # failures have reasons of their own
    usual = _STRAYS * int((~observed.alone).sum())
    if any(effect.causes[0].penetrance < ALWAYS for effect in posterior.effects if effect.causes[0].kind != "rail"):
        return left > usual + 1 and left > _MISFIT / 2 * int(observed.slow.sum())  # such causes fit many patterns
    return left > usual + 3 * usual**0.5 + 1 and left > _MISFIT * int(observed.slow.sum())


def _never_together(posterior: Posterior, findings: Sequence[Finding]) -> set[str]:
    """Two or more nodes that no test has together with another: nodes that are named, or of fine ones a cut's side."""
    everywhere = {node for test in posterior.observed.tests for node in test.nodes}
    named = _apart(posterior, {f.cause.nodes[0] for f in findings if f.cause.kind == "node" and f.named})
    if len(named) > 1:
        return named
    cuts = [set(f.cause.nodes) for f in findings if f.cause.kind == "cut" and f.named]
    smaller = [min(side, everywhere - side, key=len) for side in cuts]
    return next((side for side in smaller if _apart(posterior, side, fine=True) == side), set())


def _apart(posterior: Posterior, nodes: set[str], fine: bool = False) -> set[str]:
    """Those of the nodes that no test has together with another of them, or no `fine` one."""
    observed = posterior.observed
    met = [
        nodes.intersection(test.nodes)
        for test, is_fine in zip(observed.tests, observed.fine, strict=True)
        if is_fine or not fine
    ]
    return nodes - {node for some in met if len(some) > 1 for node in some}


def _behind_a_cut(posterior: Posterior, findings: Sequence[Finding]) -> list[Finding]:
    """The named links whose ends no chain of fine tests joins: a cut between the ends explains them as well."""
    links = [finding for finding in findings if finding.cause.kind == "link" and finding.named]
    sides = joined_by(posterior.observed.tests, posterior.observed.fine) if links else {}
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


def _across(posterior: Posterior, link: Finding) -> NextTest:
    """A pair that was not tested, of nodes that fine tests join with one end of the link each."""
    tests = posterior.observed.tests
    sides, met = joined_by(tests, posterior.observed.fine), {frozenset(test.nodes) for test in tests}
    ends = [[node for node, side in sides.items() if side == sides[end]] for end in link.cause.nodes]
    return next(
        (NextTest(pair) for pair in product(*ends) if frozenset(pair) not in met), NextTest(link.cause.nodes[:2])
    )


def _concluded(
    posterior: Posterior, findings: tuple[Finding, ...], together: NextTest | None, misfit: bool
) -> Localization:
    observed = posterior.observed
    named = [finding for finding in findings if finding.named]
    settled = {finding.cause for finding in named}
    open_effects = [effect for effect in posterior.effects if settled.isdisjoint(effect.causes)]
    odd = np.flatnonzero(unsettled(posterior))
    next_test: NextTest | None
    compared = int((~observed.alone & ~observed.failed).sum())
    if misfit:
        next_test = repeated(observed.tests[odd[0]])
        bad = int(observed.bad.sum())
        best = findings[0].title if findings else "none"
        doubt = Reason.of("localize-misfit", odd=len(odd), slow=bad, best=best, next_test=next_test)
    elif open_effects or together:
        causes = [f"{f.title} ({f.confidence:.2f})" for f in findings if not f.named]
        next_test = together or most_telling(posterior, open_effects[0])
        code = "localize-undecided" if len(causes) > 1 else "localize-unsure"
        doubt = Reason.of(code, causes=some_of(causes), next_test=next_test)
    elif len(odd):
        next_test = repeated(observed.tests[odd[0]])
        doubt = Reason.of("localize-odd", odd=len(odd), tests=len(observed.tests), next_test=next_test)
    else:
        next_test, doubt = None, None
    if not doubt:
        blamed = next((finding.cause for finding in named if not finding.told_apart), None)
        next_test = dividing(posterior, blamed) if blamed else None
        if blamed and next_test:
            gpus = printable(" ".join(blamed.gpus))
            doubt = Reason.of("localize-together", gpus=gpus, next_test=next_test)
    if named:
        reasons = [_placed(finding) for finding in named[:_REASONS]]
        return Localization(
            _verdict(named), join([*reasons, *([doubt] if doubt else [])]), findings, next_test, posterior
        )
    if doubt:
        return Localization(Verdict.INCONCLUSIVE, doubt, findings, next_test, posterior)
    nodes = len({node for test in observed.tests for node in test.nodes})
    if compared < _LEAST:
        next_test = repeated(observed.tests[0]) if observed.tests else None
        few = Reason.of("localize-too-few", tests=compared, next_test=next_test or "any pair of nodes")
        return Localization(Verdict.INCONCLUSIVE, few, (), next_test, posterior)
    return Localization(Verdict.PASS, Reason.of("localize-none", tests=compared, nodes=nodes), (), None, posterior)


def _rank(finding: Finding) -> tuple[bool, float, float]:
    """The key to sort by: what is named first, the worst before the surest; then what may be, the likeliest first."""
    return (not finding.named, -finding.slowdown if finding.named else -finding.confidence, -finding.confidence)


def _verdict(findings: Sequence[Finding]) -> Verdict:
    below_half = any(finding.named and finding.slowdown > np.log(2) for finding in findings)
    return Verdict.FAIL if below_half else Verdict.DEGRADED


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


def _supported(posterior: Posterior, effect: Effect) -> bool:
    """Whether enough tests that nothing else explains are slow or failed for it to be more than a stray."""
    odd = posterior.unexplained(without=effect)
    return effect.none < 1 - NAMED and any(_enough(posterior, cause, odd) for cause in effect.causes[:3])


def _enough(posterior: Posterior, cause: Cause, odd: Bools) -> bool:
    observed, tests = posterior.observed, posterior.tests_of(cause)
    hit = tests[odd[tests]]
    # Of so many tests two strays may be of one pair.
    more = 1 if cause.kind == "link" and len(observed.tests) >= _MANY_TESTS else 0
    if cause.penetrance < ALWAYS and cause.kind != "rail":
        more += _MORE_IF_SOMETIMES
    return bool(observed.slow[hit].sum() + observed.failed[hit].sum() // 2 >= _ENOUGH[cause.kind] + more)


def _findings(posterior: Posterior, effect: Effect, band: Band) -> list[Finding]:
    """The parts that an effect may be; of those that differ by a node, the likeliest with the nodes that are sure."""
    alike: dict[tuple[CauseKind, str], list[tuple[Cause, float]]] = defaultdict(list)
    for cause, share in zip(effect.causes, effect.shares, strict=True):
        alike[cause.key].append((cause, share))
    found = []
    for some in alike.values():
        total = sum(share for _, share in some)
        if total >= SHOWN:
            best = max(some, key=lambda each: each[1])[0]
            doubts = defaultdict[str, float](float)
            for cause, share in some:
                for node in {cause.moved} ^ {best.moved}:
                    doubts[node] += share / total
            doubts.pop("", None)
            found.append(_of_family(posterior, best, min(total, 0.999), doubts, band))
    return found


def _of_family(posterior: Posterior, cause: Cause, share: float, doubts: Mapping[str, float], band: Band) -> Finding:
    """A finding without the nodes that most likely are not of it, as many as leave the others named together."""
    claimed = set(cause.nodes) if cause.kind != "cut" else set(doubts)
    unsure = [node for node, doubt in doubts.items() if node not in claimed and doubt >= 1 - NAMED]
    sure = sorted(claimed.intersection(doubts), key=lambda node: doubts[node])
    while sum(doubts[node] for node in sure) > 1 - NAMED:
        unsure.append(sure.pop())
    finding = _finding(posterior, cause, share * (1 - sum(doubts[node] for node in sure)), band, tuple(sorted(unsure)))
    enough = all(finding.sides) and finding.nodes
    return finding if enough or not unsure else replace(finding, confidence=min(finding.confidence, 0.5))


def _finding(
    posterior: Posterior, cause: Cause, confidence: float, band: Band, unsure: tuple[str, ...] = ()
) -> Finding:
    observed, tests = posterior.observed, posterior.tests_of(cause)
    slow = tests[observed.slow[tests]]
    hit = tests[observed.bad[tests]]
    slowdown = -float(np.median(observed.value[slow])) if len(slow) > (len(hit) - len(slow)) else float("inf")
    without = np.setdiff1d(np.arange(len(observed.tests)), tests)
    sure = [node for node in cause.nodes if node not in unsure]
    whole = _sides(observed, cause)
    sides = tuple(tuple(name for name in side if name.partition("/")[0] not in unsure) for side in whole)
    partners = {node for i in hit for node in observed.tests[i].nodes} - set(cause.nodes)
    values = {
        "name": printable(cause.name),
        "gpus": printable(" ".join(cause.gpus)),
        "on": some_of(map(printable, sure), _NODES_SHOWN),
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
        "side": some_of(map(printable, sides[0]), _NODES_SHOWN),
        "other": some_of(map(printable, sides[1]), _NODES_SHOWN),
        "sides": " | ".join(some_of(map(printable, side), _NODES_SHOWN) for side in sides[:_NODES_SHOWN]),
        "more": _circumstances(observed, tests, band) + _not_sure(unsure),
    }
    told_apart = are_told_apart(posterior, cause)
    reason = Reason.of(_code(cause, told_apart, dead=slowdown == float("inf")), **values)
    rows = _rows(observed, hit, tests)
    return Finding(cause, _FINDINGS[cause.kind], confidence, reason, sides, rows, slowdown, band, told_apart, unsure)


def _not_sure(nodes: Sequence[str]) -> str:
    return f"; not sure of {some_of(map(printable, nodes), _NODES_SHOWN)}" if nodes else ""


def _code(cause: Cause, told_apart: bool, dead: bool) -> str:
    if not told_apart:
        return "localize-one-of"
    if cause.kind == "node" and dead:
        return "localize-node-fails"
    return "localize-groups" if cause.sides else f"localize-{cause.kind}"


def _circumstances(observed: Observed, tests: Ints, band: Band) -> str:
    """The sizes, the operations and the days on which the tests of a part are slow, where they differ."""
    clauses = [_WORDS[band]] if band != "large" else []
    by_operation: dict[str, list[int]] = defaultdict(list)
    for i in tests.tolist():
        by_operation[observed.tests[i].collective].append(i)
    if len(by_operation) > 1:
        clauses.append("by operation: " + ", ".join(_of_operation(observed, *each) for each in by_operation.items()))
    days = sorted({observed.tests[i].day for i in tests if observed.tests[i].day})
    slow_days = sorted({observed.tests[i].day for i in tests[observed.bad[tests]] if observed.tests[i].day})
    if slow_days and len(days) > 1:
        clauses.append(f"since {slow_days[0]}" if slow_days[0] > days[0] else f"since the first test, {days[0]}")
    return "".join(f"; {clause}" for clause in clauses)


def _of_operation(observed: Observed, name: str, where: Sequence[int]) -> str:
    places = np.array(where)
    bad = places[observed.bad[places]]
    often = len(bad) > _OFTEN * len(places)
    shown = bad if often else places
    known = shown[~observed.failed[shown] & ~observed.alone[shown]]
    ratio = f"at {100 * exp(float(np.median(observed.value[known]))):.0f} %" if len(known) else "failed"
    return (
        f"{printable(name)} {ratio} in {len(bad)} of {len(places)}"
        if often
        else f"{printable(name)} not slow ({ratio})"
    )


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


def _sides(observed: Observed, cause: Cause) -> tuple[tuple[str, ...], ...]:
    """The part that is blamed and the rest: nodes, or GPUs; of a cut, all groups of nodes."""
    if cause.sides:
        return cause.sides
    if cause.kind in ("rail", "gpu", "socket", "leaf"):
        return _sides_of_gpus(observed, cause)
    if cause.kind == "link":
        return (cause.nodes[0],), (cause.nodes[1],)
    if cause.kind == "placement":
        return (), ()
    everywhere = {node for test in observed.tests for node in test.nodes}
    return cause.nodes, tuple(sorted(everywhere - set(cause.nodes)))


def _sides_of_gpus(observed: Observed, cause: Cause) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The addresses that are blamed and the others, on nodes that are blamed with the name of the node before each."""
    seen: set[tuple[str, str]] = set()
    for test in observed.tests:
        for node, gpus in zip(test.nodes, test.gpus, strict=False):
            if node in cause.nodes or not cause.nodes:
                seen.update((node, gpu) for gpu in gpus)
    blamed = {(node, gpu) for node, gpu in seen if gpu in cause.gpus}

    def named(gpus: set[tuple[str, str]]) -> tuple[str, ...]:
        return tuple(sorted({f"{node}/{gpu}" if cause.nodes else gpu for node, gpu in gpus}))

    return named(blamed), named(seen - blamed)


def _called(cause: Cause) -> str:
    """A cause by kind and name: "node n07"; of a cut and of several nodes by their number."""
    if cause.sides:
        return f"a cut between {len(cause.sides)} groups"
    if cause.kind == "cut":
        return f"a cut around {some_of(map(printable, cause.nodes), 3)}"
    if cause.kind in ("leaf", "socket"):
        part = "GPU address" if len(cause.gpus) == 1 else "GPUs"
        return f"{part} {printable(' '.join(cause.gpus))} of {some_of(map(printable, cause.nodes), _NODES_SHOWN)}"
    several = len(cause.nodes) > 1 and cause.kind == "node"
    name = some_of(map(printable, cause.nodes), 3) if several else printable(cause.name)
    return f"{cause.kind} {name}"


def _placed(finding: Finding) -> str:
    if finding.cause.kind in ("cut", "placement"):
        return finding.reason
    return Reason(f"{finding.title}: {finding.reason}", code_of(finding.reason))
