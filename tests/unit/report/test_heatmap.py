from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check, RunResult, Suspect
from seatrial.model.verdict import Verdict
from seatrial.report.heatmap import BLAMED, NOT_MEASURED, heat_map
from seatrial.report.html import report_html
from seatrial.report.pairs import NODES_SHOWN, pair_matrix
from tests import sample_sweeps, samples
from tests.fleet_run import fleet_run


def _check(*subjects: tuple[Subject, float]) -> Check:
    measured = tuple(Measurement("gemm", value, "TFLOPS", subject) for subject, value in subjects)
    judged = tuple(sample_sweeps.judge(m, 100.0, 0.1, "peers") for m in measured)
    return Check("devices", Verdict.PASS, Reason(), 1.0, measured, judged)


def test_a_node_is_as_bad_as_the_worst_of_its_gpus() -> None:
    gpus = [
        (Subject("gpu", f"node-{n}/gpu-{g}"), 50.0 if (n, g) == (1, 3) else 100.0)
        for n in (0, 1)
        for g in range(4)
    ]
    heat = heat_map(
        replace(
            samples.healthy_local(),
            checks=[_check(*gpus)],
            nodes=[{"name": "node-0"}, {"name": "node-1"}],
        )
    )
    assert heat
    assert [(line.node, line.verdicts) for line in heat.lines] == [
        ("node-1", (Verdict.FAIL,)),
        ("node-0", (Verdict.PASS,)),
    ]
    assert heat.lines[0].cells[0].tooltip == (
        "gemm on node-1/gpu-3, 50 TFLOPS, fail, expected 90 – 110 TFLOPS (peers), the worst of 4"
    )


def test_a_node_that_was_not_measured_is_no_pass() -> None:
    heat = heat_map(
        replace(
            samples.healthy_local(),
            checks=[_check((Subject("node", "node-0"), 100.0))],
            suspects=[],
        )
    )
    assert heat
    assert heat.lines[0].node == "node-1"
    assert heat.lines[0].cells == (NOT_MEASURED,)
    assert not heat.lines[0].clean


def test_heat_map_has_no_column_for_recorded_numbers() -> None:
    heat = heat_map(samples.healthy_local())
    assert heat is None


def test_bad_nodes_of_a_thousand_have_their_own_line() -> None:
    heat = heat_map(fleet_run())
    assert heat
    assert len(heat.lines) == 1000
    assert [line.node for line in heat.alone] == [
        "gpu-rack01-node01",
        "gpu-rack23-node12",
        "gpu-rack62-node07",
        "gpu-rack31-node04",
    ]
    (rest,) = heat.alike
    assert len(rest.nodes) == 996
    assert {cell.verdict for cell in rest.cells} == {Verdict.PASS}


def test_suspect_with_good_numbers_has_its_own_line() -> None:
    check = _check(*((Subject("node", f"node-{n}"), 100.0) for n in range(60)))
    suspect = Suspect("node", "node-44", 0.8, uncoded("its links are slow"))
    nodes = [{"name": f"node-{n}"} for n in range(60)]
    heat = heat_map(
        replace(samples.healthy_local(), checks=[check], nodes=nodes, suspects=[suspect])
    )
    assert heat
    assert [(line.node, line.blamed) for line in heat.alone] == [("node-44", 0.8)]


def test_a_node_that_computes_wrongly_is_corrupt_in_its_row_and_counted() -> None:
    check = _check(*((Subject("node", f"node-{n}"), 100.0) for n in range(4)))
    suspect = Suspect("gpu", "node-2/gpu-1", 0.95, uncoded("computes wrongly"))
    wrong = replace(check, verdict=Verdict.CORRUPT, suspects=(suspect,))
    run = replace(
        samples.healthy_local(), checks=[wrong], suspects=[suspect], verdict=Verdict.CORRUPT
    )
    heat = heat_map(run)
    assert heat
    assert (heat.lines[0].node, heat.lines[0].verdict) == ("node-2", Verdict.CORRUPT)
    assert {line.verdict for line in heat.lines[1:]} == {Verdict.PASS}
    page = report_html(run)
    assert "<dt>nodes</dt><dd>1 corrupt, 3 pass</dd>" in page
    assert (
        '<th scope="row" class="corrupt">node-2 <span class="blamed">suspect: corrupt</span>'
        in page
    )


