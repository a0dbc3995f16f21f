"""Nights that are no plain ones: roll-outs, weekends, rounded and two-humped readings, nodes and
metrics that come and go, changes that follow each other.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pandas as pd
import pytest

from seatrial.model.verdict import Verdict
from seatrial.runs.replay import ReplayedRun, replay
from tests.unit.judge.readings import Fleet, Series, names, of_nodes, slow

OLD, NEW = {"driver": "560.3"}, {"driver": "570.1"}
MONDAY = date(2026, 1, 5)
READINGS = 6
LOSS_AND_LIMIT = re.compile(r"([\d.]+) % below .*limit ([\d.]+) %")


def with_drivers(nodes: int, updated: int) -> tuple[Series, Series]:
    """So many nodes, of which the first have the new driver."""
    return (
        replace(of_nodes(updated, noise=0.01), conditions=NEW),
        replace(of_nodes(nodes - updated, first=updated, noise=0.01), conditions=OLD),
    )


def before_roll_out(seed: int, nodes: int) -> Fleet:
    """Ten nights with the old driver."""
    fleet = Fleet(seed, READINGS)
    fleet.run(replace(of_nodes(nodes, noise=0.01), conditions=OLD), times=10)
    return fleet


def passed(runs: list[ReplayedRun]) -> bool:
    return all(run.verdict is Verdict.PASS for run in runs)


# Roll-outs


@pytest.mark.parametrize(("nodes", "updated"), [(8, 4), (8, 6), (32, 8), (64, 16), (32, 3)])
def test_reason_names_the_driver_whose_nodes_became_slower(nodes: int, updated: int) -> None:
    """Nodes with the old driver lost nothing, and no node is blamed for the new driver."""
    fleet = before_roll_out(1, nodes)
    for _ in range(3):
        losers = slow(*(f"node-{n}" for n in range(updated)), by=0.08)
        fleet.run(*with_drivers(nodes, updated), factor=losers)
    for run in fleet.judged()[-3:]:
        assert run.verdict is Verdict.DEGRADED
        assert f"{updated} of {nodes} nodes (those with driver 570.1)" in run.reason.sentence
        assert names(run) == set()


def test_a_staged_roll_out_is_one_finding_each_night() -> None:
    """Two more nodes each night get a driver that costs 8 %."""
    fleet = before_roll_out(2, 32)
    for updated in (2, 4, 6, 8):
        losers = slow(*(f"node-{n}" for n in range(updated)), by=0.08)
        fleet.run(*with_drivers(32, updated), factor=losers)
    for run in fleet.judged()[-4:]:
        assert run.verdict is Verdict.DEGRADED
        assert "(those with driver 570.1)" in run.reason.sentence
        assert names(run) == set()


def test_one_node_with_a_driver_of_its_own_is_blamed() -> None:
    fleet = before_roll_out(3, 16)
    fleet.run(*with_drivers(16, 1), factor=slow("node-0", by=0.08))
    assert names(fleet.tonight()) == {("node", "node-0")}


def test_a_driver_that_slows_nothing_is_not_reported() -> None:
    fleet = before_roll_out(4, 32)
    for updated in (2, 8, 32):
        fleet.run(*with_drivers(32, updated))
    assert passed(fleet.judged())


@pytest.mark.parametrize("seed", range(3))
def test_nodes_are_not_blamed_for_what_updated_ones_gain(seed: int) -> None:
    """More than half of the nodes gain 4 % before the others do; these lose nothing."""
    fleet = Fleet(seed, READINGS)
    fleet.run(of_nodes(8, noise=0.01), times=8)
    for updated in (5, 7, 7, 8):
        gained = slow(*(f"node-{n}" for n in range(updated)), by=-0.04)
        fleet.run(of_nodes(8, noise=0.01), factor=gained)
    assert passed(fleet.judged())


# Weekdays


def dated(
    kind: str, count: int, nights: int, left: Callable[[date, int], float]
) -> list[ReplayedRun]:
    """Nights from a Monday on, each with what is `left` of the rate on that day of that subject."""
    rng, rows = np.random.default_rng(5), []
    for nth in range(nights):
        day = MONDAY + timedelta(days=nth)
        for n in range(count):
            subject = "lab" if kind == "cluster" else f"node-{n}"
            for value in 40 * left(day, n) * np.exp(0.02 * rng.standard_normal(READINGS)):
                rows.append(
                    (f"run-{nth:02}", f"{day}T02:00:00", "tcp_stream", kind, subject, value, "GB/s")
                )
    columns = ["run_id", "started", "metric", "subject_kind", "subject", "value", "unit"]
    return replay(pd.DataFrame(rows, columns=columns))


def weekend_dip(day: date, node: int) -> float:
    return 0.96 if day.weekday() > 4 else 1.0


@pytest.mark.parametrize(("kind", "count"), [("node", 8), ("node", 48), ("cluster", 1)])
def test_weekend_dip_is_learned_in_two_weeks(kind: str, count: int) -> None:
    runs = dated(kind, count, 35, weekend_dip)
    assert passed(runs[14:])
    assert all(not run.suspects for run in runs)


def test_a_node_that_loses_more_than_the_weekend_takes_is_found_on_a_weekend() -> None:
    runs = dated(
        "node",
        16,
        34,
        lambda day, node: weekend_dip(day, node) * (0.9 if node == 3 and day.day == 7 else 1),
    )
    saturday = (date(2026, 2, 7) - MONDAY).days
    assert names(runs[saturday]) == {("node", "node-3")}
    assert passed(runs[14:saturday])


def test_a_weekend_sized_loss_on_a_weekday_is_reported() -> None:
    runs = dated(
        "node",
        16,
        31,
        lambda day, node: 0.92 if day >= date(2026, 2, 3) else weekend_dip(day, node),
    )
    assert runs[-1].verdict is Verdict.DEGRADED


# Readings


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("nodes", [8, 64])
def test_readings_that_are_rounded_to_two_percent_pass(seed: int, nodes: int) -> None:
    rng = np.random.default_rng(seed)
    rows = []
    for nth in range(14):
        for n in range(nodes):
            for value in 54.7 * np.exp(0.01 * rng.standard_normal(READINGS)):
                rows.append(
                    (
                        f"run-{nth:02}",
                        "host_to_device",
                        "node",
                        f"node-{n}",
                        round(value / 1.094) * 1.094,
                    )
                )
    frame = pd.DataFrame(
        rows, columns=["run_id", "metric", "subject_kind", "subject", "value"]
    ).assign(unit="GB/s")
    assert passed(replay(frame))


@pytest.mark.parametrize("nodes", [2, 8])
def test_bimodal_readings_blame_no_node(nodes: int) -> None:
    """A third of the readings are 20 % lower, as when NCCL chooses its protocol anew each time."""
    rng = np.random.default_rng(6)
    rows = []
    for nth in range(20):
        for n in range(nodes):
            lower = 1 - 0.2 * (rng.random(READINGS) < 1 / 3)
            for value in 300 * lower * np.exp(0.01 * rng.standard_normal(READINGS)):
                rows.append((f"run-{nth:02}", "busbw_plateau", "node", f"node-{n}", value))
    frame = pd.DataFrame(
        rows, columns=["run_id", "metric", "subject_kind", "subject", "value"]
    ).assign(unit="GB/s")
    runs = replay(frame)
    assert all(not run.suspects for run in runs)


def test_a_first_reading_that_is_always_lower_is_no_loss() -> None:
    """What is measured first in a run is cold: 3 % less on all nodes."""
    fleet = Fleet(7, READINGS)
    for _ in range(12):
        for n in range(8):
            node = of_nodes(1, first=n)
            fleet.run(node, readings=0)
            cold = (
                700
                * np.exp(0.01 * fleet.rng.standard_normal(READINGS))
                * [0.97, *[1.0] * (READINGS - 1)]
            )
            fleet.read(node, f"node-{n}", *cold)
            fleet.runs -= 1
        fleet.runs += 1
    assert passed(fleet.judged())


# Runs, nodes and metrics


def test_missing_nights_are_not_taken_for_a_change() -> None:
    """One node was not measured every third night, and no node for a week."""
    fleet = Fleet(8, READINGS)
    for nth in range(18):
        fleet.run(of_nodes(8 - (nth % 3 == 0)))
        fleet.runs += 7 if nth == 9 else 0
    assert passed(fleet.judged())
    fleet.run(of_nodes(8), factor=slow("node-7", by=0.15))
    assert names(fleet.tonight()) == {("node", "node-7")}


def test_node_that_returns_slower_after_an_absence_is_found() -> None:
    fleet = Fleet(9, READINGS)
    fleet.run(of_nodes(16), times=10)
    fleet.run(of_nodes(15), times=6)
    fleet.run(of_nodes(16), factor=slow("node-15", by=0.12))
    assert names(fleet.tonight()) == {("node", "node-15")}


def test_nodes_that_leave_and_join_do_not_affect_verdicts_of_others() -> None:
    fleet = Fleet(10, READINGS)
    for nth in range(14):
        fleet.run(of_nodes(16, first=nth // 2))
    assert passed(fleet.judged())
    fleet.run(of_nodes(16, first=6), factor=slow("node-12", by=0.12))
    assert names(fleet.tonight()) == {("node", "node-12")}


def test_added_and_removed_metrics_do_not_affect_verdicts_of_others() -> None:
    fleet = Fleet(11, READINGS)
    fleet.run(of_nodes(8), of_nodes(8, "memory_copy"), times=10)
    fleet.run(of_nodes(8), of_nodes(8, "host_to_device"), times=4)
    assert passed(fleet.judged())
    fleet.run(of_nodes(8), of_nodes(8, "host_to_device"), factor=slow("node-2", by=0.2))
    assert names(fleet.tonight()) == {("node", "node-2")}


# Changes


def test_a_growing_loss_is_reported_with_its_start_and_confidence() -> None:
    """5 % in 3 % of noise takes some nights."""
    fleet = Fleet(12, READINGS)
    fleet.run(of_nodes(64), times=10)
    fleet.run(of_nodes(64), factor=slow("node-9", by=0.05), times=4)
    run = fleet.tonight()
    assert names(run) == {("node", "node-9")}
    assert "since " in run.reason.sentence
    assert "% sure)" in run.reason.sentence


def test_recovered_node_passes_the_same_night_and_is_found_again_when_slow() -> None:
    fleet = Fleet(13, READINGS)
    fleet.run(of_nodes(16), times=10)
    for lost in (True, True, False, False, True):
        fleet.run(of_nodes(16), factor=slow("node-4", by=0.12 * lost))
    assert [names(run) == {("node", "node-4")} for run in fleet.judged()[-5:]] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert [run.verdict is Verdict.PASS for run in fleet.judged()[-5:]] == [
        False,
        False,
        True,
        True,
        False,
    ]


def test_two_successive_changes_are_both_reported() -> None:
    fleet = Fleet(14, READINGS)
    fleet.run(of_nodes(16), times=10)
    fleet.run(of_nodes(16), factor=slow("node-1", by=0.12), times=3)
    fleet.run(of_nodes(16), factor=slow("node-1", "node-2", by=0.12), times=2)
    assert names(fleet.tonight()) == {("node", "node-1"), ("node", "node-2")}


@pytest.mark.parametrize("seed", range(4))
def test_small_loss_is_named_after_some_runs_of_one_reading(seed: int) -> None:
    """Each run that passes teaches, and the loss makes the series look noisier than it is."""
    fleet = Fleet(seed, 1)
    fleet.run(of_nodes(8, noise=0.01), times=10)
    fleet.run(of_nodes(8, noise=0.01), factor=slow("node-5", by=0.06), times=5)
    runs = fleet.judged()
    assert passed(runs[:10])
    assert names(runs[-1]) == {("node", "node-5")}


def test_watched_series_is_mentioned_in_a_pass_without_suspects() -> None:
    """The reason of a passing run mentions what may be a loss."""
    fleet = Fleet(1, READINGS)
    fleet.run(of_nodes(64), times=10)
    fleet.run(of_nodes(64), factor=slow("node-9", by=0.04), times=12)
    watched = [run for run in fleet.judged() if " looks " in run.reason.sentence]
    assert watched
    assert all(run.verdict is Verdict.PASS and not run.suspects for run in watched)


def test_loss_of_about_one_percent_is_not_watched() -> None:
    fleet = Fleet(3, READINGS)
    fleet.run(of_nodes(64, noise=0.01), times=10)
    fleet.run(of_nodes(64, noise=0.01), factor=slow("node-9", by=0.012), times=6)
    assert all("looks" not in run.reason.sentence for run in fleet.judged())


def test_stated_limit_is_never_above_the_loss_when_several_nodes_are_blamed() -> None:
    fleet = Fleet(3, READINGS)
    fleet.run(of_nodes(64), times=10)
    several = slow(*(f"node-{n}" for n in range(8)), by=0.04)
    fleet.run(of_nodes(64), factor=several, times=4)
    evidence = [suspect.evidence.sentence for run in fleet.judged() for suspect in run.suspects]
    found = [LOSS_AND_LIMIT.search(sentence) for sentence in evidence]
    assert len(found) > 4
    assert all(match and float(match[1]) >= float(match[2]) for match in found)
