import csv
import json
import math
import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.model.errors import InputError
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check, RunResult
from seatrial.model.verdict import Verdict
from seatrial.runs import measurements_file
from seatrial.runs.load import load_result
from seatrial.tasks.record import measurements_csv, run_json, write_run_json
from seatrial.text.escape import as_text, from_text
from tests import samples


def _write(folder: Path, result: RunResult) -> Path:
    (folder / "run.json").write_text(run_json(result))
    (folder / "measurements.csv").write_text(measurements_csv(result))
    return folder


@pytest.mark.parametrize(
    "result", [samples.healthy_local(), samples.faulty_h100(), samples.hostile("<a>,\"b\"\n'c'")]
)
def test_written_run_is_read_back_unchanged(tmp_path: Path, result: RunResult) -> None:
    back = load_result(_write(tmp_path, result))
    assert back.to_dict() == json.loads(run_json(result))
    assert [check.measurements for check in back.checks] == [
        check.measurements for check in result.checks
    ]


def test_losses_of_100_000_steps_are_read_back(tmp_path: Path) -> None:
    loss = Measurement(
        "loss", 1.5, "", Subject("cluster", "lab"), samples=tuple(i / 7 for i in range(100_000))
    )
    check = Check("training", Verdict.PASS, uncoded("learns"), 1.0, (loss,))
    back = load_result(_write(tmp_path, replace(samples.healthy_local(), checks=[check])))
    assert back.checks[0].measurements == (loss,)


def test_printed_value_is_read_back_beside_the_number(tmp_path: Path) -> None:
    busbw = Measurement(
        "busbw",
        0.0024576,
        "GB/s",
        Subject("cluster", "lab"),
        {"operation": "all_reduce"},
        printed=0.01,
    )
    check = Check("collectives", Verdict.PASS, uncoded("right"), 1.0, (busbw,))
    (back,) = (
        load_result(_write(tmp_path, replace(samples.healthy_local(), checks=[check])))
        .checks[0]
        .measurements
    )
    assert (back, back.printed) == (busbw, 0.01)


def test_run_json_is_read_without_measurements_csv(tmp_path: Path) -> None:
    result = samples.faulty_h100()
    (tmp_path / "other.json").write_text(run_json(result))
    back = load_result(tmp_path / "other.json")
    assert back.to_dict() == result.to_dict()
    assert back.checks[1].measurements == ()


def test_measurements_csv_of_another_run_is_ignored(tmp_path: Path) -> None:
    _write(tmp_path, samples.faulty_h100())
    (tmp_path / "run.json").write_text(run_json(samples.healthy_local()))
    assert all(check.measurements == () for check in load_result(tmp_path).checks)


def test_fields_that_earlier_versions_wrote_are_ignored(tmp_path: Path) -> None:
    result = samples.faulty_h100()
    document = result.to_dict()
    document["numbers"]["detectable"] = {"collectives: all_reduce": 0.31}
    for judgement in (j for check in document["checks"] for j in check["judgements"]):
        judgement |= {
            "drift": {"kind": "step", "since": "2026-03-10", "size": -0.1},
            "detectable": 0.31,
        }
    (tmp_path / "run.json").write_text(json.dumps(document))
    assert load_result(tmp_path).to_dict() == result.to_dict()


SETUP = {"hardware": "", "nodes": 2, "gpus_per_node": 0, "slots_per_node": 1}


def _changed(**changes: Any) -> str:
    return json.dumps({**samples.healthy_local().to_dict(), **changes})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "run.json: is not JSON: Expecting value"),
        ("[" * 100_000, "run.json: is not JSON: "),
        ("[1]", "run.json: must be an object as `seatrial run` writes it, is a list"),
        ('{"name": "x"}', "run.json: schema: is missing, so it is not the run.json of a run"),
        (
            _changed(schema=2),
            "run.json: schema: is 2, this seatrial reads 1; use the one that wrote it",
        ),
        (_changed(verdict="great"), "run.json: verdict: input should be 'pass', 'degraded'"),
        (_changed(started=None), "run.json: started: input should be a valid datetime"),
        (_changed(run_id="r\ud800"), "run.json: run_id: must be text that UTF-8 has"),
        (
            _changed(started="0001-01-01T00:00:00Z"),
            "run.json: started: must be of a year from 1970 to 2999, is of 1",
        ),
        (
            _changed(finished="9999-12-31T23:59:59-14:00"),
            "run.json: finished: must be of a year from 1970 to 2999, is",
        ),
        (
            _changed(started="2026-03-14T02:00:00"),
            "run.json: started: input should have timezone info",
        ),
        (_changed(setup={**SETUP, "nodes": 0}), "run.json: setup: nodes must be at least 1, is 0"),
        (
            _changed(setup={**SETUP, "slots_per_node": -1}),
            "run.json: setup: slots_per_node must be at least 1, is -1",
        ),
        (
            _changed(timings={"launch": math.nan}),
            "run.json: timings.launch: input should be a finite number",
        ),
        (
            _changed(nodes=[{"load": [math.inf]}]),
            "run.json: nodes.0.load.list.0.float: input should be a finite number",
        ),
        (_changed(checks=[{"name": "x"}]), "run.json: checks.0.reason: field required"),
    ],
)
def test_malformed_run_json_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError) as raised:
        load_result(tmp_path)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_run_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"run\.json: is not there; name a run's folder or its run\.json"
    ):
        load_result(tmp_path)


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    folder = _write(tmp_path, samples.healthy_local())
    (folder / "measurements.csv").write_text("run_id,check\n20260314-0200-h4x9t,x\n")
    with pytest.raises(InputError, match=r"measurements.csv: is not the measurements.csv of a run"):
        load_result(folder)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda run: {**run, "nodes": [[]] * 9_000_000}, "has more than 8,000,000 values"),
        (
            lambda run: {**run, "nodes": [{}] * 10_001},
            "nodes: list should have at most 10000 items",
        ),
        (
            lambda run: {**run, "reason": "x" * 1_000_001},
            "reason: must have at most 1,000,000 characters, has 1,000,001",
        ),
        (
            lambda run: {
                **run,
                "suspects": [{"kind": "node", "name": "n" * 1001, "confidence": 1, "evidence": ""}],
            },
            "suspects.0.name: must have at most 1,000 characters, has 1,001",
        ),
        (lambda run: {**run, "reason": "x" * 100_000_001}, "is larger than 100,000,000 bytes"),
        (
            lambda run: {**run, "checks": [{**run["checks"][0], "judgements": []}] * 1001},
            "checks: list should have at most 1000 items",
        ),
    ],
)
def test_oversized_run_json_is_bad_input(
    tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], problem: str
) -> None:
    write_run_json(samples.healthy_local(), tmp_path)
    file = tmp_path / "run.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    with pytest.raises(InputError) as refused:
        load_result(file)
    assert str(refused.value).startswith(f"{file}: ")
    assert problem in str(refused.value)


