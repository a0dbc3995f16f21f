from dataclasses import replace

from seatrial.model.measurement import Measurement, Subject
from seatrial.model.result import Check, Suspect
from seatrial.model.verdict import Verdict
from seatrial.report.heatmap import NOT_MEASURED, heat_map
from seatrial.report.html import report_html
from tests import samples
from tests.fleet_run import fleet_run


def _check(*subjects: tuple[Subject, float]) -> Check:
    measured = tuple(Measurement("gemm", value, "TFLOPS", subject) for subject, value in subjects)
    judged = tuple(samples.judge(m, 100.0, 0.1, "peers") for m in measured)
    return Check("devices", Verdict.PASS, "", 1.0, measured, judged)


def test_a_node_is_as_bad_as_the_worst_of_its_gpus() -> None:
    gpus = [
        (Subject("gpu", f"node-{n}/gpu-{g}"), 50.0 if (n, g) == (1, 3) else 100.0) for n in (0, 1) for g in range(4)
    ]
    heat = heat_map(
        replace(samples.healthy_local(), checks=[_check(*gpus)], nodes=[{"name": "node-0"}, {"name": "node-1"}])
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
    heat = heat_map(replace(samples.healthy_local(), checks=[_check((Subject("node", "node-0"), 100.0))], suspects=[]))
    assert heat
    assert heat.lines[0].node == "node-1"
    assert heat.lines[0].cells == (NOT_MEASURED,)
    assert not heat.lines[0].clean


def test_what_was_only_recorded_is_no_column() -> None:
    heat = heat_map(samples.healthy_local())
    assert heat is None


def test_of_a_thousand_nodes_the_ill_have_their_own_line() -> None:
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
    assert set(rest.standings) == {Verdict.PASS}


def test_a_suspect_is_seen_though_it_measures_well() -> None:
    check = _check(*((Subject("node", f"node-{n}"), 100.0) for n in range(60)))
    suspect = Suspect("node", "node-44", 0.8, "its links are slow")
    nodes = [{"name": f"node-{n}"} for n in range(60)]
    heat = heat_map(replace(samples.healthy_local(), checks=[check], nodes=nodes, suspects=[suspect]))
    assert heat
    assert [(line.node, line.blamed) for line in heat.alone] == [("node-44", 0.8)]


def test_a_node_that_computes_wrongly_is_corrupt_in_its_row_and_counted() -> None:
    check = _check(*((Subject("node", f"node-{n}"), 100.0) for n in range(4)))
    suspect = Suspect("gpu", "node-2/gpu-1", 0.95, "computes wrongly")
    wrong = replace(check, verdict=Verdict.CORRUPT, suspects=(suspect,))
    run = replace(samples.healthy_local(), checks=[wrong], suspects=[suspect], verdict=Verdict.CORRUPT)
    heat = heat_map(run)
    assert heat
    assert (heat.lines[0].node, heat.lines[0].standing) == ("node-2", "corrupt")
    assert {line.standing for line in heat.lines[1:]} == {"pass"}
    page = report_html(run)
    assert "<dt>nodes</dt><dd>3 pass, 1 corrupt</dd>" in page
    assert '<th scope="row" class="corrupt">node-2 <span class="blamed">suspect: corrupt</span>' in page
