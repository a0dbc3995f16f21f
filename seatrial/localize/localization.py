"""From the posterior to findings, suspects, a verdict, and the next test where the tests do not decide. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from statistics import median
from typing import Any

import numpy as np

from seatrial.localize.causes import ALWAYS, Cause
from seatrial.localize.confounded import behind_a_cut, explained_by_nodes, never_joined, pair_across, with_a_fine_node
from seatrial.localize.criticism import LEAST_SLOW, NAMED, contradicted, has_misfits, supported, unsettled
from seatrial.localize.findings import Finding, finding_of, findings_of, titled
from seatrial.localize.next_test import NextTest, dividing, most_telling, repeated
from seatrial.localize.observations import BANDS, Band, Comparison, GroupTest, Observed
from seatrial.localize.posterior import Posterior, infer
from seatrial.model.reason import Reason, join
from seatrial.model.result import Suspect
from seatrial.model.verdict import Verdict
from seatrial.text.printable import printable
from seatrial.text.words import some_of

_LEAST = 4  # comparable tests
_REASONS = 4
_SEVERITY = (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.DEGRADED, Verdict.FAIL)


@dataclass(frozen=True, slots=True)
class Localization:
    """What the tests show: the findings, the likeliest first, and the test that would decide between them."""

    verdict: Verdict
    reason: Reason
    findings: tuple[Finding, ...]
    next_test: NextTest | None
    posterior: Posterior

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        return tuple(suspect for finding in self.findings for suspect in finding.suspects)

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `seatrial localize --json` prints."""
        nothing = {"code": "localize-none", "kind": "none", "sides": []}
        return {
            "verdict": self.verdict.value,
            "code": self.reason.code,
            "reason": self.reason.sentence,
            "suspects": [suspect.to_dict() for suspect in self.suspects],
            "findings": [finding.to_dict() for finding in self.findings] or [nothing],
            "next_test": self.next_test.to_dict() if self.next_test else None,
        }


def tests_of(localization: Localization) -> list[dict[str, Any]]:
    """Return each test with its median busbw, and its large messages as a share of like tests."""
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
    comparison = Comparison(tests)
    observed = comparison.observed()
    found = _localized(observed, groups or {}, "large")
    for band in BANDS[1:]:
        of_band = comparison.observed(band)
        if (of_band.slow & ~observed.slow).sum() >= min(LEAST_SLOW.values()):
            found = _with_band(found, _localized(of_band, groups or {}, band))
    return found


def _with_band(found: Localization, of_band: Localization) -> Localization:
    """Add what other sizes name; if all was fine so far, what they cannot decide."""
    known = {node for finding in found.findings for node in finding.cause.nodes}
    fleetwide = any(not finding.cause.nodes or finding.kind == "cut" for finding in found.findings)
    named = [f for f in of_band.findings if f.named and known.isdisjoint(f.cause.nodes)]
    new = [f for f in named if not fleetwide and (f.cause.nodes or not known) and (f.kind != "cut" or not known)]
    if new:
        findings = tuple(sorted((*found.findings, *new), key=_rank))
        first = found.reason if any(finding.named for finding in found.findings) else None
        reason = join((first, *map(titled, new[:_REASONS])))
        verdict = max(_verdict(findings), found.verdict, key=_SEVERITY.index)
        return replace(found, verdict=verdict, reason=reason, findings=findings)
    if found.verdict is Verdict.PASS and of_band.findings:
        return of_band
    return found


def _localized(observed: Observed, groups: Mapping[str, frozenset[str]], band: Band) -> Localization:
    posterior = infer(observed, groups)
    posterior = replace(posterior, effects=tuple(e for e in posterior.effects if supported(posterior, e)))
    posterior = replace(posterior, effects=tuple(e for e in posterior.effects if not contradicted(posterior, e)))
    findings = [finding for effect in posterior.effects for finding in findings_of(posterior, effect, band)]
    together = None
    if apart := never_joined(posterior, findings):  # fine with each other behind a slow switch, or each of them slow
        findings = [f for f in findings if set(f.cause.nodes).isdisjoint(apart) or f.cause.kind not in ("cut", "node")]
        cut = Cause("cut", "", tuple(sorted(apart)))
        nodes = (c.cause for c in posterior.columns if c.cause.kind == "node" and c.cause.name in apart)
        always = {cause.name: cause for cause in (cut, *nodes) if cause.penetrance == ALWAYS}
        findings += [finding_of(posterior, cause, 0.5, band) for cause in always.values()]
        together = NextTest(tuple(sorted(apart)[:2]))
    if behind := behind_a_cut(posterior, findings):
        findings = _doubted(findings, behind)
        together = together or pair_across(posterior, behind[0])
    if or_nodes := explained_by_nodes(posterior, findings):
        findings = _doubted(findings, or_nodes)
        together = together or with_a_fine_node(posterior, or_nodes[0])
    best = max(findings, key=lambda finding: finding.confidence, default=None)
    settled = posterior.settled(NAMED)
    misfit = [f for f in findings if f.named and has_misfits(settled, f.slowdown, f.cause)]
    findings = sorted(_doubted(findings, misfit), key=_rank)
    if best in misfit or (not findings and has_misfits(settled)):
        return _concluded(posterior, tuple(findings), together, best.title if best else "none")
    return _concluded(posterior, tuple(findings), together)


def _doubted(findings: Sequence[Finding], some: Sequence[Finding]) -> list[Finding]:
    """Return all findings, `some` of them with a confidence of at most a half."""
    return [replace(f, confidence=min(f.confidence, 0.5)) if f in some else f for f in findings]


def _concluded(
    posterior: Posterior, findings: tuple[Finding, ...], together: NextTest | None, misfit: str = ""
) -> Localization:
    observed = posterior.observed
    named = [finding for finding in findings if finding.named]
    open_effects = [effect for effect in posterior.effects if max(effect.parts.values()) < NAMED]
    odd = np.flatnonzero(unsettled(posterior.settled(NAMED) if misfit else posterior))
    next_test: NextTest | None
    compared = int((~observed.alone & ~observed.failed).sum())
    if misfit:
        next_test = repeated(observed.tests[odd[0]])
        bad = int(observed.bad.sum())
        doubt = Reason.of("localize-misfit", odd=len(odd), slow=bad, best=misfit, next_test=next_test)
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
        reason = join((*map(titled, named[:_REASONS]), doubt))
        return Localization(_verdict(named), reason, findings, next_test, posterior)
    if doubt:
        return Localization(Verdict.INCONCLUSIVE, doubt, findings, next_test, posterior)
    nodes = len(observed.nodes)
    if compared < _LEAST:
        next_test = repeated(observed.tests[0]) if observed.tests else None
        few = Reason.of("localize-too-few", tests=compared, next_test=next_test or "any pair of nodes")
        return Localization(Verdict.INCONCLUSIVE, few, (), next_test, posterior)
    return Localization(Verdict.PASS, Reason.of("localize-none", tests=compared, nodes=nodes), (), None, posterior)


def _rank(finding: Finding) -> tuple[bool, float, float]:
    """Return a sort key: what is named first, the worst before the surest; then what may be, the likeliest first."""
    return (not finding.named, -finding.slowdown if finding.named else -finding.confidence, -finding.confidence)


def _verdict(findings: Sequence[Finding]) -> Verdict:
    below_half = any(finding.named and finding.slowdown > np.log(2) for finding in findings)
    return Verdict.FAIL if below_half else Verdict.DEGRADED