_HEADER = "run_id,check,metric,subject_kind,subject,value,unit,samples"


@pytest.mark.parametrize(
    ("lines", "bound"),
    [
        (
            "1" * (measurements_file.MAX_LINE + 1),
            f"line 1 is longer than {measurements_file.MAX_LINE:,} characters",
        ),
        (
            f"{_HEADER}\n{',' * (measurements_file.MAX_TABLE_VALUES + 1)}",
            f"has more than {measurements_file.MAX_TABLE_VALUES:,} values",
        ),
        (f"{_HEADER}{',a' * 200}\n", "has more than 200 columns (208)"),
        (
            f"{_HEADER}\n" + "a,b\n" * (measurements_file.MAX_ROWS + 1),
            f"has more than {measurements_file.MAX_ROWS:,} rows",
        ),
    ],
    ids=["line", "values", "columns", "rows"],
)
def test_measurements_beyond_a_bound_are_one_clear_line(
    tmp_path: Path, lines: str, bound: str
) -> None:
    folder = _write(tmp_path, samples.faulty_h100())
    (folder / "measurements.csv").write_text(lines)
    with pytest.raises(InputError) as error:
        load_result(folder)
    assert str(error.value) == f"{folder}/measurements.csv: {bound}; move it away to do without"


@pytest.mark.parametrize(
    "cell", ["[" * 100_000, f"[1{'0' * 400}]", '"[[1]]"'], ids=["deep", "number", "list"]
)
def test_invalid_samples_are_refused_in_one_line(tmp_path: Path, cell: str) -> None:
    result = samples.faulty_h100()
    folder = _write(tmp_path, result)
    (folder / "measurements.csv").write_text(
        f"{_HEADER}\n{result.run_id},x,loss,cluster,lab,1,,{cell}\n"
    )
    with pytest.raises(
        InputError, match=r"measurements.csv: is not the measurements.csv of a run \("
    ):
        load_result(folder)


def test_a_sparse_file_of_8_gb_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    folder = _write(tmp_path, samples.faulty_h100())
    os.truncate(folder / "measurements.csv", 8 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(
            InputError,
            match=rf": is larger than {measurements_file.MAX_BYTES:,} bytes \(8,589,934,592\); move it away",
        ):
            load_result(folder)
        assert tracemalloc.get_traced_memory()[1] < 2 * measurements_file.MAX_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["run.json", "measurements.csv"])
def test_symbolic_links_in_a_run_folder_are_refused(tmp_path: Path, name: str) -> None:
    folder = _write(tmp_path, samples.healthy_local())
    (folder / name).rename(folder / "elsewhere")
    (folder / name).symlink_to(folder / "elsewhere")
    with pytest.raises(InputError, match="is a symbolic link"):
        load_result(folder)


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", '=HYPERLINK("http://example.com")', "'=1", "''-1"]


@pytest.mark.parametrize("text", [*FORMULAS, "\t=1", "\r=1", "node-0", "", "'quoted'", "a=b"])
def test_csv_cell_is_read_back_as_it_was_written(text: str) -> None:
    assert from_text(str(as_text(text))) == text


def test_numbers_are_not_escaped_in_csv_cells() -> None:
    assert [as_text(number) for number in (-1.5, -2, None)] == [-1.5, -2, None]


def test_names_are_escaped_as_no_formulas_and_read_back_unchanged(tmp_path: Path) -> None:
    run = samples.healthy_local()
    check = run.checks[0]
    odd = [
        Measurement("clock_skew", -0.5, "s", Subject("node", name), {"peer": f"{name} x"})
        for name in FORMULAS
    ]
    run = replace(run, checks=[replace(check, measurements=tuple(odd), judgements=())])
    text = measurements_csv(run)
    cells = [cell for row in csv.reader(text.splitlines()[1:]) for cell in row]
    assert not [cell for cell in cells if cell.startswith(tuple("=+@\t\r"))]
    assert {cell for cell in cells if cell.startswith("-")} == {"-0.5"}
    write_run_json(run, tmp_path)
    (tmp_path / "measurements.csv").write_text(text, newline="")
    read = load_result(tmp_path).checks[0].measurements
    assert [(m.subject.name, m.conditions["peer"], m.value) for m in read] == [
        (name, f"{name} x", -0.5) for name in FORMULAS
    ]
