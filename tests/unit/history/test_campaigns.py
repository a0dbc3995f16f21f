"""A campaign's row that somebody has damaged: one line, no traceback."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from seatrial.history import open_store
from seatrial.history.campaigns import CampaignState, LeftOut, PhaseRun
from seatrial.model.errors import SeatrialError
from seatrial.model.verdict import Verdict

AT = datetime(2026, 3, 14, 2, 0, tzinfo=UTC)
PHASE = PhaseRun("net", "run-1", 0.0, 60.0, Verdict.PASS)
STATE = CampaignState("soak-1", "c", "soak", "digest", 3600.0, AT, AT, phases=(PHASE,))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'history.sqlite'}"


def test_stored_campaign_is_read_back_unchanged(url: str) -> None:
    kept = replace(STATE, left_out=(LeftOut("n1", "run-1", 60.0, "gpu-ecc"),))
    with open_store(url) as store:
        store.keep_campaign(STATE)
        store.keep_campaign(kept)
        assert store.campaign("c", "soak") == kept


@pytest.mark.parametrize(
    "phases", ["[{}]", "[1]", "{}1", '[{"verdict": "fine"}]', '[{"verdict": null, "extra": 1}]']
)
def test_a_damaged_campaign_is_an_error_of_one_line(url: str, phases: str) -> None:
    with open_store(url) as store:
        store.keep_campaign(STATE)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE campaigns SET phases = :phases"), {"phases": phases})
    engine.dispose()
    with (
        open_store(url) as store,
        pytest.raises(SeatrialError, match="campaigns cannot be read") as error,
    ):
        store.campaign("c")
    assert "\n" not in str(error.value)
