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
    external = sorted(
        (b for b in baselines if b.source in _PREFERENCE), key=lambda b: _PREFERENCE.index(b.source)
    )
    if external:  # of equally harsh ones the first counts
        chosen = external[:1] if external[0].source == "pinned" else external
        return max((_against(m, b) for b in chosen), key=lambda j: _MILDEST_FIRST.index(j.verdict))
    by_links = [_against(m, b) for b in baselines if b.source == "physics" and b.low is not None]
    if below := [judgement for judgement in by_links if not judgement.passed]:
        return below[0]
    tried = "finite, positive" if m.above_zero else "finite"
    return _sanity(m, Verdict.PASS, Reason.of("no-baseline", number=measured(m), tested=tried))


def from_pin(measurement: Measurement, pin: "Pin") -> Baseline | None:
    """Return the baseline of `pin`; None where it leaves the bad side open or speaks of another
    unit.
    """
    bound = pin.high if measurement.better == "lower" else pin.low
    if bound is None or pin.unit != measurement.unit:
        return None
    floor = bound * FAIL_FACTOR if measurement.better == "lower" else bound / FAIL_FACTOR
    detail = (
        f"the {quantity(pin.centre, pin.unit)} that {pin.pinned_by} pinned on "
        f"{pin.pinned_at:%Y-%m-%d}"
    )
    return Baseline("pinned", pin.centre, pin.low, pin.high, floor, 1, detail)


def _fails_sanity(m: Measurement) -> Judgement | None:
    """Return a judgement of a number that no cluster yields; None for any other."""
    if not m.finite:
        return _sanity(m, Verdict.INCONCLUSIVE, Reason.of("not-finite", number=measured(m)))
    if not m.above_zero or m.value > 0:
        return None
    if m.value < 0 or m.better == "lower":
        kind = "time" if m.unit in TIMES else "rate"
        return _sanity(
            m, Verdict.INCONCLUSIVE, Reason.of("not-positive", number=measured(m), quantity=kind)
        )
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
    return Judgement(m, verdict, reason, "sanity")


def _against(m: Measurement, baseline: Baseline) -> Judgement:
    if _beyond(m, baseline.floor):
        verdict = Verdict.FAIL
    else:
        verdict = Verdict.DEGRADED if _beyond(m, _bound(m, baseline)) else Verdict.PASS
    code = "within-interval" if verdict is Verdict.PASS else f"worse-than-{baseline.source}"
    reason = Reason.of(
        code, comparison=_compared(m, baseline), expectation=_expectation(m, baseline, verdict)
    )
    return _judgement(m, verdict, reason, baseline)


def _bound(m: Measurement, baseline: Baseline) -> float | None:
    return baseline.high if m.better == "lower" else baseline.low


def _beyond(m: Measurement, limit: float | None) -> bool:
    if limit is None:
        return False
    return m.value > limit if m.better == "lower" else m.value < limit


def _judgement(m: Measurement, verdict: Verdict, reason: Reason, baseline: Baseline) -> Judgement:
    expected = Expected(baseline.low, baseline.high)
    return Judgement(m, verdict, reason, baseline.source, expected, _deviation(m, baseline))


def _deviation(m: Measurement, baseline: Baseline) -> float | None:
    return m.value / baseline.centre - 1 if baseline.centre else None


def _compared(m: Measurement, baseline: Baseline) -> str:
    deviation = _deviation(m, baseline) or 0.0
    percent = round(abs(deviation) * 100)
    where = f"{percent} % {'below' if deviation < 0 else 'above'}" if percent else "at"
    return f"{measured(m)} is {where} {baseline.detail}"


def _expectation(m: Measurement, baseline: Baseline, verdict: Verdict) -> str:
    bound, floor = _bound(m, baseline), baseline.floor
    words = "at most" if m.better == "lower" else "at least"
    expected = (
        f"expected {words} {quantity(bound, m.unit)}"
        if bound is not None
        else "no bound on that side"
    )
    return (
        f"{expected}; {words} {quantity(floor, m.unit)} or it fails"
        if verdict is Verdict.FAIL and floor is not None
        else expected
    )
