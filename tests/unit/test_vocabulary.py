"""Verdicts, checks, metrics and units are words that `seatrial explain` knows, and results use no
others.
"""

import json
from pathlib import Path

import pytest

from seatrial.checks.table import CHECKS
from seatrial.model.verdict import Verdict
from seatrial.runs.vocabulary import UNITS, look_up, words
from tests.command_line import command

VERDICTS_PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"


def test_page_of_verdicts_lists_exactly_all_verdicts() -> None:
    table = VERDICTS_PAGE.read_text().partition("| verdict |")[2].partition("\n\n")[0]
    listed = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(listed) == sorted(verdict.value for verdict in Verdict)


def test_every_unit_of_a_metric_is_explained() -> None:
    used = {metric.unit for check in CHECKS for metric in check.metrics.values()}
    assert used - {""} <= set(UNITS)


@pytest.mark.parametrize("name", sorted({word.name for word in words()}))
def test_each_glossary_word_is_found_by_its_name(name: str) -> None:
    assert name in {word.name for word in look_up(name)}


@pytest.mark.parametrize(
    ("name", "kind", "entry"),
    [
        ("not run", "verdict", "not_run"),
        ("tcp egress", "metric", "tcp_egress"),
        ("µs", "unit", "us"),
        ("gb/s", "unit", "GB/s"),
        ("Degraded", "verdict", "degraded"),
        ("history", "source", "history"),
        ("localize", "check", "localize"),
    ],
)
def test_a_word_is_found_as_people_write_it(name: str, kind: str, entry: str) -> None:
    assert [(word.kind, word.name) for word in look_up(name)] == [(kind, entry)]


def test_explain_prints_a_word_and_a_field_of_the_same_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command("explain", "degraded", "--json") == 0
    (degraded,) = json.loads(capsys.readouterr().out)
    assert (degraded["is"], degraded["exit_status"]) == ("verdict", 1)
    assert command("explain", "training", "--json") == 0
    assert [each.get("is", "field") for each in json.loads(capsys.readouterr().out)] == [
        "check",
        "field",
    ]
    assert command("explain", "not", "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "not_run"
    assert command("explain", "busbw") == 0
    assert "  unit       GB/s\n" in capsys.readouterr().out
