"""Weeks of stored runs, the next one compared with them, and what people then read: run.json,
report, terminal.
"""

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from seatrial.checks.contract import Repeated
from seatrial.checks.metrics import Doubt
from seatrial.history import open_store
from seatrial.history.past import RunContext
from seatrial.history.store import Store
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check, RunResult, merge_suspects
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.report.terminal import closing_lines, show_summary
from seatrial.tasks.check import compare
from seatrial.tasks.record import record
from seatrial.text.headline import conclude
from tests.unit.collectives.fake_mpirun import make_run

START = datetime(2026, 9, 1, 2, tzinfo=UTC)
LAB = Setup("H100-SXM", 4, 8, 8, "IB-8x400G")
OLD, NEW = {"nccl": "2.27"}, {"nccl": "2.28"}
NOISE = 0.01


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("sqlite://") as opened:
        yield opened


def swept(factor: float, rng: np.random.Generator) -> Check:
    """A plateau of 360 GB/s, and its curve."""
    at: dict[str, ConditionValue] = {"operation": "all_reduce", "dtype": "float32", "ranks": 32}
    value = 360 * factor * np.exp(NOISE * rng.standard_normal())
    cluster = Subject("cluster", "lab")
    curve = [
        Measurement("busbw", value, "GB/s", cluster, {**at, "message_bytes": 1 << n})
        for n in (28, 30, 32)
    ]
    return Check(
        "collectives",
        Verdict.PASS,
        uncoded("1 sweep"),
        1.0,
        (*curve, Measurement("busbw_plateau", value, "GB/s", cluster, at)),
    )


class Nights:
    """One run after another, each compared with those before it and stored."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder, self.rng, self.number = store, folder, np.random.default_rng(7), 0

    def pass_by(self, count: int) -> None:
        for _ in range(count):
            self.store.save(self.next(1.0, compared=False), Path())

    def next(
        self, factor: float, nccl: dict[str, str] = OLD, *, compared: bool = True
    ) -> RunResult:
        at, check = START + timedelta(days=self.number), swept(factor, self.rng)

        def again(doubts: Mapping[str, Sequence[Doubt]], until: float) -> dict[str, Repeated]:
            return {name: Repeated(list(swept(factor, self.rng).measurements)) for name in doubts}

        occasion = RunContext("lab", "nightly", nccl, at)
        checks = compare([check], LAB, self.store, occasion, again) if compared else [check]
        verdict, reason = conclude(checks)
        blamed = merge_suspects(checks)
        self.number += 1
        return RunResult(
            f"run-{self.number}",
            "lab",
            "nightly",
            at,
            at,
            verdict,
            reason,
            (),
            checks,
            blamed,
            nccl,
            setup=LAB,
        )

    def read(self, run: RunResult) -> tuple[dict[str, Any], str, str]:
        """The judgement of the plateau in run.json, the report's text, and what the terminal
        shows.
        """
        written = record(run, replace(make_run(self.folder), out=self.folder))
        document = json.loads(written["run.json"].read_text())
        (plateau,) = (
            j for j in document["checks"][0]["judgements"] if j["metric"] == "busbw_plateau"
        )
        shown = Console(file=io.StringIO(), record=True, width=400)
        show_summary(run, shown)
        return (
            plateau,
            written["report.html"].read_text(),
            f"{shown.export_text()}\n{closing_lines(run, 'utf-8')}",
        )


@pytest.fixture
def nights(store: Store, tmp_path: Path) -> Nights:
    return Nights(store, tmp_path)


def test_a_fault_is_judged_the_same_every_night_until_it_is_repaired(nights: Nights) -> None:
    nights.pass_by(20)
    verdicts = []
    for factor in [0.9] * 12 + [1.0]:
        run = nights.next(factor)
        nights.store.save(run, Path())
        verdicts.append(run.verdict)
    assert verdicts == [Verdict.DEGRADED] * 12 + [Verdict.PASS]


def test_bad_number_is_shown_with_its_median_and_limit_in_report_and_terminal(
    nights: Nights,
) -> None:
    nights.pass_by(20)
    run = nights.next(0.9)
    plateau, report, terminal = nights.read(run)
    assert run.verdict is Verdict.DEGRADED
    assert plateau["deviation"] == pytest.approx(-0.1, abs=0.015)
    match = re.search(
        r"(\S+) % below its median of (\S+) GB/s in 20 runs \(limit \S+ %\)", plateau["reason"]
    )
    assert match, plateau["reason"]
    assert float(match[2]) == pytest.approx(360, abs=4)
    assert match[0] in report
    assert match[0] in " ".join(terminal.split())


def test_reason_names_software_that_changed_when_it_became_slower(nights: Nights) -> None:
    nights.pass_by(20)
    run = nights.next(0.85, NEW)
    plateau, report, terminal = nights.read(run)
    assert run.verdict is Verdict.DEGRADED
    for text in (plateau["reason"], " ".join(terminal.split())):
        assert "changed with nccl 2.27 -> 2.28" in text
    assert "changed with nccl 2.27 -&gt; 2.28" in report


def test_share_of_the_link_rate_is_shown_beside_each_plateau(nights: Nights) -> None:
    """360 of the 400 GB/s of eight 400 Gb/s NICs: 90 %."""
    run = nights.next(1.0)
    plateau, report, terminal = nights.read(run)
    assert plateau["share"] == pytest.approx(plateau["value"] / 400)
    assert "of links" in terminal
    assert f"{round(plateau['value'] / 4)} %" in terminal
    assert f"{round(plateau['value'] / 4)} % of the links" in report
