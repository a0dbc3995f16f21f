"""The history and the judging of a campaign over a large fleet, on generated readings of every
device and minute.

    python -m benchmarks.campaign [--nodes 1024] [--hours 72]

Prints the size of the history and the seconds to write, to read and to judge it. One GPU slows by
10 % from half time on, and one counts a memory error: both must be named.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from seatrial.campaign.drift import PhaseNumbers, drift_check
from seatrial.campaign.rises import hourly, minutes_check, series_of
from seatrial.history import open_store
from seatrial.history.campaigns import CampaignState, PhaseRun
from seatrial.history.minutes import MetricMinutes
from seatrial.history.store import Store
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict

GPUS = 8
PHASE_MINUTES = 30
# Of an H100 at work: the middle and the spread of each metric; counters do not spread.
GAUGES = {
    "power_w": (640.0, 12.0),
    "clock_mhz": (1755.0, 15.0),
    "temperature_c": (62.0, 1.5),
    "load": (40.0, 3.0),
}
COUNTERS = ("ecc_uncorrected", "errors", "flaps", "links_down", "losses", "slowdown")
LIMIT_BYTES, LIMIT_S = 2e9, 60.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--hours", type=int, default=72)
    options = parser.parse_args(arguments)
    parts = [f"node-{node}/gpu-{gpu}" for node in range(options.nodes) for gpu in range(GPUS)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "history.db")
        with open_store(f"sqlite:///{file}") as store:
            began = time.monotonic()
            state = _write(store, parts, options.hours)
            written_s, size = time.monotonic() - began, file.stat().st_size
            began, used = time.monotonic(), time.process_time()
            named = _judge(store, state, parts)
            judged_s, used_s = time.monotonic() - began, time.process_time() - used
    readings = len(parts) * options.hours * 60 * (len(GAUGES) + len(COUNTERS))
    print(f"{len(parts):,} GPUs, {options.hours} h: {readings / 1e6:,.0f} million readings")
    print(f"history {size / 1e9:.2f} GB, written in {written_s:.0f} s")
    print(f"judged in {judged_s:.0f} s ({used_s:.0f} s of processor): {', '.join(named)}")
    return 0 if size < LIMIT_BYTES and min(judged_s, used_s) < LIMIT_S and len(named) == 2 else 1


def _write(store: Store, parts: Sequence[str], hours: int) -> CampaignState:
    """Save a run for each phase, with its minutes."""
    started = datetime(2026, 11, 1, tzinfo=UTC)
    phases = []
    for nth in range(hours * 60 // PHASE_MINUTES):
        at = started + timedelta(minutes=nth * PHASE_MINUTES)
        run_id = f"phase-{nth:04}"
        store.save(RunResult(run_id, "fleet", "burn", at, at, Verdict.PASS, Reason()), Path("out"))
        store.keep_minutes(run_id, _minutes(nth, parts, is_late=nth * PHASE_MINUTES > hours * 30))
        seconds = PHASE_MINUTES * 60.0
        phases.append(PhaseRun("burn", run_id, nth * seconds, seconds, Verdict.PASS))
    return CampaignState(
        "c", "fleet", "soak", "", hours * 3600, started, started, phases=tuple(phases)
    )


def _minutes(nth: int, parts: Sequence[str], *, is_late: bool) -> Iterator[MetricMinutes]:
    random = np.random.default_rng(nth)
    times = [60.0 * (minute + 1) for minute in range(PHASE_MINUTES)]
    shape = (PHASE_MINUTES, len(parts))
    for metric, (middle, spread) in GAUGES.items():
        readings = random.normal(middle, spread, shape).astype(np.float32)
        if metric == "clock_mhz" and is_late:
            readings[:, 1] *= 0.9
        yield MetricMinutes(metric, parts, times, readings)
    for metric in COUNTERS:
        readings = np.zeros(shape, dtype=np.float32)
        if metric == "ecc_uncorrected" and is_late:
            readings[:, 2] = 1
        yield MetricMinutes(metric, parts, times, readings)


def _judge(store: Store, state: CampaignState, parts: Sequence[str]) -> list[str]:
    """The parts that are named: by what rose, and by the drift of clocks and of each phase's
    rate.
    """
    series = [series_of(state, store, metric, {}) for metric in (*GAUGES, *COUNTERS)]
    check, _ = minutes_check(series)
    by_hour = [*filter(None, map(hourly, series))]
    measured = [
        Measurement("matmul_stress", 0.0, "TFLOP/s", Subject("gpu", part)) for part in parts
    ]
    began_s = np.array([phase.began_s for phase in state.phases])
    rates = np.random.default_rng(1).normal(700, 7, (len(began_s), len(parts)))
    drift = drift_check(
        [PhaseNumbers("burn", began_s, measured, rates)], one_machine=False, minutes=by_hour
    )
    return sorted({suspect.name for each in (check, drift) for suspect in each.suspects})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
