"""From the posterior to findings, suspects, a verdict, and the next test where the tests do not
decide. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp
from statistics import median
from typing import Any

import numpy as np

from seatrial.localize.causes import CauseKind
from seatrial.localize.confounded import doubt_confounded, doubted
from seatrial.localize.criticism import (
    LEAST_SLOW,
    NAMED,
    contradicted,
    has_misfits,
    supported,
    unsettled,
)
from seatrial.localize.findings import Finding, findings_of, titled
from seatrial.localize.membership import with_variants
from seatrial.localize.next_test import NextTest, dividing, most_telling, of_member, repeated
from seatrial.localize.observations import BANDS, Band, Comparison, GroupTest, Observed, Switches
from seatrial.localize.posterior import Posterior, infer
from seatrial.model.reason import Reason, join
from seatrial.model.result import Suspect
from seatrial.model.verdict import Verdict
from seatrial.text.printable import printable
from seatrial.text.words import some_of

_LEAST = 4  # comparable tests
# Parts that are listed; the share of an effect that explains its tests
_REASONS, _EXPLAINS = 4, 0.5
Doubt = tuple[Reason | None, NextTest | None]  # and the test that would settle it
_SEVERITY = (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.DEGRADED, Verdict.FAIL)


@dataclass(frozen=True, slots=True)
class Localization:
    """What the tests show: the findings, the likeliest first, and the test that would decide
    between them.
    """

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
    values = zip(
        seen.tests,
        seen.value.tolist(),
        (seen.failed | seen.alone).tolist(),
        seen.bad.tolist(),
        strict=True,
    )
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


def localize(tests: Sequence[GroupTest], groups: Switches | None = None) -> Localization:
    """Say what slows tests, among nodes, GPUs, rails, links, cuts and placements.

    `groups` are nodes that share a switch, rack or block, by its name. The large messages are
    looked at first, then those of other sizes for faults that only these show.
    """
    comparison = Comparison(tests)
    observed = comparison.observed()
    large = _localized(observed, groups or {}, "large")
    for band in BANDS[1:]:
        of_band = comparison.observed(band)
        if (of_band.slow & ~observed.slow).sum() >= min(LEAST_SLOW.values()):
            large = _with_band(large, _localized(of_band, groups or {}, band))
    return large


def _with_band(first: Localization, of_band: Localization) -> Localization:
    """Add what other sizes name; if all was fine so far, what they cannot decide."""
    if new := _new_in(of_band, first):
        findings = tuple(sorted((*first.findings, *new), key=_rank))
        earlier = first.reason if any(finding.named for finding in first.findings) else None
        reason = join((earlier, *map(titled, new[:_REASONS])))
        verdict = max(_verdict(findings), first.verdict, key=_SEVERITY.index)
        return replace(first, verdict=verdict, reason=reason, findings=findings)
    return of_band if first.verdict is Verdict.PASS and of_band.findings else first


def _new_in(of_band: Localization, first: Localization) -> list[Finding]:
    """Return what a band names on other nodes than those found; nothing beside a cut or a cause on
    all nodes.
    """
    if any(not finding.cause.nodes or finding.kind == "cut" for finding in first.findings):
        return []
    known = {node for finding in first.findings for node in finding.cause.nodes}
    named = [
        finding
        for finding in of_band.findings
        if finding.named and known.isdisjoint(finding.cause.nodes)
    ]
    return [
        finding for finding in named if not known or (finding.cause.nodes and finding.kind != "cut")
    ]


@dataclass(frozen=True, slots=True)
class _Explanation:
    """Effects that tests support and none contradicts, their findings, and the keys of causes that
    are contradicted.

    `apart` is a test that tells causes apart, where one would.
    """

    posterior: Posterior
    findings: list[Finding]
    apart: NextTest | None
    contradicted: frozenset[tuple[CauseKind, str]]

    @classmethod
    def of(cls, posterior: Posterior, band: Band) -> "_Explanation":
        posterior = with_variants(posterior)
        posterior = replace(
            posterior, effects=tuple(e for e in posterior.effects if supported(posterior, e))
        )
        out = [effect for effect in posterior.effects if contradicted(posterior, effect)]
        keys = frozenset(cause.key for effect in out for cause in effect.causes)
        kept = tuple(effect for effect in posterior.effects if effect.causes[0].key not in keys)
        posterior = replace(posterior, effects=kept)
        findings = [finding for effect in kept for finding in findings_of(posterior, effect, band)]
        return cls(posterior, *doubt_confounded(posterior, findings, band), keys)

    @property
    def is_doubtful(self) -> bool:
        """Whether other causes may explain more: those that were sought are contradicted, too few,
        or an unsure cut.
        """
        unsure_cut = any(finding.kind == "cut" and not finding.named for finding in self.findings)
        return (
            bool(self.contradicted) or unsure_cut or has_misfits(self.posterior.settled(_EXPLAINS))
        )

    @property
    def is_whole(self) -> bool:
        named = bool(self.findings) and all(finding.named for finding in self.findings)
        return named and not self.contradicted and not has_misfits(self.posterior)


def _localized(observed: Observed, groups: Switches, band: Band) -> Localization:
    explanation = _Explanation.of(infer(observed, groups), band)
    if explanation.is_doubtful:
        other = _Explanation.of(
            infer(observed, groups, explanation.contradicted, with_single_nodes=True), band
        )
        explanation = other if other.is_whole else explanation
    posterior, findings, apart = explanation.posterior, explanation.findings, explanation.apart
    best = max(findings, key=lambda finding: finding.confidence, default=None)
    settled = posterior.settled(_EXPLAINS)
    misfit = [f for f in findings if f.named and has_misfits(settled, f.slowdown, f.cause)]
    findings = sorted(doubted(findings, misfit), key=_rank)
    if best in misfit or (not findings and has_misfits(settled)):
        return _concluded(posterior, findings, _misfit(settled, best.title if best else "none"))
    return _concluded(posterior, findings, _doubt(posterior, findings, apart))


def _misfit(settled: Posterior, best: str) -> Doubt:
    observed, odd = settled.observed, unsettled(settled)
    next_test, slow = repeated(observed.tests[int(np.argmax(odd))]), observed.bad
    left = int((odd & slow).sum())
    return Reason.of(
        "localize-misfit", odd=left, slow=int(slow.sum()), best=best, next_test=next_test
    ), next_test


def _doubt(posterior: Posterior, findings: Sequence[Finding], apart: NextTest | None) -> Doubt:
    """Return what is open, and the test that would decide; `apart` is one that tells causes
    apart.
    """
    observed = posterior.observed
    undecided = [effect for effect in posterior.effects if max(effect.parts.values()) < NAMED]
    unsure = [finding for finding in findings if not finding.named]
    next_test = apart
    if undecided:
        next_test = apart or most_telling(posterior, undecided[0])
    elif unsure:
        next_test = apart or of_member(posterior, unsure[0].cause, unsure[0].unsure)
    if next_test:
        causes = [f"{finding.title} ({finding.confidence:.2f})" for finding in unsure]
        code = "localize-undecided" if len(causes) > 1 else "localize-unsure"
        return Reason.of(code, causes=some_of(causes), next_test=next_test), next_test
    odd = np.flatnonzero(unsettled(posterior))
    if len(odd):
        next_test = repeated(observed.tests[odd[0]])
        return Reason.of(
            "localize-odd", odd=len(odd), tests=len(observed.tests), next_test=next_test
        ), next_test
    blamed = next(
        (finding.cause for finding in findings if finding.named and not finding.told_apart), None
    )
    if blamed and (next_test := dividing(posterior, blamed)):
        gpus = printable(" ".join(blamed.gpus))
        return Reason.of("localize-together", gpus=gpus, next_test=next_test), next_test
    return None, None


def _concluded(posterior: Posterior, findings: Sequence[Finding], doubt: Doubt) -> Localization:
    observed, (reason, next_test) = posterior.observed, doubt
    compared = int((~observed.alone & ~observed.failed).sum())
    if named := [finding for finding in findings if finding.named]:
        reason = join((*map(titled, named[:_REASONS]), reason))
        return Localization(_verdict(named), reason, tuple(findings), next_test, posterior)
    if reason:
        return Localization(Verdict.INCONCLUSIVE, reason, tuple(findings), next_test, posterior)
    if compared < _LEAST:
        next_test = repeated(observed.tests[0]) if observed.tests else None
        few = Reason.of(
            "localize-too-few", tests=compared, next_test=next_test or "any pair of nodes"
        )
        return Localization(Verdict.INCONCLUSIVE, few, (), next_test, posterior)
    none = Reason.of("localize-none", tests=compared, nodes=len(observed.nodes))
    return Localization(Verdict.PASS, none, (), None, posterior)


def _rank(finding: Finding) -> tuple[bool, float, float]:
    """Return a sort key: what is named first, the worst before the surest; then what may be, the
    likeliest first.
    """
    return (
        not finding.named,
        -finding.slowdown if finding.named else -finding.confidence,
        -finding.confidence,
    )


def _verdict(findings: Sequence[Finding]) -> Verdict:
    below_half = any(finding.named and finding.slowdown > np.log(2) for finding in findings)
    return Verdict.FAIL if below_half else Verdict.DEGRADED
