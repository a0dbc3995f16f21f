"""What earlier runs measured, as the judge gets it: which runs, and their readings as arrays."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import insert

from seatrial.history.past import at_other_ranks, changes, past_runs
from seatrial.history.records import run_record
from seatrial.history.schema import runs
from seatrial.history.store import Store
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason
from seatrial.model.result import Check, Judgement
from seatrial.model.verdict import Verdict
from tests.unit.history.stored import START, a_run, past_of_lab, plateau

SERIES = plateau(0).series()
LATER = START + timedelta(days=400)


def test_past_holds_first_reading_mean_of_the_rest_and_location_of_each_run(store: Store) -> None:
    taken = tuple(plateau(value) for value in (5.0, 9.0, 8.0, 2.0))
    store.save(a_run(1, checks=[Check("collectives", Verdict.PASS, Reason(), 0.0, taken)]), Path())
    store.save(a_run(2, 7.0), Path())
    past = past_of_lab(store, "unknown", SERIES)
    assert [run.run_id for run in past.runs] == ["run-001", "run-002"]
    assert past.first[:, 1].tolist() == [5.0, 7.0]
    np.testing.assert_array_equal(past.rest[:, 1], [(9.0 + 8.0 + 2.0) / 3, np.nan])
    assert past.location[:, 1].tolist() == [6.0, 7.0]  # the median of the means of ten pairs
    np.testing.assert_allclose(past.within[:, 1], [30.0 / 6.0**2, 0.0])
    assert past.count.tolist() == [[0, 4], [0, 1]]
    assert past.good.tolist() == [[False, True], [False, True]]
    assert np.isnan(past.first[:, 0]).all()


def test_readings_close_by_chance_do_not_make_an_ordinary_one_an_outlier(
    store: Store,
) -> None:
    """Six readings of a run, of which five differ by 0.01 %; those of other runs scatter by 3 %."""
    by_run = (
        (7.0, 7.001, 6.999, 7.0005, 6.9995, 6.7),
        (6.7, 7.3, 7.0, 6.9, 7.15, 7.05),
        (7.2, 6.8, 6.95, 7.1, 6.85, 7.0),
    )
    for number, values in enumerate(by_run):
        taken = tuple(map(plateau, values))
        check = Check("collectives", Verdict.PASS, Reason(), 0.0, taken)
        store.save(a_run(number, checks=[check]), Path())
    past = past_of_lab(store, SERIES)
    means = [(a + b) / 2 for i, a in enumerate(by_run[0]) for b in by_run[0][i:]]
    assert past.location[0, 0] == pytest.approx(np.median(means), rel=1e-9)


def test_one_series_in_two_checks_has_the_readings_of_both(store: Store) -> None:
    checks = [
        Check(name, Verdict.PASS, Reason(), 0.0, (plateau(value),))
        for name, value in (("a", 1.0), ("b", 3.0))
    ]
    store.save(a_run(1, checks=checks), Path())
    past = past_of_lab(store, SERIES)
    assert (past.first[0, 0], past.rest[0, 0], past.location[0, 0], past.count[0, 0]) == (
        1.0,
        3.0,
        2.0,
        2,
    )


def test_readings_judged_bad_or_of_a_corrupt_run_are_not_good(store: Store) -> None:
    for number, verdict in enumerate(Verdict):
        m = plateau(float(number))
        judged = Judgement(m, verdict, Reason(), "history")
        store.save(
            a_run(
                number, checks=[Check("collectives", Verdict.PASS, Reason(), 0.0, (m,), (judged,))]
            ),
            Path(),
        )
    store.save(a_run(20, verdict=Verdict.CORRUPT), Path())
    store.save(a_run(21, verdict=Verdict.FAIL), Path())
    past = past_of_lab(store, SERIES)
    good = [run.run_id for run, fine in zip(past.runs, past.good[:, 0], strict=True) if fine]
    assert good == [f"run-{list(Verdict).index(Verdict.PASS):03}", "run-021"]


def verdicts(store: Store, passed: int, failed: int) -> list[int]:
    """The numbers of the runs chosen after so many that passed and so many later ones that did
    not.
    """
    saved = [a_run(0, run_id="other", cluster="other"), a_run(0, run_id="suite", suite="nightly")]
    for number in range(passed + failed):
        saved.append(a_run(number, verdict=Verdict.PASS if number < passed else Verdict.DEGRADED))
    with store._writer.begin() as connection:
        connection.execute(insert(runs), [run_record(run, Path()) for run in saved])
    return [int(run.run_id[4:]) for run in past_runs(store, "lab", "quick", {}, [], LATER).runs]


@pytest.mark.parametrize(
    ("passed", "failed", "chosen"),
    [
        (3, 0, [0, 1, 2]),
        (50, 0, list(range(15, 50))),
        (40, 100, [*range(10, 40), *range(135, 140)]),
        (4, 50, [*range(4), *range(23, 54)]),
        (0, 40, list(range(5, 40))),
    ],
    ids=["few", "all passed", "a fault that stays", "too few passed", "none passed"],
)
def test_healthy_runs_are_not_displaced_by_bad_ones(
    store: Store, passed: int, failed: int, chosen: list[int]
) -> None:
    assert verdicts(store, passed, failed) == chosen


def test_past_of_a_run_holds_only_runs_before_it(store: Store) -> None:
    for number in range(3):
        store.save(a_run(number), Path())
    past = past_runs(store, "lab", "quick", {}, [SERIES], START + timedelta(days=1))
    assert [run.run_id for run in past.runs] == ["run-000"]
    assert past_runs(store, "nobody", "quick", {}, [SERIES], LATER).first.shape == (0, 1)


def test_software_is_compared_with_that_of_the_newest_run_that_passed(store: Store) -> None:
    store.save(a_run(1), Path())
    store.save(a_run(2, verdict=Verdict.FAIL, fingerprint={"nccl": "2.28"}), Path())
    assert past_of_lab(store).changed == ""
    assert (
        past_runs(store, "lab", "quick", {"nccl": "2.28"}, [], LATER).changed == "nccl 2.27 -> 2.28"
    )


def test_long_lists_of_changes_are_cut() -> None:
    now = {"image": "registry/lab/check@sha256:0123456789abcdef", "a": "1", "b": "2", "c": "3"}
    assert changes({}, now) == "a unknown -> 1, b unknown -> 2, c unknown -> 3, 1 more"
    assert (
        changes({"image": "lab:1"}, {"image": now["image"]}) == "image lab:1 -> check@0123456789ab"
    )


def with_ranks(m: Measurement, ranks: int) -> Measurement:
    return replace(m, conditions={**m.conditions, "ranks": ranks})


def test_series_of_the_same_sweep_with_fewer_ranks_are_found(store: Store) -> None:
    at = {ranks: with_ranks(plateau(1.0), ranks) for ranks in (4, 8, 16)}
    other = replace(with_ranks(plateau(1.0), 8), metric="busbw")
    for number, m in enumerate((at[4], at[8], other)):
        store.save(
            a_run(number, checks=[Check("collectives", Verdict.PASS, Reason(), 0.0, (m,))]), Path()
        )
    by_ranks = at_other_ranks(store, "lab", [at[16], at[8], replace(at[16], unit="s")])
    assert by_ranks == {
        at[16].series(): {4: at[4].series(), 8: at[8].series()},
        at[8].series(): {4: at[4].series()},
    }
    assert at_other_ranks(store, "other", [at[16]]) == {}
