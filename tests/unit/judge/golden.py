"""What the judge makes of fleets whose numbers follow a formula, kept in tests/golden/judge.json.

`python -m tests.unit.judge.golden` writes it anew; read what changed: a limit that moves is a verdict that may change.
"""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from seatrial.detection.noise import Floats, hodges_lehmann
from seatrial.detection.outliers import judge
from seatrial.detection.references import Past, ThisRun, learn
from seatrial.detection.together import UNKNOWN_DAY

GOLDEN = Path(__file__).parents[2] / "golden" / "judge.json"
_REFERENCE = ("expected", "doubts", "peers", "spread", "noise", "unsure", "together", "factor", "strays")
_OUTCOME = ("limit", "agreeing", "start", "loss", "confidence", "bad", "doubtful", "young")

Fault = Callable[[int, int], float]  # of a run, -1 for this one, and a series: the factor of its readings


def _normal(*shape: int, start: int = 0) -> Floats:
    """Numbers that are spread as normal ones are, the same on every machine."""
    places = (np.arange(start, start + int(np.prod(shape))) * 0.6180339887498949 + 0.37) % 1
    return np.array([NormalDist().inv_cdf(min(max(p, 1e-6), 1 - 1e-6)) for p in places]).reshape(shape)


def _healthy(run: int, series: int) -> float:
    return 1.0


def _case(
    groups: list[int],
    runs: int,
    fault: Fault = _healthy,
    *,
    readings: int = 3,
    noise: float = 0.01,
    shared: float = 0.0,
    from_run: Callable[[int], int] = lambda series: 0,
    good: Fault = _healthy,
) -> dict[str, Any]:
    """The reference and the outcome of a fleet with groups of so many peers, after so many runs."""
    group, size = np.repeat(np.arange(len(groups)), groups), sum(groups)
    scale = noise * (1 + group)
    own = 0.02 * _normal(size, start=7) + np.log(700) + group
    noisy = _normal(runs + 1, readings, size) * scale + shared * _normal(runs + 1, 1, 1, start=3)
    factors = np.array([[fault(run, i) for i in range(size)] for run in (*range(runs), -1)])
    rows = own + noisy + np.log(factors)[:, None]
    for i in range(size):
        rows[: min(from_run(i), runs), :, i] = np.nan
    past, now = rows[:-1], rows[-1]
    rest = past[:, 1:].mean(axis=1) if readings > 1 else np.full(past[:, 0].shape, np.nan)
    located = np.array([hodges_lehmann(run) for run in past]).reshape(runs, size)
    accepted = np.array([[bool(good(run, i)) for i in range(size)] for run in range(runs)], dtype=bool)
    accepted = accepted.reshape(runs, size)
    within = ((past - past.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    days = np.full(runs + 1, UNKNOWN_DAY)
    earlier = Past(past[:, 0], rest, located, within, np.isfinite(past).sum(axis=1), accepted, days)
    again = now[1] if readings > 1 else np.full(size, np.nan)
    reference = learn(earlier, ThisRun(now[0], again, group, np.full(size, 0.05), np.full(size, 0.3)))
    outcome = judge(reference, now)
    kept = {name: _rounded(_of_this_run(getattr(reference, name), name)) for name in _REFERENCE}
    kept |= {name: _rounded(getattr(outcome, name)) for name in _OUTCOME}
    kept["moved"] = _rounded([shift.moved for shift in outcome.shifts])
    kept["moved_limit"] = _rounded([shift.limit for shift in outcome.shifts])
    kept["shifts"] = [
        [shift.members.tolist(), shift.against, shift.agreeing, shift.readings, shift.bad, shift.doubtful]
        for shift in outcome.shifts
    ]
    return kept


def _of_this_run(values: Any, name: str) -> Any:
    """Of what there is for each start, that for this run."""
    return values[0] if name == "doubts" else values


def _rounded(values: Any) -> Any:
    """The values, or the one that all have."""
    rounded = [float(f"{value:.5g}") if np.isfinite(value) else None for value in np.asarray(values, dtype=float)]
    return rounded[0] if len(set(rounded)) == 1 else rounded


def _now(*slow: int, by: float) -> Fault:
    return lambda run, i: 1 - by if run < 0 and i in slow else 1.0


def cases() -> dict[str, Any]:
    """By name."""
    lately = 9  # of 12 runs: the last three, and this one, are slow
    return {
        "one of sixteen is slow": _case([16], 12, _now(5, by=0.3)),
        "a little slow": _case([16], 12, _now(5, by=0.035)),
        "few peers": _case([3], 10, _now(1, by=0.1)),
        "no past": _case([12], 0, _now(3, by=0.3)),
        "two young runs": _case([12], 2, _now(3, by=0.2), readings=1),
        "two lots": _case([12], 1, _now(0, 1, 2, 3, 4, by=0.25)),
        "all slow": _case([8, 4], 12, lambda run, i: 0.8 if run < 0 else 1.0),
        "all slow before as well": _case([8], 12, lambda run, i: 0.8 if run in (11, -1) else 1.0, readings=1),
        "half are new and slow": _case([16], 12, _now(*range(6, 16), by=0.08), from_run=lambda i: 12 * (i > 5)),
        "slow for some runs": _case(
            [16],
            12,
            lambda run, i: 0.95 if i == 4 and not 0 <= run < lately else 1.0,
            readings=1,
            good=lambda run, i: run < lately or i != 4,
        ),
        "readings that stray": _case(
            [16, 6], 20, lambda run, i: 0.8 if (run, i) == (-1, 3) else 0.6 if (run * 22 + i) % 37 == 0 else 1.0
        ),
        "runs that are noisy together": _case([16], 20, _now(5, by=0.1), shared=0.02),
        "rounded": _case([16], 6, _now(5, by=0.1), noise=0.0),
    }


def written() -> str:
    """One line for each array."""
    lines = [
        f" {json.dumps(name)}: {{\n"
        + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in case.items())
        + "}"
        for name, case in cases().items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    GOLDEN.write_text(written())
