"""What goes in comes out, on SQLite and on PostgreSQL, also where many write at once."""

import math
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from seatrial.history import open_store
from seatrial.history.records import hardware_records
from seatrial.history.schema import node_hardware
from seatrial.history.store import Store
from seatrial.model.errors import SeatrialError
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, join, uncoded
from seatrial.model.result import Check, CheckResult, Judgement, Suspect
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.report.context import Number, headlines, past_of
from tests.unit.history.stored import (
    CLUSTER,
    PROCESSES,
    START,
    a_pin,
    a_run,
    open_and_save,
    plateau,
    taught,
    wide,
)


def test_saved_run_is_listed_and_found_by_id(store: Store) -> None:
    store.save(a_run(1), Path("/runs/1"))
    (row,) = store.runs("lab")
    assert (row.run_id, row.verdict, row.started, row.out) == (
        "run-001",
        Verdict.PASS,
        START + timedelta(days=1),
        "/runs/1",
    )
    assert row.fingerprint == {"nccl": "2.27"}
    assert store.run("run-001") == row
    assert store.run("run-999") is None


def test_repeated_measurements_are_shown_by_their_median(store: Store) -> None:
    values = (60.0, 101.0, 100.0)
    check = Check(
        "collectives",
        Verdict.PASS,
        uncoded("because"),
        1.0,
        tuple(plateau(value) for value in values),
    )
    run = a_run(1, checks=[check])
    store.save(run, Path())
    past = past_of(a_run(2), store)
    assert past.numbers == {plateau(0).series(): {"run-001": Number(100.0, None)}}
    assert [m.value for m in headlines(run)] == [100.0]


def test_saving_twice_keeps_one_run_with_the_later_result(store: Store) -> None:
    store.save(a_run(1, 0.5), Path())
    store.save(a_run(1, 0.6, reason=uncoded("again")), Path())
    assert [row.reason.sentence for row in store.runs()] == ["again"]
    assert taught(store, plateau(0).series()) == {plateau(0).series(): [0.6]}


def test_runs_are_newest_first_and_limited(store: Store) -> None:
    for number in (2, 1, 3):
        store.save(a_run(number), Path())
    store.save(a_run(9, cluster="other"), Path())
    assert [row.run_id for row in store.runs("lab", limit=2)] == ["run-003", "run-002"]
    assert [row.run_id for row in store.runs()] == ["run-009", "run-003", "run-002", "run-001"]


def test_nan_and_invalid_text_are_stored(store: Store) -> None:
    odd = Measurement("loss", math.nan, "", CLUSTER, {"lr": math.inf}, (math.nan, 1.0), None)
    check = Check("training", Verdict.CORRUPT, Reason(), 0.0, (odd,))
    run = a_run(
        1,
        verdict=Verdict.CORRUPT,
        reason=uncoded("nul \0 and half a \udc80 character"),
        checks=[check],
    )
    store.save(run, Path())
    assert store.runs()[0].reason.sentence == "nul \ufffd and half a ? character"
    assert taught(store, odd.series()) == {}


def test_a_subject_as_long_as_a_thousand_nodes_is_stored(store: Store) -> None:
    group = Measurement(
        "busbw", 1.0, "GB/s", Subject("group", ",".join(f"node-{n}" for n in range(3000)))
    )
    store.save(a_run(1, checks=[Check("c", Verdict.PASS, Reason(), 0.0, (group,))]), Path())
    assert taught(store, group.series()) == {group.series(): [1.0]}


def test_failed_save_leaves_the_stored_run_unchanged(store: Store) -> None:
    store.save(a_run(1), Path())
    with pytest.raises(SeatrialError, match="run run-001 cannot be saved"):
        nameless = Suspect("node", None, 0.5, Reason())  # type: ignore[arg-type]
        store.save(a_run(1, suspects=[nameless], reason=uncoded("never seen")), Path())
    assert [row.reason.sentence for row in store.runs()] == ["because"]
    assert taught(store, plateau(0).series()) != {}


def test_pins_can_be_replaced_and_removed(store: Store) -> None:
    store.pin("lab", [a_pin(0.5)])
    store.pin("lab", [a_pin(0.7)])
    assert store.pinned("lab") == {a_pin().series: a_pin(0.7)}
    assert store.pinned("other") == {}
    assert store.unpin("lab", [a_pin().series, "unknown"]) == 1
    assert store.pinned("lab") == {}


