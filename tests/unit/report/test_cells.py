"""No name that a node or a file hands in is a formula for whoever opens measurements.csv."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.model.measurement import Measurement, Subject
from seatrial.runs.load import load_result
from seatrial.text.escape import as_text, from_text
from tasks.record import measurements_csv, write_run_json
from tests import samples

FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", '=HYPERLINK("http://example.com")', "'=1", "''-1"]


@pytest.mark.parametrize("text", [*FORMULAS, "\t=1", "\r=1", "node-0", "", "'quoted'", "a=b"])
def test_a_cell_is_read_as_it_was_given(text: str) -> None:
    assert from_text(str(as_text(text))) == text


def test_numbers_stay_numbers() -> None:
    assert [as_text(number) for number in (-1.5, -2, None)] == [-1.5, -2, None]


def test_names_are_no_formulas_and_come_back_as_they_were(tmp_path: Path) -> None:
    run = samples.healthy_local()
    check = run.checks[0]
    odd = [Measurement("clock_skew", -0.5, "s", Subject("node", name), {"peer": f"{name} x"}) for name in FORMULAS]
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
