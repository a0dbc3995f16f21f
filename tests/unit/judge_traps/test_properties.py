"""What holds for whatever a log says."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.judge.number import judge_number as judge
from seatrial.logs.judge import judge_logs
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.verdict import Verdict
from tests.unit.judge_traps.sweeplogs import H100, HEALTHY, judged, log, log_text

_MILDEST_FIRST = [Verdict.PASS, Verdict.DEGRADED, Verdict.FAIL]


def shuffled(text: str, seed: int) -> str:
    lines = text.splitlines()
    rows = [line for line in lines if line[0].isdigit()]
    random.Random(seed).shuffle(rows)
    at = next(i for i, line in enumerate(lines) if line[0].isdigit())
    return "\n".join([*lines[:at], *rows, *lines[at + len(rows) :]])


curves = st.lists(st.floats(5.0, 480.0), min_size=5, max_size=5)


@settings(max_examples=30)
@given(curves, st.integers(0, 1000))
def test_the_order_of_rows_does_not_matter(busbw: list[float], seed: int) -> None:
    text = log_text(busbw)
    one, other = judged(text), judged(shuffled(text, seed))
    assert one.verdict is other.verdict
    assert {(j.measurement.series(), j.verdict) for c in one.checks for j in c.judgements} == {
        (j.measurement.series(), j.verdict) for c in other.checks for j in c.judgements
    }


@settings(max_examples=30)
@given(curves, st.floats(0.05, 1.0))
def test_slower_log_never_gets_a_better_verdict(busbw: list[float], factor: float) -> None:
    fast, slow = judged(log_text(busbw)), judged(log_text([value * factor for value in busbw]))
    assert _MILDEST_FIRST.index(slow.verdict) >= _MILDEST_FIRST.index(fast.verdict)


@settings(max_examples=30)
@given(st.permutations(["a", "b", "c"]), curves)
def test_the_order_of_logs_does_not_matter(order: list[str], busbw: list[float]) -> None:
    texts = {"a": log_text(HEALTHY), "b": log_text(busbw), "c": log_text(HEALTHY, wrong=1)}
    assert judge_logs([log(name, texts[name]) for name in order], H100).verdict is Verdict.CORRUPT


@given(
    st.floats(0.01, 1e4),
    st.floats(0.01, 1e4),
    st.floats(1e-3, 1e3),
    st.floats(0.3, 0.95),
    st.floats(0.1, 0.99),
)
def test_scaling_value_and_baseline_together_keeps_the_verdict(
    value: float, centre: float, factor: float, low: float, floor: float
) -> None:
    """A common factor is a shift on log scales and changes nothing, away from the limits."""

    def verdict(scale: float) -> Verdict:
        bounds = (centre * low * scale, None, centre * low * floor * scale)
        m = Measurement("busbw_plateau", value * scale, "GB/s", Subject("cluster", "lab"))
        judgement = judge(
            m, [Baseline("catalog", centre * scale, *bounds, 1, "what was published")]
        )
        assert judgement is not None
        return judgement.verdict

    if all(abs(value / bound - 1) > 1e-9 for bound in (centre * low, centre * low * floor)):
        assert verdict(factor) is verdict(1.0)