def test_stored_result_is_read_back_with_checks_and_measurements(store: Store) -> None:
    odd = Measurement("loss", math.nan, "", CLUSTER, {"lr": 0.1}, (math.nan, 1.0), None)
    blamed = Suspect("node", "node-1", 1.0, uncoded("dead \0"))
    unjudged = CheckResult(Verdict.FAIL, uncoded("node-1: dead"), (blamed,))
    first = Check(
        "connectivity",
        Verdict.FAIL,
        uncoded("node-1: dead; slow"),
        2.0,
        (odd,),
        suspects=(blamed,),
        raw_result=unjudged,
    )
    second = Check(
        "collectives", Verdict.PASS, uncoded("fine"), 1.0, (plateau(0.5, (0.4, 0.6)), plateau(0.7))
    )
    setup = Setup("H100-SXM", 2, 8, 8, "IB-8x400G", node_link_gb_s=400.0)
    store.save(a_run(1, checks=[first, second], setup=setup), Path())
    back = store.result("run-001")
    assert back is not None
    assert back.setup == setup
    assert back.suspects == [Suspect("node", "node-2", 0.9, uncoded("slow"))]
    one, two = back.checks
    assert (one.verdict, one.reason.sentence, one.seconds) == (
        Verdict.FAIL,
        "node-1: dead; slow",
        2.0,
    )
    assert one.unjudged().verdict is Verdict.FAIL
    assert one.unjudged().reason.sentence == "node-1: dead"
    assert [suspect.evidence.sentence for suspect in one.unjudged().suspects] == ["dead \ufffd"]
    assert math.isnan(one.measurements[0].value)
    assert one.measurements[0].samples[1:] == (1.0,)
    assert two.measurements == second.measurements
    assert store.result("run-999") is None


def test_readings_are_found_by_run_and_series_and_flagged_when_judged_bad(store: Store) -> None:
    m, bad = plateau(0.5), plateau(0.1)
    judged = Judgement(bad, Verdict.DEGRADED, uncoded("low"), "history")
    store.save(
        a_run(1, checks=[Check("collectives", Verdict.PASS, Reason(), 0.0, (m, plateau(0.6)))]),
        Path(),
    )
    store.save(
        a_run(2, checks=[Check("collectives", Verdict.DEGRADED, Reason(), 0.0, (bad,), (judged,))]),
        Path(),
    )
    store.save(
        a_run(3, checks=[Check("collectives", Verdict.PASS, Reason(), 0.0, (plateau(math.nan),))]),
        Path(),
    )
    readings = store.readings(["run-002", "run-001", "run-003", "none"], ["unknown", m.series()])
    assert readings.run.tolist() == [0, 1, 1]
    assert readings.series.tolist() == [1, 1, 1]
    assert readings.value.tolist() == [0.1, 0.5, 0.6]
    assert readings.good.tolist() == [False, True, True]
    assert store.readings([], [m.series()]).value.size == 0


def test_a_reason_comes_back_with_its_values_and_parts(store: Store) -> None:
    dead = Reason.of("ssh-refused", address="10.0.0.1 \0 \udc80", port=222)
    odd = Reason("not-yet-known", {"ratio": math.nan}, "odd")
    store.save(a_run(1, reason=join((dead, odd))), Path())
    (row,) = store.runs()
    refused = Reason.of("ssh-refused", address="10.0.0.1 \ufffd ?", port=222)
    assert row.reason == join((refused, odd))
    assert row.reason.values == refused.values
    assert row.reason.parts == (refused, odd)
    assert [part.values for part in row.reason.parts] == [refused.values, {"ratio": "nan"}]


@pytest.mark.parametrize(
    ("stored", "code", "sentence"),
    [
        ("null", None, ""),
        ("[1]", None, ""),
        ('{"code": "not-yet-known", "reason": "odd"}', "not-yet-known", "odd"),
        ('{"code": "Not a code", "values": 7, "reason": ["x"], "parts": {}}', None, ""),
    ],
)
def test_a_stored_reason_that_is_newer_or_broken_is_read(
    store: Store, stored: str, code: str | None, sentence: str
) -> None:
    store.save(a_run(1), Path())
    with store._writer.begin() as connection:
        connection.exec_driver_sql(f"UPDATE runs SET reason = '{stored}'")
        connection.exec_driver_sql(f"UPDATE checks SET reason = '{stored}'")
        connection.exec_driver_sql(f"UPDATE suspects SET reason = '{stored}'")
    (row,) = store.runs()
    result = store.result("run-001")
    assert result is not None
    for reason in (row.reason, result.checks[0].reason, result.suspects[0].evidence):
        assert (reason.code, reason.sentence) == (code, sentence)


@pytest.mark.parametrize("stored", ['{"code": ', "[" * 100_000])
def test_a_stored_reason_that_is_no_json_is_one_line(tmp_path: Path, stored: str) -> None:
    with open_store(f"sqlite:///{tmp_path}/history.sqlite") as store:
        store.save(a_run(1), Path())
        with store._writer.begin() as connection:
            connection.exec_driver_sql("UPDATE runs SET reason = ?", (stored,))
        with pytest.raises(SeatrialError, match=r"history\.sqlite: runs cannot be read: .+"):
            store.runs()


