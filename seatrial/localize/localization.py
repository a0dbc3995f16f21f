"""Derive findings, suspects, a verdict and, if the tests do not decide, the next test from the
posterior. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from seatrial.localize.cause import Key
from seatrial.localize.confounded import doubt_confounded, doubted
from seatrial.localize.criticism import (
    LEAST_SLOW,
    NAMED,
    contradicted,
    has_misfits,
    supported,
    unsettled,
)
from seatrial.localize.findings import Finding, Findings, findings_of, named_of, titled
from seatrial.localize.group_tests import GroupTest, Switches
from seatrial.localize.membership import with_variants
from seatrial.localize.next_test import NextTest, dividing, most_telling, of_member, repeated
from seatrial.localize.observations import BANDS, Band, Comparison, Observed
from seatrial.localize.posterior import Posterior, infer
from seatrial.model.reason import Reason, join
from seatrial.model.result import Suspect
from seatrial.model.verdict import Verdict
from seatrial.text.printable import printable
from seatrial.text.words import some_of

_LEAST = 4  # least number of comparable tests
_REASONS = 4  # largest number of parts listed in a reason
_EXPLAINS = 0.5  # least confidence of an effect whose tests count as explained
Doubt = tuple[Reason | None, NextTest | None]  # what is in doubt, and the test that would decide
_SEVERITY = (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.DEGRADED, Verdict.FAIL)


@dataclass(frozen=True, slots=True)
class Localization:
    """The result of the tests: findings, the likeliest first, and the test that would decide
    between them.
    """

    verdict: Verdict
    reason: Reason
    findings: tuple[Finding, ...]
    next_test: NextTest | None
    posterior: Posterior

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """The suspects of all findings."""
        suspects = list[Suspect]()
        for finding in self.findings:
            suspects += finding.suspects
        return tuple(suspects)

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `seatrial localize --json` prints."""
        nothing = {"code": "localize-none", "kind": "none", "sides": []}
        next_test = None
        if self.next_test:
            next_test = self.next_test.to_dict()
        return {
            "verdict": self.verdict.value,
            "code": self.reason.code,
            "reason": self.reason.sentence,
            "suspects": [suspect.to_dict() for suspect in self.suspects],
            "findings": [finding.to_dict() for finding in self.findings] or [nothing],
            "next_test": next_test,
        }


def tests_of(localization: Localization) -> list[dict[str, Any]]:
    """Return a row for each test: median busbw, and busbw of large messages relative to
    like tests.
    """
    seen = localization.posterior.observed
    documents = []
    for i, test in enumerate(seen.tests):
        gpus: Sequence[str] = ()
        if test.gpus:
            gpus = test.gpus[0]
        busbw = None
        if not test.failed:
            busbw = median(test.busbw_gb_s.values())
        ratio = None
        if seen.compared[i]:
            ratio = round(float(seen.ratio[i]), 3)
        documents.append(
            {
                "name": printable(test.name),
                "collective": printable(test.collective),
                "nodes": list(map(printable, test.nodes)),
                "gpus": list(map(printable, gpus)),
                "busbw_gb_s": busbw,
                "ratio": ratio,
                "slow": bool(seen.bad[i]),
            }
        )
    return documents


def localize(tests: Sequence[GroupTest], groups: Switches | None = None) -> Localization:
    """Find what slows tests, among nodes, GPUs, rails, links, cuts and placements.

    `groups` are the nodes behind each switch, rack or block, by its name. Large messages are
    examined first, then other sizes for faults that only these show.
    """
    groups = groups or {}
    comparison = Comparison(tests)
    observed = comparison.observed()
    large = _localized(observed, groups, "large")
    for band in BANDS[1:]:
        of_band = comparison.observed(band)
        slow_here_alone = of_band.slow & ~observed.slow
        if slow_here_alone.sum() >= min(LEAST_SLOW.values()):
            large = _with_band(large, _localized(of_band, groups, band))
    return large