@pytest.mark.parametrize("measured", [(0, 1), (0, 1, 2)])
def test_node_blamed_without_a_bad_number_is_marked(
    measured: tuple[int, ...],
) -> None:
    check = _check(*((Subject("node", f"node-{n}"), 100.0) for n in measured))
    suspect = Suspect("node", "node-2", 1.0, uncoded("does not answer"), Verdict.FAIL)
    blaming = replace(check, verdict=Verdict.FAIL, suspects=(suspect,))
    nodes = [{"name": f"node-{n}"} for n in range(3)]
    heat = heat_map(
        replace(samples.healthy_local(), checks=[blaming], nodes=nodes, suspects=[suspect])
    )
    assert heat
    cells = dict(zip((column.title for column in heat.columns), heat.lines[0].cells, strict=True))
    bad = {title: cell.text for title, cell in cells.items() if cell.verdict is Verdict.FAIL}
    assert bad == ({"gemm": "not measured"} if len(measured) < 3 else {BLAMED: "blamed"})
    assert all(
        cell.tooltip == "does not answer" for cell in cells.values() if cell.verdict is Verdict.FAIL
    )
    assert [line.verdict for line in heat.lines] == [Verdict.FAIL, Verdict.PASS, Verdict.PASS]


def run_of_pairs(
    count: int, slow: Callable[[int, int], bool], *suspects: Suspect, **finding: Any
) -> RunResult:
    """A run that has tested all pairs of so many nodes."""
    tests = [
        {
            "name": "",
            "nodes": [f"n{a}", f"n{b}"],
            "gpus": [],
            "busbw_gb_s": 40.0,
            "slow": slow(a, b),
        }
        | {"ratio": 0.33 if slow(a, b) else 1.0}
        for a, b in combinations(range(count), 2)
    ]
    document = {
        "collective": "all_reduce",
        "findings": [finding] if finding else [],
        "tests": tests,
    }
    return replace(samples.healthy_local(), suspects=suspects, localization=document)


def test_pair_matrix_puts_nodes_of_one_side_of_a_cut_together() -> None:
    cut = {"kind": "cut", "sides": [["n1", "n3"], ["n0", "n2"]]}
    matrix = pair_matrix(run_of_pairs(4, lambda a, b: a % 2 != b % 2, **cut))
    assert matrix is not None
    assert (matrix.nodes, matrix.split) == (("n1", "n3", "n0", "n2"), 2)
    assert [[cell.text for cell in line] for line in matrix.lines[:2]] == [
        ["", "100 %", "33 %", "33 %"],
        ["100 %", "", "33 %", "33 %"],
    ]


def test_a_suspect_of_many_nodes_is_shown_first() -> None:
    result = run_of_pairs(
        40, lambda a, b: 39 in (a, b), Suspect("node", "n39", 0.99, uncoded("slow"))
    )
    matrix = pair_matrix(result)
    assert matrix is not None
    assert (matrix.nodes[0], len(matrix.nodes), matrix.left_out) == (
        "n39",
        NODES_SHOWN,
        40 - NODES_SHOWN,
    )
    assert {cell.text for cell in matrix.lines[0]} == {"", "33 %"}
    html = report_html(result)
    assert 'n39 <span class="blamed">suspect</span>' in html
    assert html.count("33 %</td>") == 2 * (NODES_SHOWN - 1)


def test_run_without_pair_tests_has_no_matrix() -> None:
    assert pair_matrix(samples.healthy_local()) is None
    assert "Pairs of nodes" not in report_html(samples.healthy_local())