def test_runs_before_a_time_are_newest_first_and_of_one_suite(store: Store) -> None:
    for number in (3, 1, 2):
        store.save(a_run(number, verdict=Verdict.FAIL if number == 2 else Verdict.PASS), Path())
    store.save(a_run(0, suite="nightly"), Path())

    def before(day: int, limit: int = 9, verdict: Verdict | None = None) -> list[str]:
        rows = store.runs_before("lab", "quick", START + timedelta(days=day), limit, verdict)
        return [row.run_id for row in rows]

    assert before(3) == ["run-002", "run-001"]
    assert before(9, limit=2) == ["run-003", "run-002"]
    assert before(9, verdict=Verdict.PASS) == ["run-003", "run-001"]
    days = (START + timedelta(days=day) for day in (0, 1, 2.5, 9))
    assert [store.count_after("lab", "quick", day) for day in days] == [3, 2, 1, 0]


def test_runs_are_removed_with_their_numbers_while_pins_stay(store: Store) -> None:
    for number in range(3):
        store.save(a_run(number), Path())
    store.pin("lab", [a_pin()])
    assert store.remove_runs(["run-000", "run-001", "unknown"]) == 2
    assert [row.run_id for row in store.runs()] == ["run-002"]
    assert store.result("run-000") is None
    assert store.measurements("run-000") == []
    assert store.measurements("run-002")
    assert store.pinned("lab")
    store.save(a_run(0), Path())
    assert store.measurements("run-000") == store.measurements("run-002")


def test_age_of_a_link_counts_from_the_last_run_that_measured_it(store: Store) -> None:
    def night(number: int, *links: str, **fields: Any) -> None:
        streams = [
            Measurement("tcp_stream", 900.0, "MB/s", Subject("link", name), better=None)
            for name in links
        ]
        node = Measurement("tcp_egress", 900.0, "MB/s", Subject("node", "a"))
        checks = [Check("connectivity", Verdict.PASS, Reason(), 1.0, (*streams, node))]
        store.save(a_run(number, checks=checks, **fields), Path())

    night(1, "a--b", "a--c")
    night(2, "a--b", "b--d", verdict=Verdict.DEGRADED)
    night(3, "c--d", cluster="other")
    at = {day: START + timedelta(days=day) for day in (1, 2)}
    assert store.measured("lab", "link") == {"a--b": at[2], "a--c": at[1], "b--d": at[2]}
    assert store.measured("nobody", "link") == {}


def test_processes_that_open_and_save_at_once_all_succeed(url: str) -> None:
    """Some of them the same run: the schema is made once, and each run is there once."""
    with ProcessPoolExecutor(3, PROCESSES) as pool:
        list(pool.map(open_and_save, [url] * 9, range(9)))
    with open_store(url) as store:
        assert len(store.runs()) == 6


def test_concurrent_saves_of_new_series_lose_nothing(made_url: str) -> None:
    def save(numbers: range) -> None:
        with open_store(made_url) as store:
            for number in numbers:
                store.save(wide(number), Path())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(save, [range(5), range(5, 10)]))
    with open_store(made_url) as store:
        runs = [row.run_id for row in store.runs()]
        names = [wide(0).checks[0].measurements[n].series() for n in (0, 299)]
        readings = store.readings(sorted(runs), names)
    assert len(runs) == 10
    assert readings.value.tolist() == [1.0 + number for number in range(10) for _ in range(2)]


_SAVE_FOR_EVER = """
import itertools, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from seatrial.history import open_store
from tests.unit.history.stored import wide
with open_store({url!r}) as store:
    for number in itertools.count(1):
        store.save(wide(number), Path())
        print(number, flush=True)
"""


def test_a_kill_in_the_middle_loses_at_most_the_run_that_was_being_saved(made_url: str) -> None:
    """Whatever was said to be saved is there and whole; what was being saved is there whole or not
    at all.
    """
    program = _SAVE_FOR_EVER.format(root=str(Path(__file__).parents[3]), url=made_url)
    acknowledged = 0
    for delay in (0.02, 0.05):
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout
            for _ in range(3):
                acknowledged = max(acknowledged, int(process.stdout.readline()))
            time.sleep(delay)
        finally:
            process.kill()
            rest, _ = process.communicate()
        acknowledged = max([acknowledged, *(int(line) for line in rest.split("\n")[:-1])])
    with open_store(made_url) as store:
        runs = {row.run_id for row in store.runs(limit=10_000)}
        assert {f"run-{number:03}" for number in range(1, acknowledged + 1)} <= runs
        assert len(runs) <= acknowledged + 1
        for run_id in runs:
            names = [m.series() for m in wide(int(run_id[4:])).checks[0].measurements]
            assert store.readings([run_id], names).value.size == 301
        store.save(wide(0), Path())


def test_like_nodes_share_one_hardware_row_across_nvlink_domains() -> None:
    nodes = [
        {"name": f"node-{n}", "gpu_model": "GB200", "nvlink_domain": f"rack-{n}"} for n in range(2)
    ]
    (row,) = hardware_records(a_run(1, nodes=nodes))
    assert row["nodes"] == ["node-0", "node-1"]
    assert row.keys() <= {column.name for column in node_hardware.columns}