def _with_band(first: Localization, of_band: Localization) -> Localization:
    """Add the new findings of another band of message sizes; if `first` passed, return `of_band` if
    it has any finding.
    """
    new = _new_in(of_band, first)
    if not new:
        if first.verdict is Verdict.PASS and of_band.findings:
            return of_band
        return first
    findings = sorted((*first.findings, *new), key=_rank)
    earlier = None
    if named_of(first.findings):
        earlier = first.reason
    reasons = map(titled, new[:_REASONS])
    return replace(
        first,
        verdict=max(_verdict(findings), first.verdict, key=_SEVERITY.index),
        reason=join((earlier, *reasons)),
        findings=tuple(findings),
    )


def _new_in(of_band: Localization, first: Localization) -> list[Finding]:
    """Return the named findings of a band that are on nodes not blamed so far; none if a cut or a
    cause on all nodes is known.
    """
    known = set[str]()
    for finding in first.findings:
        if finding.kind == "cut" or not finding.cause.nodes:
            return []
        known.update(finding.cause.nodes)
    new = []
    for finding in named_of(of_band.findings):
        nodes = finding.cause.nodes
        if not known.isdisjoint(nodes):
            continue
        is_of_nodes = nodes and finding.kind != "cut"
        if is_of_nodes or not known:
            new.append(finding)
    return new


@dataclass(frozen=True, slots=True)
class _Explanation:
    """The supported and uncontradicted effects with their findings, and the keys of contradicted
    causes.

    `apart` is the test that would decide between causes, if there is one.
    """

    posterior: Posterior
    findings: list[Finding]
    apart: NextTest | None
    contradicted: frozenset[Key]

    @classmethod
    def of(cls, posterior: Posterior, band: Band) -> "_Explanation":
        """Leave out effects with too few slow tests, and those that tests contradict."""
        posterior = with_variants(posterior)
        backed = [effect for effect in posterior.effects if supported(posterior, effect)]
        posterior = replace(posterior, effects=tuple(backed))
        keys = set[Key]()
        for effect in backed:
            if contradicted(posterior, effect):
                keys.update(cause.key for cause in effect.causes)
        kept = [effect for effect in backed if effect.likeliest.key not in keys]
        posterior = replace(posterior, effects=tuple(kept))
        found = list[Finding]()
        for effect in kept:
            found += findings_of(posterior, effect, band)
        findings, apart = doubt_confounded(posterior, found, band)
        return cls(posterior, findings, apart, frozenset(keys))

    @property
    def is_doubtful(self) -> bool:
        """Whether other causes may explain more: an effect is contradicted, a cut is unsure, or
        slow tests remain unexplained.
        """
        if self.contradicted:
            return True
        if any(finding.kind == "cut" and not finding.named for finding in self.findings):
            return True
        return has_misfits(self.posterior.settled(_EXPLAINS))

    @property
    def is_whole(self) -> bool:
        """Whether the named findings explain all slow tests."""
        if not self.findings or self.contradicted:
            return False
        if len(named_of(self.findings)) < len(self.findings):
            return False
        return not has_misfits(self.posterior)


def _localized(observed: Observed, groups: Switches, band: Band) -> Localization:
    """Localize by the message sizes of one band."""
    explanation = _Explanation.of(infer(observed, groups), band)
    if explanation.is_doubtful:
        excluded = explanation.contradicted
        posterior = infer(observed, groups, excluded, with_single_nodes=True)
        other = _Explanation.of(posterior, band)
        if other.is_whole:
            explanation = other
    posterior = explanation.posterior
    findings = explanation.findings
    best = max(findings, key=lambda finding: finding.confidence, default=None)
    settled = posterior.settled(_EXPLAINS)
    misfit = [
        finding
        for finding in named_of(findings)
        if has_misfits(settled, finding.slowdown, finding.cause)
    ]
    findings = sorted(doubted(findings, misfit), key=_rank)
    if best is None and has_misfits(settled):
        doubt = _misfit(settled, "none")
    elif best and best in misfit:
        doubt = _misfit(settled, best.title)
    else:
        doubt = _doubt(posterior, findings, explanation.apart)
    return _concluded(posterior, findings, doubt)


