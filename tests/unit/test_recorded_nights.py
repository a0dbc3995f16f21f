"""Recorded nights of real nodes stand for the series that runs judge."""

from pathlib import Path

import pytest

from benchmarks.recorded_nights import (
    NODES,
    NOT_RECORDED,
    Night,
    alarms_and_detected,
    recorded,
    repeat_noise,
    with_fault,
)
from seatrial.checks.table import CHECKS

RECORDED = ("connectivity", "devices")  # the checks of the recorded suite


@pytest.fixture(scope="module")
def nights() -> list[Night]:
    return recorded()


def test_they_are_all_that_these_checks_judge(nights: list[Night]) -> None:
    """What stands for real series is what runs measure: a new metric asks for new nights, or is named as missing."""
    judged = {kind.name: {name for name, m in kind.metrics.items() if m.tolerance} for kind in CHECKS}
    for night in nights:
        recorded = {check: {m.metric for m in night[check]} for check in night}
        assert {name: recorded[name] | NOT_RECORDED.get(name, frozenset()) for name in RECORDED} == {
            name: judged[name] for name in RECORDED
        }
        assert not any(recorded[name] & metrics for name, metrics in NOT_RECORDED.items())


def test_the_docs_name_what_was_not_recorded() -> None:
    page = (Path(__file__).parents[2] / "docs" / "error-rates.md").read_text()
    assert all(f"`{metric}`" in page for metrics in NOT_RECORDED.values() for metric in metrics)


def test_every_night_has_every_node(nights: list[Night]) -> None:
    assert len(nights) == 26
    for night in nights:
        for measured in night.values():
            for metric in {m.metric for m in measured}:
                assert {m.subject.name for m in measured if m.metric == metric} == set(NODES)


def test_they_are_as_noisy_as_the_docs_say(nights: list[Night]) -> None:
    assert all(0.1 < noise < 0.6 for noise in repeat_noise(nights).values())


def test_a_fault_divides_what_one_node_measures_of_one_metric(nights: list[Night]) -> None:
    before, after = nights[0], with_fault(nights[0], "node-3", "matmul", 0.9)
    changed = {
        (m.metric, m.subject.name)
        for check in before
        for m, then in zip(after[check], before[check], strict=True)
        if m.value != then.value
    }
    assert changed == {("matmul", "node-3")}


def test_no_recorded_night_raises_an_alarm_and_gross_faults_are_found(nights: list[Night]) -> None:
    alarms, counts = alarms_and_detected(nights[:20], losses=(0.95,))
    assert alarms.hits == 0
    assert all(counts[metric, 0.95].hits >= 0.8 * counts[metric, 0.95].of > 0 for metric in ("matmul", "memory_copy"))
