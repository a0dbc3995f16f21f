"""The fleets of docs/error-rates.md are what their rows say, and the rivals' rules are theirs."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fleet_rows import CASES, LOCAL, PUBLIC, READINGS, ROWS, _local_nights, case_rows
from benchmarks.judge_error_rates import HEADINGS, MARK, RULES, TARGET, Count, table
from seatrial.simulate.rows import GPUS


@pytest.mark.parametrize("name", ROWS)
def test_every_row_draws_positive_readings_around_its_level(name: str) -> None:
    row = ROWS[name]
    night = row.fleet(8, np.random.default_rng(1))
    values = np.array([night(4) for _ in range(3)])
    assert values.shape == (3, 8 * len(row.metrics), 4)
    assert np.nanmin(values) > 0
    assert np.nanmedian(values) == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize(
    ("name", "share", "low"),
    [("strays-2-at-20-core-0.7", 0.02, 0.9), ("strays-13-at-75", 0.13, 0.5)],
)
def test_share_of_outliers_matches_the_row_name(name: str, share: float, low: float) -> None:
    values = ROWS[name].fleet(500, np.random.default_rng(1))(8)
    assert (values < low).mean() == pytest.approx(share, rel=0.1)


def test_samples_of_a_gpu_are_drawn_from_those_that_it_measured() -> None:
    """H200: multiplication falls by a third at times, copies of its memory by less than 1 %."""
    matmul, copy = (
        ROWS["h200-median-of-1"].fleet(200, np.random.default_rng(1))(8)[:400].reshape(2, -1)
    )
    assert matmul.min() < 0.85
    assert copy.min() > 0.95


def test_recorded_nights_follow_each_other_with_the_readings_that_were_taken() -> None:
    recorded = _local_nights()
    assert recorded.shape == (26, len(LOCAL), 8, 12)
    night = ROWS["local-nights"].fleet(8, np.random.default_rng(1))
    drawn = np.array([night(2) for _ in range(26)])
    assert (
        np.isfinite(drawn).reshape(26, len(LOCAL), 8, 2).all(axis=(0, 2)).tolist()
        == [[True, True]] * 2 + [[True, False]] * 2
    )
    as_recorded = recorded[..., :2].reshape(drawn.shape)
    start = np.flatnonzero((as_recorded[..., 0] == drawn[0, :, 0]).all(axis=1))[0]
    assert np.array_equal(drawn, np.roll(as_recorded, -start, axis=0), equal_nan=True)


@pytest.mark.parametrize("source", PUBLIC)
def test_rows_of_public_runs_are_drawn_in_their_recorded_order(source: str) -> None:
    with PUBLIC[source].open(newline="") as file:
        recorded = np.array([line[1:] for line in list(csv.reader(file))[1:]], dtype=float)
    assert recorded.shape == (360, 4)
    assert np.median(recorded, axis=0) == pytest.approx(1, abs=0.01)
    night = ROWS[f"public-{source}"].fleet(8, np.random.default_rng(1))
    drawn = np.array([night(3) for _ in range(5)])
    assert np.isnan(drawn[..., 1:]).all()
    first_node = drawn[:, 0, 0]
    starts = np.flatnonzero(recorded[:, 0] == first_node[0])
    assert any(
        np.array_equal(np.roll(recorded[:, 0], -start)[:5], first_node) for start in starts.tolist()
    )


def test_drawn_nights_are_as_noisy_as_the_page_says() -> None:
    by_metric = np.log(ROWS["local-drawn"].fleet(500, np.random.default_rng(1))(8)).reshape(
        len(LOCAL), -1
    )
    noise = np.median(np.abs(by_metric), axis=1) / 0.6745
    assert all(0.05 < one < 0.6 for one in noise), noise


def test_the_generators_do_not_import_the_judge() -> None:
    code = (
        "import sys, json; from benchmarks import fleet_rows; print(json.dumps(list(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    loaded = json.loads(
        subprocess.run(
            [sys.executable, "-c", code], cwd=root, capture_output=True, check=True
        ).stdout
    )
    assert not [name for name in loaded if name.startswith("seatrial.judge")]


def test_case_with_slow_new_nodes_adds_them_after_the_healthy_nights() -> None:
    rows = case_rows(CASES["20 new nodes at half speed beside 16"], np.random.default_rng(1))
    matmul = rows[(rows["metric"] == "matmul") & (rows["run_id"] == "night-008")]
    assert len(matmul) == 36 * GPUS * READINGS
    assert (
        len(rows[(rows["metric"] == "matmul") & (rows["run_id"] == "night-007")])
        == 16 * GPUS * READINGS
    )
    level = matmul.groupby(matmul["subject"] >= "node-016")["value"].median()
    assert level[True] / level[False] == pytest.approx(0.5, rel=0.01)
    assert set(rows[rows["subject_kind"] == "cluster"]["ranks"]) == {"128", "288"}


def test_rules_of_other_tools_apply_their_own_limits() -> None:
    """4 % below the mean passes all rules, 6 % fails that of SuperBench, and 11 % fails all."""
    tonight = np.array([0.96, 0.94, 0.89])
    bad = [
        rule(np.ones((3, 3)), tonight, np.zeros(3, dtype=np.int64)).tolist()
        for rule in RULES.values()
    ]
    assert bad == [[False, True, True], [False, False, True]]


def test_share_is_shown_with_its_wilson_interval() -> None:
    """Wilson's interval of 5 among 1,000: 0.21 to 1.17 %."""
    assert str(Count(5, 1000)) == "0.5 % (0.21 %–1.17 %)"


def test_table_of_the_page_matches_the_csv_of_error_rates() -> None:
    with TARGET.with_suffix(".csv").open() as file:
        headings, *lines = csv.reader(file)
    assert tuple(headings) == HEADINGS
    assert TARGET.read_text().split(MARK)[1] == f"{table(lines)}\n"
