"""A host that is replaced under the same name during a campaign: neither is judged by the other."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from seatrial.campaign.drift import drift_check, other_machines, phase_numbers
from seatrial.campaign.rises import minutes_check, series_of
from seatrial.history import open_store
from seatrial.history.campaigns import CampaignState, PhaseRun
from seatrial.history.minutes import MetricMinutes
from seatrial.history.store import Store
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check, RunResult
from seatrial.model.verdict import Verdict
from tests.suspects import suspect_names

START = datetime(2026, 11, 1, tzinfo=UTC)
NODES = [f"node-{i}" for i in range(4)]
PHASES = 16
REPLACED = 8  # the first phase of the other machine that is called node-3


def _state(last: int) -> CampaignState:
    phases = [
        PhaseRun("burn", f"phase-{nth}", nth * 3600.0, 3600.0, Verdict.PASS) for nth in range(last)
    ]
    return CampaignState("c", "lab", "soak", "", 1, START, START, phases=tuple(phases))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A campaign: the first machine called node-3 has a memory error in phase 4, the second comes
    with seven and is 10 % slower.
    """
    folder = tmp_path_factory.mktemp("store")
    noise = np.random.default_rng(1).normal(1, 0.005, (PHASES, len(NODES)))
    with open_store(f"sqlite:///{folder}/history.sqlite") as store:
        for nth, of_phase in enumerate(noise):
            is_other = nth >= REPLACED
            speed = 700 * of_phase * [1, 1, 1, 0.9 if is_other else 1]
            measured = tuple(
                Measurement("matmul", value, "TFLOP/s", Subject("node", node))
                for node, value in zip(NODES, speed.tolist(), strict=True)
            )
            ids = [*NODES[:3], f"{NODES[3]}, {is_other}"]
            run = RunResult(
                f"phase-{nth}",
                "lab",
                "burn",
                START + timedelta(hours=nth),
                START + timedelta(hours=nth + 1),
                Verdict.PASS,
                Reason(),
                nodes=tuple(
                    {"name": node, "hardware_ids": [own]}
                    for node, own in zip(NODES, ids, strict=True)
                ),
                checks=(Check("devices", Verdict.PASS, Reason(), measurements=measured),),
            )
            store.save(run, folder)
            errors = [0, 0, 0, 7 if is_other else nth >= 4]
            parts = [f"{node}/gpu-0" for node in NODES]
            readings = np.array([errors], dtype=np.float32)
            store.keep_minutes(
                run.run_id, [MetricMinutes("ecc_uncorrected", parts, [60.0], readings)]
            )
        yield store


def test_a_slower_host_under_the_name_of_another_did_not_drift(store: Store) -> None:
    state = _state(PHASES)
    by_name = drift_check(phase_numbers(state, store, {}), one_machine=False)
    assert suspect_names(by_name) == ["node-3"]
    others = other_machines(state, store)
    check = drift_check(phase_numbers(state, store, others), one_machine=False)
    assert check.verdict is Verdict.PASS
    judged = [judgement.measurement.subject.name for judgement in check.judgements]
    assert sorted(judged) == NODES[:3]


def test_errors_that_a_new_host_came_with_did_not_rise_and_those_of_the_old_one_did(
    store: Store,
) -> None:
    state = _state(PHASES)
    series = series_of(state, store, "ecc_uncorrected", other_machines(state, store))
    check, _ = minutes_check([series])
    assert suspect_names(check) == ["node-3 (replaced)/gpu-0"]
    assert [judgement.measurement.value for judgement in check.judgements] == [0, 0, 0, 1, 0]


def test_a_campaign_on_the_same_machines_has_no_others(store: Store) -> None:
    others = other_machines(_state(REPLACED), store)
    assert not any(others.values())
