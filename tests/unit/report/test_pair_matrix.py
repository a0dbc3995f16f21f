from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

from seatrial.model.result import RunResult, Suspect
from seatrial.report.html import report_html
from seatrial.report.pairs import NODES_SHOWN, pair_matrix
from tests import samples


def tested(count: int, slow: Callable[[int, int], bool], *suspects: Suspect, **finding: Any) -> RunResult:
    """A run that has tested all pairs of so many nodes."""
    tests = [
        {"name": "", "nodes": [f"n{a}", f"n{b}"], "gpus": [], "busbw_gb_s": 40.0, "slow": slow(a, b)}
        | {"ratio": 0.33 if slow(a, b) else 1.0}
        for a, b in combinations(range(count), 2)
    ]
    document = {"collective": "all_reduce", "findings": [finding] if finding else [], "tests": tests}
    return replace(samples.healthy_local(), suspects=suspects, localization=document)


def test_the_sides_of_a_cut_stand_together() -> None:
    cut = {"kind": "cut", "sides": [["n1", "n3"], ["n0", "n2"]]}
    matrix = pair_matrix(tested(4, lambda a, b: a % 2 != b % 2, **cut))
    assert matrix is not None
    assert (matrix.nodes, matrix.split) == (("n1", "n3", "n0", "n2"), 2)
    assert [[cell.text for cell in line] for line in matrix.lines[:2]] == [
        ["", "100 %", "33 %", "33 %"],
        ["100 %", "", "33 %", "33 %"],
    ]


def test_a_suspect_of_many_nodes_is_shown_first() -> None:
    result = tested(40, lambda a, b: 39 in (a, b), Suspect("node", "n39", 0.99, "slow"))
    matrix = pair_matrix(result)
    assert matrix is not None
    assert (matrix.nodes[0], len(matrix.nodes), matrix.left_out) == ("n39", NODES_SHOWN, 40 - NODES_SHOWN)
    assert {cell.text for cell in matrix.lines[0]} == {"", "33 %"}
    html = report_html(result)
    assert 'n39 <span class="blamed">suspect</span>' in html
    assert html.count("33 %</td>") == 2 * (NODES_SHOWN - 1)


def test_a_run_without_such_tests_has_no_matrix() -> None:
    assert pair_matrix(samples.healthy_local()) is None
    assert "Pairs of nodes" not in report_html(samples.healthy_local())
