"""Recorded nights of real nodes, judged one after the other as when they were measured, and with faults put in.

    python benchmarks/recorded_nights.py [--write]

benchmarks/data/eight_local_nodes.csv are 26 nights of eight local nodes, an hour and a half in all, on two cores that
other processes used as well, with a suite of connectivity and devices (0.1 s each). A fault divides all that one node
measures of one metric in one night. Of devices, doubtful numbers are measured again: the first measurement of that
night, times the ratio of two recorded repeats drawn at random. Of TCP no repeats were recorded.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from benchmarks.error_tables import Count, markdown, write
from seatrial.checks.repeated import Doubt
from seatrial.history import open_store
from seatrial.history.store import Store
from seatrial.judge.assess import assess
from seatrial.judge.run_context import RunContext, knowledge_of
from seatrial.model.measurement import Measurement, Subject, by_series
from seatrial.model.result import Check, RunResult
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict

RECORDED = Path(__file__).with_name("data") / "eight_local_nodes.csv"
NODES = tuple(f"node-{n}" for n in range(8))
# Judged where a suite asks for them, which the suite of the recorded nights did not.
NOT_RECORDED = {
    "devices": frozenset(
        {
            "matmul_best",
            "matmul_stress",
            "host_to_device",
            "device_to_host",
            "peer_copy",
            "disk_write",
            "disk_read",
        }
    )
}
SETUP = Setup("cpu", len(NODES), 0, 1)
START = datetime(2026, 11, 1, 1, tzinfo=UTC)
FIRST_JUDGED = 8  # the history has enough from then on
LOSSES = (0.3, 0.5, 0.7, 0.9)
MOST_REPEATS = 24

Night = dict[str, list[Measurement]]  # by check


def recorded() -> list[Night]:
    nights: dict[int, Night] = defaultdict(lambda: defaultdict(list))
    with RECORDED.open(newline="") as file:
        for row in csv.DictReader(file):
            m = Measurement(
                row["metric"], float(row["value"]), row["unit"], Subject("node", row["node"]), better="higher"
            )
            nights[int(row["night"])][row["check"]].append(m)
    return [nights[number] for number in sorted(nights)]


def with_fault(night: Night, node: str, metric: str, loss: float) -> Night:
    return {
        check: [
            replace(m, value=m.value * (1 - loss)) if (m.subject.name, m.metric) == (node, metric) else m
            for m in measured
        ]
        for check, measured in night.items()
    }


def repeat_ratios(nights: Sequence[Night]) -> dict[str, list[float]]:
    """By metric what a repeat came to, over the first measurement of the same night."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for night in nights:
        for taken in by_series(m for measured in night.values() for m in measured).values():
            ratios[taken[0].metric] += [again.value / taken[0].value for again in taken[1:]]
    return ratios


class Replay:
    """The history of the nights before, as the store has it."""

    def __init__(self, store: Store, ratios: Mapping[str, Sequence[float]]) -> None:
        self._store, self._ratios, self._number = store, ratios, 0
        self._rng = np.random.default_rng(20261123)

    def suspects(self, night: Night) -> set[str]:
        """Who is blamed, if this were the next night."""
        context = RunContext("recorded", "small", started=self._now, nodes=[{"name": name} for name in NODES])
        taken = {check: list(measured) for check, measured in night.items()}
        for _ in range(MOST_REPEATS):
            checks = [Check(name, Verdict.PASS, "measured", 1.0, tuple(measured)) for name, measured in taken.items()]
            judged = assess(checks, knowledge_of(checks, SETUP, self._store, context))
            again = {check: self._repeated(night[check], some) for check, some in judged.doubts.items()}
            if not any(again.values()):
                break
            for check, measured in again.items():
                taken[check] += measured
        return {suspect.name for check in judged.checks for suspect in check.suspects}

    def _repeated(self, measured: Sequence[Measurement], doubts: Sequence[Doubt]) -> list[Measurement]:
        first = {m.series(): m for m in reversed(measured)}
        doubted = [first[doubt.measurement.series()] for doubt in doubts if self._ratios.get(doubt.measurement.metric)]
        return [replace(m, value=m.value * float(self._rng.choice(self._ratios[m.metric]))) for m in doubted]

    def keep(self, night: Night) -> None:
        """It was the next night, and passed."""
        checks = [Check(name, Verdict.PASS, "measured", 1.0, tuple(measured)) for name, measured in night.items()]
        nodes = [{"name": name} for name in NODES]
        at, run_id = self._now, f"night-{self._number:03}"
        run = RunResult(run_id, "recorded", "small", at, at, Verdict.PASS, "", nodes, checks=checks, setup=SETUP)
        self._store.save(run, Path())
        self._number += 1

    @property
    def _now(self) -> datetime:
        return START + timedelta(days=self._number)


def alarms_and_detected(
    nights: Sequence[Night], losses: Sequence[float] = LOSSES
) -> tuple[Count, dict[tuple[str, float], Count]]:
    """Healthy nights with an alarm, and by metric and loss how many faults name their node, and it alone."""
    alarms, detected = Count(), defaultdict[tuple[str, float], Count](Count)
    with open_store("sqlite://") as store:
        replay = Replay(store, repeat_ratios(nights))
        for number, night in enumerate(nights):
            alarms.add(bool(replay.suspects(night)))
            for metric in sorted({m.metric for measured in night.values() for m in measured}):
                for loss in losses if number >= FIRST_JUDGED else ():
                    node = NODES[(number * 3) % len(NODES)]
                    detected[metric, loss].add(replay.suspects(with_fault(night, node, metric, loss)) == {node})
            replay.keep(night)
    return alarms, dict(detected)


def table(alarms: Count, detected: Mapping[tuple[str, float], Count]) -> str:
    metrics = sorted({metric for metric, _ in detected})
    rows = [(metric, *(str(detected[metric, loss]) for loss in LOSSES)) for metric in metrics]
    headings = ("metric", *(f"{loss:.0%} slower".replace("%", " %") for loss in LOSSES))
    return f"Healthy nights with an alarm: {alarms}.\n\n{markdown(headings, rows)}"


def repeat_noise(nights: Sequence[Night]) -> dict[str, float]:
    """By metric the noise of one measurement, on logs: what repeats of one night differ by, by their median."""
    ratios = repeat_ratios(nights)
    return {m: float(np.median(np.abs(np.log(some))) / 0.6745 / np.sqrt(2)) for m, some in ratios.items() if some}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="Put the table into docs/error-rates.md.")
    options = parser.parse_args()
    nights = recorded()
    noise = ", ".join(f"{metric} {share:.0%}".replace("%", " %") for metric, share in repeat_noise(nights).items())
    text = f"Noise of one measurement: {noise}. {table(*alarms_and_detected(nights))}"
    print(text)
    if options.write:
        write({"RECORDED": text}, scale=1)


if __name__ == "__main__":
    main()
