"""Compare a measurement with its baselines.

Pure: a measurement and baselines in, a judgement with its reason out.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seatrial.model.baseline import FAIL_FACTOR, Baseline
from seatrial.model.measurement import TIMES, Measurement
from seatrial.model.reason import Reason
from seatrial.model.result import Expected, Judgement
from seatrial.model.verdict import Verdict
from seatrial.text.words import measured, quantity

if TYPE_CHECKING:
    from seatrial.history.rows import Pin

# Best first: a person's word, then what others published, then a model of that.
_PREFERENCE = ("pinned", "catalog", "model")
_MILDEST_FIRST = (Verdict.PASS, Verdict.DEGRADED, Verdict.FAIL)


def judge_number(m: Measurement, baselines: Sequence[Baseline]) -> Judgement | None:
    """Judge one number by what is known without earlier runs and peers; None where nothing is to be
    judged.

    A number without a better direction is only recorded, and so is the busbw of one rank, which is
    0 by definition. Sanity and physics come first, then a pin, then the harsher of catalog and
    model. Without any of them the number passes by sanity only, and the reason says so, unless it
    is a small fraction of what the links carry.
    """
    if m.better is None or (m.metric.startswith("busbw") and m.conditions.get("ranks") == 1):
        return None
    if broken := _fails_sanity(m) or _impossible(m, baselines):
        return broken
    external = [_against(m, b) for source in _PREFERENCE for b in baselines if b.source == source]
    if external:
        if external[0].source == "pinned":
            return external[0]
        # Of equally harsh ones the first counts
        return max(external, key=lambda judgement: _MILDEST_FIRST.index(judgement.verdict))
    for baseline in baselines:
        if baseline.source == "physics" and baseline.low is not None:
            by_links = _against(m, baseline)
            if not by_links.passed:
                return by_links
    tried = "finite, positive" if m.above_zero else "finite"
    return _sanity(m, Verdict.PASS, Reason.of("no-baseline", number=measured(m), tested=tried))


def from_pin(measurement: Measurement, pin: "Pin") -> Baseline | None:
    """Return the baseline of `pin`; None where it leaves the bad side open or speaks of another
    unit.
    """
    is_lower_better = measurement.better == "lower"
    bound = pin.high if is_lower_better else pin.low
    if bound is None or pin.unit != measurement.unit:
        return None
    floor = bound * FAIL_FACTOR if is_lower_better else bound / FAIL_FACTOR
    centre = quantity(pin.centre, pin.unit)
    return Baseline(
        source="pinned",
        centre=pin.centre,
        low=pin.low,
        high=pin.high,
        floor=floor,
        samples=1,
        detail=f"the {centre} that {pin.pinned_by} pinned on {pin.pinned_at:%Y-%m-%d}",
    )


def _fails_sanity(m: Measurement) -> Judgement | None:
    """Return a judgement of a number that no cluster yields; None for any other."""
    if not m.finite:
        return _sanity(m, Verdict.INCONCLUSIVE, Reason.of("not-finite", number=measured(m)))
    if not m.above_zero or m.value > 0:
        return None
    if m.value < 0 or m.better == "lower":
        kind = "time" if m.unit in TIMES else "rate"
        reason = Reason.of("not-positive", number=measured(m), quantity=kind)
        return _sanity(m, Verdict.INCONCLUSIVE, reason)
    size = m.conditions.get("message_bytes")
    # nccl-tests prints two decimals, so a healthy 8 bytes in 20 us reads 0.00 GB/s.
    if m.metric == "busbw" and isinstance(size, int) and size <= 4096:
        return _sanity(m, Verdict.PASS, Reason.of("rounded-to-zero", number=measured(m)))
    return _sanity(m, Verdict.FAIL, Reason.of("zero-rate", number=measured(m)))


def _impossible(m: Measurement, baselines: Sequence[Baseline]) -> Judgement | None:
    """Return a judgement of a value above what the links allow: it was not measured over those
    links.
    """
    for limit in baselines:
        if limit.source == "physics" and limit.high is not None and m.value > limit.high:
            reason = Reason.of("above-physics", comparison=_compared(m, limit))
            return _judgement(m, Verdict.INCONCLUSIVE, reason, limit)
    return None


def _sanity(m: Measurement, verdict: Verdict, reason: Reason) -> Judgement:
    """Return a judgement by the number itself."""
    return Judgement(m, verdict, reason, "sanity")


def _against(m: Measurement, baseline: Baseline) -> Judgement:
    """Judge a number by a baseline."""
    verdict = Verdict.PASS
    if _beyond(m, baseline.floor):
        verdict = Verdict.FAIL
    elif _beyond(m, _bound(m, baseline)):
        verdict = Verdict.DEGRADED
    code = f"worse-than-{baseline.source}"
    if verdict is Verdict.PASS:
        code = "within-interval"
    reason = Reason.of(
        code,
        comparison=_compared(m, baseline),
        expectation=_expectation(m, baseline, verdict),
    )
    return _judgement(m, verdict, reason, baseline)


def _bound(m: Measurement, baseline: Baseline) -> float | None:
    """Return the end of the baseline's interval on the bad side."""
    return baseline.high if m.better == "lower" else baseline.low


def _beyond(m: Measurement, limit: float | None) -> bool:
    """Return whether a number is worse than a limit, if there is one."""
    if limit is None:
        return False
    if m.better == "lower":
        return m.value > limit
    return m.value < limit


def _judgement(m: Measurement, verdict: Verdict, reason: Reason, baseline: Baseline) -> Judgement:
    """Return a judgement by a baseline."""
    return Judgement(
        measurement=m,
        verdict=verdict,
        reason=reason,
        source=baseline.source,
        expected=Expected(baseline.low, baseline.high),
        deviation=_deviation(m, baseline),
    )


def _deviation(m: Measurement, baseline: Baseline) -> float | None:
    """Return by which share a number differs from the centre of a baseline; None for one at 0."""
    return m.value / baseline.centre - 1 if baseline.centre else None


def _compared(m: Measurement, baseline: Baseline) -> str:
    """Say where a number is beside a baseline."""
    deviation = _deviation(m, baseline) or 0.0
    percent = round(abs(deviation) * 100)
    where = "at"
    if percent:
        side = "below" if deviation < 0 else "above"
        where = f"{percent} % {side}"
    return f"{measured(m)} is {where} {baseline.detail}"


def _expectation(m: Measurement, baseline: Baseline, verdict: Verdict) -> str:
    """Say what a baseline expects; for a number that fails, what it must reach."""
    bound = _bound(m, baseline)
    words = "at most" if m.better == "lower" else "at least"
    expected = "no bound on that side"
    if bound is not None:
        expected = f"expected {words} {quantity(bound, m.unit)}"
    if verdict is Verdict.FAIL and baseline.floor is not None:
        expected += f"; {words} {quantity(baseline.floor, m.unit)} or it fails"
    return expected
