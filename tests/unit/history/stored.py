"""Runs, numbers and pins as the tests of the history keep them."""

from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from seatrial.history import Pin, open_store
from seatrial.history.past import PastRuns, past_runs
from seatrial.history.store import Store
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check, RunResult, Suspect
from seatrial.model.verdict import Verdict

START = datetime(2026, 11, 2, 1, 30, tzinfo=UTC)
CLUSTER = Subject("cluster", "lab")
PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])  # imported once for all of them


def plateau(value: float, samples: tuple[float, ...] = ()) -> Measurement:
    conditions: dict[str, ConditionValue] = {
        "operation": "all_reduce",
        "dtype": "float32",
        "ranks": 4,
    }
    return Measurement("busbw_plateau", value, "GB/s", CLUSTER, conditions, samples)


def a_run(
    number: int, value: float = 0.5, verdict: Verdict = Verdict.PASS, **fields: Any
) -> RunResult:
    check = Check(
        "collectives", verdict, uncoded("because"), 1.0, (plateau(value, (value, value)),)
    )
    defaults: dict[str, Any] = {
        "run_id": f"run-{number:03}",
        "cluster": "lab",
        "suite": "quick",
        "started": START + timedelta(days=number),
        "finished": START + timedelta(days=number, minutes=1),
        "verdict": verdict,
        "reason": uncoded("because"),
        "checks": [check],
        "suspects": [Suspect("node", "node-2", 0.9, uncoded("slow"))],
        "fingerprint": {"nccl": "2.27"},
    }
    return RunResult(**{**defaults, **fields})


def a_pin(value: float = 0.5) -> Pin:
    return Pin(
        plateau(value).series(),
        value,
        0.4,
        None,
        "GB/s",
        "ann",
        START,
        "run-001",
        "after the upgrade",
    )


def past_of_lab(store: Store, *series: str) -> PastRuns:
    """What a later run of the same suite gets."""
    return past_runs(store, "lab", "quick", {"nccl": "2.27"}, series, START + timedelta(days=80))


def taught(store: Store, *series: str) -> dict[str, list[float]]:
    """The good medians of the series in `lab`, newest first."""
    past = past_of_lab(store, *series)
    values = {
        name: past.location[past.good[:, i], i][::-1].tolist() for i, name in enumerate(series)
    }
    return {name: medians for name, medians in values.items() if medians}


def wide(number: int, width: int = 300) -> RunResult:
    """A run with many series, among them some that no other run has."""
    names = [*(f"node-{n}" for n in range(width)), f"only-{number}"]
    measured = tuple(
        Measurement("matmul", 1.0 + number, "TFLOP/s", Subject("node", name)) for name in names
    )
    return a_run(number, checks=[Check("devices", Verdict.PASS, Reason(), 0.0, measured)])


def open_and_save(url: str, number: int) -> None:
    """What one of many processes does."""
    with open_store(url) as store:
        store.save(a_run(number % 6), Path())
