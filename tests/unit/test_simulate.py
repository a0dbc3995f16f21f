"""The simulated fleet: what is drawn is what was asked for, and `seatrial simulate` scores the
judge against it.
"""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from seatrial.cli.app import app
from seatrial.simulate import score
from seatrial.simulate.rows import (
    GPUS,
    KINDS,
    RUN,
    Draws,
    Floats,
    Noise,
    fleet_series,
    make,
    night_rows,
)
from seatrial.simulate.score import NIGHTS_BEFORE, READINGS, judge_healthy, scores
from tests.command_line import command

ARGUMENTS = [
    "simulate",
    "--nodes",
    "8",
    "--nights",
    "2",
    "--trials",
    "1",
    "--healthy",
    "2",
    "--seed",
    "3",
]


def nights(noise: Noise, series: int = 2_000, count: int = 30, readings: int = 4) -> Floats:
    draws = Draws(noise, np.repeat([0, 1], series // 2), np.random.default_rng(1))
    return np.array([draws.night(readings) for _ in range(count)])


@pytest.mark.parametrize("shape", ["t4", "normal", "lognormal"])
def test_simulated_noise_and_spread_have_the_requested_size(
    shape: Literal["t4", "normal", "lognormal"],
) -> None:
    values = nights(Noise(shape))
    assert values.mean(axis=(0, 2)).std() == pytest.approx(0.01, rel=0.1)
    assert (values - values.mean(axis=(0, 2), keepdims=True)).std() == pytest.approx(0.03, rel=0.05)


def test_readings_of_a_night_share_the_part_of_the_noise_that_lasts() -> None:
    values = nights(Noise("normal", spread=0.0, lasting=0.25))
    assert np.corrcoef(values[..., 0].ravel(), values[..., 1].ravel())[0, 1] == pytest.approx(
        0.25, abs=0.02
    )
    assert (
        np.corrcoef(values[1:].mean(axis=2).ravel(), values[:-1].mean(axis=2).ravel())[0, 1] > 0.4
    )


def test_a_drift_moves_all_series_of_a_metric_together() -> None:
    by_metric = nights(Noise(common=0.01), count=400).reshape(400, 2, -1).mean(axis=2)
    assert by_metric.std() == pytest.approx(0.01, rel=0.25)


def test_simulated_outliers_noisy_series_and_rounding_match_the_request() -> None:
    assert (nights(Noise("normal", stray=0.02, stray_loss=0.75)) < 0.5).mean() == pytest.approx(
        0.02, rel=0.1
    )
    loud = nights(Noise("normal", spread=0.0, loud=0.02)).std(axis=(0, 2)) > 0.06
    assert loud.mean() == pytest.approx(0.02, abs=0.01)
    assert set(np.round(nights(Noise(tick=0.05)) / 0.05 % 1, 6).ravel()) <= {0.0, 1.0}


@pytest.mark.parametrize(
    ("kind", "hit"),
    [
        ("slow node", 2 * GPUS + 3),
        ("slow GPU", 2),
        ("slow NVLink", 1),
        ("slow NIC", 2 + 5),
        ("upgrade", 16 + 5),
    ],
)
def test_each_simulated_fault_lowers_the_right_number_of_series(kind: str, hit: int) -> None:
    series = fleet_series(16, RUN)
    fault = make(kind, list(KINDS[kind])[-1], series, np.random.default_rng(1))
    assert (fault.left(0) < 1).sum() == hit
    assert not fault.names("node-999")
    assert not fault.names("node-999/gpu-0")


def test_a_slow_gpu_is_named_by_itself_or_by_its_node_and_a_slow_node_by_its_gpus_too() -> None:
    series, rng = fleet_series(1, RUN), np.random.default_rng(1)
    gpu, node = make("slow GPU", "5 %", series, rng), make("slow node", "5 %", series, rng)
    other = next(f"node-000/gpu-{n}" for n in range(2) if f"node-000/gpu-{n}" != gpu.culprit)
    assert [gpu.names(name) for name in (gpu.culprit, "node-000", other)] == [True, True, False]
    assert [node.names(name) for name in ("node-000", other, "node-001")] == [True, True, False]


def test_simulated_decay_grows_and_flaky_node_alternates() -> None:
    series, rng = fleet_series(16, RUN), np.random.default_rng(1)
    assert make("slow decay", "1 % per week", series, rng).left(6).min() == pytest.approx(0.99)
    flaky = make("flaky node", "15 %, every third night", series, rng)
    assert [flaky.left(night).min() < 1 for night in range(4)] == [False, False, True, False]


def test_simulated_rows_have_measurement_columns_in_reading_order() -> None:
    series = fleet_series(4, RUN)
    rows = night_rows(series, np.tile([1.0, 0.5], (len(series), 1)), 3)
    first, second = rows.iloc[0], rows.iloc[1]
    assert (first["metric"], first["subject"], first["unit"]) == (
        "matmul",
        "node-000/gpu-0",
        "TFLOP/s",
    )
    assert (first["value"], second["value"], second["subject"]) == (700.0, 350.0, "node-000/gpu-0")
    assert set(rows["run_id"]) == {"night-003"}
    assert set(rows.loc[rows["subject_kind"] == "cluster", "ranks"]) == {"32"}


def test_gross_faults_are_found_and_nobody_else_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    gross = {
        "slow node": {"20 %": 0.2},
        "slow GPU": {"20 %": 0.2},
        "slow NVLink": {"50 %": 0.5},
        "upgrade": {"15 %": 0.15},
    }
    monkeypatch.setattr(score, "KINDS", gross)
    rng = np.random.default_rng(5)
    assert judge_healthy(16, 5, rng).alarms == 0
    by_kind = list(scores(16, 2, 1, rng))
    assert [(one.kind, len(one.nights), one.wrong) for one in by_kind] == [
        (kind, 1, 0) for kind in gross
    ]


def test_the_command_prints_one_document_and_the_same_seed_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(score, "KINDS", {"slow node": {"20 %": 0.2}})
    monkeypatch.setattr(score, "NIGHTS_BEFORE", 3)
    once, again = (CliRunner().invoke(app, [*ARGUMENTS, "--json"]).output for _ in range(2))
    assert once == again
    document = json.loads(once)
    assert (document["healthy"]["nights"], document["healthy"]["alarms"]) == (2, 0)
    assert [fault["size"] for fault in document["faults"]] == ["20 %"]
    assert "0 of 2 healthy nights raised an alarm" in CliRunner().invoke(app, ARGUMENTS).output


def test_the_file_holds_the_readings_of_a_slow_node(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    printed = json.loads(CliRunner().invoke(app, [*ARGUMENTS, "--csv", str(file), "--json"]).output)
    rows = pd.read_csv(file)
    assert len(rows) == (NIGHTS_BEFORE + 2) * len(fleet_series(8, RUN)) * READINGS
    matmul = rows[(rows["metric"] == "matmul") & rows["subject"].str.startswith(printed["subject"])]
    bad = matmul["run_id"] >= printed["from_run"]
    assert matmul[bad]["value"].median() / matmul[~bad]["value"].median() == pytest.approx(
        0.9, abs=0.02
    )


def test_a_file_that_cannot_be_written_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "none" / "rows.csv")
    assert command(*ARGUMENTS, "--csv", file) == 2
    assert capsys.readouterr().err.startswith(f"seatrial: {file}: ")
