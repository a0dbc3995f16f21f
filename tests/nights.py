"""Nights of one cluster, for tests of what is told of them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check, RunResult, Suspect
from seatrial.model.verdict import Verdict
from tests import sample_sweeps, samples

_PLATEAU = sample_sweeps.judge(
    Measurement(
        "busbw_plateau", 386.0, "GB/s", Subject("cluster", "h100-east"), {"operation": "all_reduce"}
    ),
    387.0,
    0.06,
    "catalog",
)
CURE = Check(
    "collectives",
    Verdict.PASS,
    uncoded("all_reduce: plateau 386 GB/s"),
    240.0,
    judgements=(_PLATEAU,),
)


def bad(number: int, **changes: object) -> RunResult:
    """A night on which node-5 is slow."""
    return _at(number, samples.faulty_h100(), **changes)


def good(number: int, **changes: object) -> RunResult:
    run = samples.faulty_h100()
    passed = {
        "verdict": Verdict.PASS,
        "reason": uncoded("collectives: all pass"),
        "checks": [CURE],
        "suspects": (),
    }
    return _at(number, run, **{**passed, **changes})


def unmeasured(number: int, verdict: Verdict = Verdict.INCONCLUSIVE) -> RunResult:
    check = Check("launch", verdict, uncoded("no node came up in 600 s; see logs/run.log"))
    return _at(
        number,
        samples.faulty_h100(),
        verdict=verdict,
        reason=check.reason,
        checks=[check],
        suspects=(),
    )


def suspected(*names: str) -> tuple[Suspect, ...]:
    return tuple(Suspect("node", name, 0.9, uncoded(f"{name} is slow")) for name in names)


def _at(number: int, run: RunResult, **changes: object) -> RunResult:
    span = timedelta(days=number)
    own: dict[str, Any] = {
        "run_id": f"run-{number}",
        "started": run.started + span,
        "finished": run.finished + span,
    }
    return replace(run, **{**own, **changes})
