"""What the report draws of a campaign: by hour, of all parts."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from seatrial.campaign.bands import bands_of
from seatrial.history import open_store
from seatrial.history.campaigns import CampaignState, PhaseRun
from seatrial.history.minutes import MetricMinutes
from seatrial.history.store import Store
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check, RunResult
from seatrial.model.verdict import Verdict
from seatrial.report.context import context_of
from seatrial.report.html import report_html

START = datetime(2026, 11, 1, tzinfo=UTC)
HOURS = 3
GPUS = ("node-0/gpu-0", "node-0/gpu-1", "node-1/gpu-0")


def _result(run_id: str, suite: str, checks: tuple[Check, ...] = ()) -> RunResult:
    return RunResult(
        run_id,
        "lab",
        suite,
        START,
        START + timedelta(hours=HOURS),
        Verdict.PASS,
        Reason(),
        checks=checks,
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A campaign of three phases of an hour; in the second, one GPU is hot and slow."""
    with open_store(f"sqlite:///{tmp_path}/history.sqlite") as store:
        phases = []
        for hour in range(HOURS):
            run_id = f"phase-{hour}"
            measured = tuple(
                Measurement(
                    "matmul",
                    650.0 if (hour, gpu) == (1, GPUS[2]) else 700.0,
                    "TFLOP/s",
                    Subject("gpu", gpu),
                )
                for gpu in GPUS
            )
            store.save(
                _result(
                    run_id,
                    "burn",
                    (Check("devices", Verdict.PASS, Reason(), measurements=measured),),
                ),
                tmp_path,
            )
            celsius = np.array([[60, 61, 84 if hour == 1 else 62]] * 60, dtype=np.float32)
            store.keep_minutes(
                run_id,
                [MetricMinutes("temperature_c", GPUS, [60.0 * n for n in range(60)], celsius)],
            )
            phases.append(PhaseRun("burn", run_id, hour * 3600.0, 3600.0, Verdict.PASS))
        store.keep_campaign(
            CampaignState("c", "lab", "soak", "", HOURS * 3600, START, START, phases=tuple(phases))
        )
        yield store


def test_each_number_has_its_lowest_median_and_highest_part_by_hour(store: Store) -> None:
    temperature, matmul = bands_of(_result("c", "soak"), store)
    assert temperature.title == "temperature, °C"
    assert (temperature.low[0], temperature.middle[0], temperature.high[0]) == (60, 61, 62)
    assert max(temperature.high) == 84
    assert matmul.title == "matmul, TFLOP/s, in burn"
    assert (matmul.hours, matmul.low) == ((0.0, 1.0, 2.0), (700, 650, 700))


def test_no_bands_for_a_run_other_than_the_stored_campaign(store: Store) -> None:
    assert bands_of(_result("night", "nightly"), store) == []
    assert bands_of(replace(_result("c", "soak"), started=START - timedelta(days=3)), store) == []


def test_the_report_of_a_campaign_shows_its_bands(store: Store, tmp_path: Path) -> None:
    result = _result("c", "soak")
    page = report_html(result, context_of(result, tmp_path, store))
    assert "Hours of the campaign" in page
    assert "hour 1.00\nmedian 700\n650 to 700" in page
