"""What holds for the judge whatever the numbers: on few runs, on many, and by peers; and what its
code may not do.
"""

import ast
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from tests.sources import imported, modules, nodes
from tests.stored_nights import knowing, settled

NODES = 9
NIGHTS = (0, 4, 12)  # peers alone, few runs, many
SETUP = Setup("cpu", NODES, 0, 1)
BETTER: dict[str, Literal["higher", "lower"]] = {"matmul": "higher", "step_time": "lower"}
_BADNESS = (Verdict.PASS, Verdict.DEGRADED, Verdict.FAIL)

seeds = st.integers(0, 1000)
nights = st.sampled_from(NIGHTS)


def devices(rng: np.random.Generator, factor: float = 1.0) -> Check:
    """A rate and a time of each node, and a plateau of the whole cluster; all noise 3 %, one node
    30 % off.
    """
    measured = []
    for node in range(NODES):
        subject, off = Subject("node", f"node-{node}"), 0.7 if node == 3 else 1.0
        for metric, better in BETTER.items():
            value = np.exp(0.03 * rng.standard_normal()) * (off if better == "higher" else 1 / off)
            measured.append(Measurement(metric, factor * value, "x", subject, better=better))
    plateau = factor * np.exp(0.03 * rng.standard_normal())
    measured.append(
        Measurement(
            "busbw_plateau", plateau, "x", Subject("cluster", "lab"), {"operation": "all_reduce"}
        )
    )
    return Check("devices", Verdict.PASS, Reason(), 0.0, tuple(measured))


def judged(tonight: Sequence[Measurement], past: Sequence[Check]) -> dict[str, Verdict]:
    """By series; all repeats read as the first time."""
    check = settled(
        Check("devices", Verdict.PASS, Reason(), 0.0, tuple(tonight)), knowing(SETUP, past)
    )
    return {
        j.measurement.series(): j.verdict
        for j in check.judgements
        if j.measurement.subject.kind != "group"
    }


@settings(max_examples=12)
@given(seeds, nights, st.integers(-10, 10))
def test_scaling_all_values_keeps_every_verdict(seed: int, count: int, power: int) -> None:
    """Multiplying all values by one factor is a shift on log scales."""
    plain, moved = (
        judged(devices(rng, factor).measurements, [devices(rng, factor) for _ in range(count)])
        for rng, factor in (
            (np.random.default_rng(seed), 1.0),
            (np.random.default_rng(seed), 2.0**power),
        )
    )
    assert moved == plain


@settings(max_examples=12)
@given(seeds, nights, st.permutations(range(2 * NODES + 1)))
def test_the_order_of_rows_does_not_matter(seed: int, count: int, order: list[int]) -> None:
    rng = np.random.default_rng(seed)
    tonight, past = devices(rng).measurements, [devices(rng) for _ in range(count)]
    turned = [
        replace(check, measurements=tuple(check.measurements[i] for i in order)) for check in past
    ]
    assert judged([tonight[i] for i in order], turned) == judged(tonight, past)


@settings(max_examples=25)
@given(seeds, nights, st.sampled_from([0, 1, 6, 7, 2 * NODES]), st.floats(0, 4))
def test_a_worse_value_is_never_judged_better(
    seed: int, count: int, place: int, worse: float
) -> None:
    rng = np.random.default_rng(seed)
    tonight, past = list(devices(rng).measurements), [devices(rng) for _ in range(count)]
    before = judged(tonight, past)
    m = tonight[place]
    tonight[place] = replace(m, value=m.value * np.exp(worse if m.better == "lower" else -worse))
    after = judged(tonight, past)
    assert _BADNESS.index(after[m.series()]) >= _BADNESS.index(before[m.series()])


_EFFECTS = {
    "os",
    "time",
    "random",
    "socket",
    "subprocess",
    "sqlalchemy",
    "requests",
    "httpx",
    "logging",
    "threading",
}


def test_no_module_calls_eval_exec_or_compile() -> None:
    called = {
        path: _plain_calls(path) & {"eval", "exec", "compile", "__import__"}
        for path in modules("seatrial")
    }
    assert len(called) > 100
    assert not {path for path, names in called.items() if names}


def _plain_calls(path: Path) -> set[str]:
    calls = (node.func for node in nodes(path) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def test_judge_and_detection_import_nothing_with_side_effects() -> None:
    """No clock, randomness, network or database: their data are arguments. (The catalogs read files
    of the package.)
    """
    judging = [*modules("seatrial/judge"), *modules("seatrial/detection")]
    effects = {path: imported(path) & _EFFECTS for path in judging}
    assert len(effects) > 10
    assert not {path for path, names in effects.items() if names}