def _misfit(settled: Posterior, best: str) -> Doubt:
    """Return the doubt that slow tests remain unexplained by the `best` explanation, with the first
    of them to repeat.
    """
    observed = settled.observed
    odd = unsettled(settled)
    first = int(np.argmax(odd))
    next_test = repeated(observed.tests[first])
    bad = np.flatnonzero(observed.bad)
    reason = Reason.of(
        "localize-misfit",
        odd=int(odd[bad].sum()),
        slow=len(bad),
        best=best,
        next_test=next_test,
    )
    return reason, next_test


def _doubt(posterior: Posterior, findings: Findings, apart: NextTest | None) -> Doubt:
    """Return what is undecided, and the test that would decide; `apart` if it is given."""
    undecided = [effect for effect in posterior.effects if effect.confidence < NAMED]
    unsure = [finding for finding in findings if not finding.named]
    next_test = apart
    if not apart and undecided:
        next_test = most_telling(posterior, undecided[0])
    elif not apart and unsure:
        next_test = of_member(posterior, unsure[0].cause, unsure[0].unsure)
    if next_test:
        causes = [f"{finding.title} ({finding.confidence:.2f})" for finding in unsure]
        code = "localize-unsure"
        if len(causes) > 1:
            code = "localize-undecided"
        reason = Reason.of(code, causes=some_of(causes), next_test=next_test)
        return reason, next_test
    tests = posterior.observed.tests
    odd = np.flatnonzero(unsettled(posterior))
    if len(odd):
        next_test = repeated(tests[odd[0]])
        reason = Reason.of("localize-odd", odd=len(odd), tests=len(tests), next_test=next_test)
        return reason, next_test
    together = [finding.cause for finding in named_of(findings) if not finding.told_apart]
    if together and (next_test := dividing(posterior, together[0])):
        gpus = printable(" ".join(together[0].gpus))
        reason = Reason.of("localize-together", gpus=gpus, next_test=next_test)
        return reason, next_test
    seen = posterior.observed
    if seen.faster:
        percent = round(100 * np.expm1(seen.lead.max()))
        return Reason.of("localize-faster", part=printable(seen.faster), percent=percent), None
    return None, None


def _concluded(posterior: Posterior, findings: Findings, doubt: Doubt) -> Localization:
    """Return the localization with its verdict, from the named findings, the doubt and the number
    of tests.
    """
    observed = posterior.observed
    compared = int(observed.compared.sum())
    reason, next_test = doubt
    verdict = Verdict.INCONCLUSIVE
    if named := named_of(findings):
        verdict = _verdict(named)
        reasons = map(titled, named[:_REASONS])
        reason = join((*reasons, reason))
    elif not reason and compared < _LEAST:
        if observed.tests:
            next_test = repeated(observed.tests[0])
        missing = next_test or "any pair of nodes"
        reason = Reason.of("localize-too-few", tests=compared, next_test=missing)
    elif not reason:
        verdict = Verdict.PASS
        reason = Reason.of("localize-none", tests=compared, nodes=len(observed.nodes))
    return Localization(
        verdict=verdict,
        reason=reason,
        findings=tuple(findings),
        next_test=next_test,
        posterior=posterior,
    )


def _rank(finding: Finding) -> tuple[bool, float, float]:
    """Return a sort key: named findings first, the slowest before the surest; then others, the
    likeliest first.
    """
    if finding.named:
        return False, -finding.slowdown, -finding.confidence
    return True, -finding.confidence, -finding.confidence


def _verdict(findings: Findings) -> Verdict:
    """Return the verdict of the named findings: fail if they leave less than half of the speed."""
    half = np.log(2)
    for finding in named_of(findings):
        if finding.slowdown > half:
            return Verdict.FAIL
    return Verdict.DEGRADED
