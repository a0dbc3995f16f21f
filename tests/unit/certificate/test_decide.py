"""The worst number decides; what was not measured, or not properly, is not shown, and never met."""

from typing import Any

import pytest

from seatrial.model.measurement import Subject
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from tests.unit.certificate.conftest import BUSBW, Site, judgement, run_of

GOOD = run_of(judgement(60.0))
PASSES = {
    "id": "P",
    "text": "The check passes.",
    "check": "collectives",
    "limit": {"equals": "pass"},
}
OTHER = Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("more", "runs", "status", "measured", "code"),
    [
        ({}, [GOOD], "met", 60.0, None),
        ({"limit": {"at_least": 60}}, [GOOD], "met", 60.0, None),
        ({"limit": {"at_least": 60.1}}, [GOOD], "not met", 60.0, "requirement-limit-missed"),
        ({"limit": {"at_most": 60}}, [GOOD], "met", 60.0, None),
        ({"limit": {"at_most": 59}}, [GOOD], "not met", 60.0, "requirement-limit-missed"),
        ({"limit": {"at_least": 480}, "unit": "Gb/s"}, [GOOD], "met", 480.0, None),
        (
            {"limit": {"at_least": 60_000.1}, "unit": "MB/s"},
            [GOOD],
            "not met",
            60_000.0,
            "requirement-limit-missed",
        ),
        (
            {"conditions": {"message_bytes": "1G", "nodes": 2, "hardware": "H100-SXM"}},
            [GOOD],
            "met",
            60.0,
            None,
        ),
        ({"conditions": {"nodes": 4}}, [GOOD], "not shown", None, "requirement-not-measured"),
        (
            {"conditions": {"message_bytes": "2G"}},
            [GOOD],
            "not shown",
            None,
            "requirement-not-measured",
        ),
        ({"conditions": {"arm": None}}, [GOOD], "met", 60.0, None),
        (
            {"conditions": {"arm": None}},
            [run_of(judgement(60.0, arm="intra"))],
            "not shown",
            None,
            None,
        ),
        (
            {"conditions": {"ranks": True}},
            [run_of(judgement(60.0, ranks=1))],
            "not shown",
            None,
            None,
        ),
        ({"metric": "no_such_metric"}, [GOOD], "not shown", None, "requirement-not-measured"),
        ({"check": "rdma"}, [GOOD], "not shown", None, "requirement-not-measured"),
        ({"subject": "node"}, [GOOD], "not shown", None, "requirement-not-measured"),
        (
            {},
            [GOOD, run_of(judgement(40.0), run_id="b")],
            "not met",
            40.0,
            "requirement-limit-missed",
        ),
        ({}, [GOOD, run_of(run_id="b")], "met", 60.0, None),
        (
            {},
            [GOOD, run_of(run_id="b", verdict=Verdict.FAIL)],
            "not shown",
            60.0,
            "requirement-check-without-pass",
        ),
        (
            {},
            [GOOD, run_of(run_id="b", verdict=OTHER)],
            "not shown",
            60.0,
            "requirement-check-without-pass",
        ),
        (
            {},
            [run_of(judgement(60.0), verdict=Verdict.CORRUPT)],
            "not shown",
            60.0,
            "requirement-check-without-pass",
        ),
        ({}, [run_of(judgement(40.0), verdict=OTHER)], "not met", 40.0, "requirement-limit-missed"),
        ({}, [run_of(judgement(60.0, "node-0"))], "not shown", 60.0, "requirement-parts-missing"),
        ({}, [run_of(judgement(60.0, "node-0"), judgement(55.0, "node-1"))], "met", 55.0, None),
        ({}, [run_of(judgement(60.0, ranks=16))], "met", 60.0, None),
        ({}, [run_of(judgement(60.0, ranks=8))], "not shown", 60.0, "requirement-parts-missing"),
        ({"conditions": {"ranks": 8}}, [run_of(judgement(60.0, ranks=8))], "met", 60.0, None),
        ({}, [run_of(judgement(float("nan")))], "not shown", None, "requirement-number-unusable"),
        (
            {},
            [run_of(judgement(60.0, verdict=OTHER))],
            "not shown",
            None,
            "requirement-number-unusable",
        ),
        (
            {},
            [run_of(judgement(9e9, verdict=Verdict.FAIL, source="physics"))],
            "not shown",
            None,
            None,
        ),
        (
            {},
            [run_of(judgement(60.0, unit="furlongs"))],
            "not shown",
            None,
            "requirement-number-unusable",
        ),
        ({}, [run_of(judgement(60.0, verdict=Verdict.DEGRADED))], "met", 60.0, None),
    ],
)
def test_a_number_is_held_against_its_limit(
    site: Site,
    more: dict[str, Any],
    runs: list[RunResult],
    status: str,
    measured: float | None,
    code: str | None,
) -> None:
    exit_status, output = site.certify(runs, [{**BUSBW, **more}])
    row = site.rows()["BW"]
    assert (row["verdict"], row["measured"]) == (status, measured), output
    assert code in (None, row["code"])
    assert exit_status == {"met": 0, "not met": 1, "not shown": 3}[status]
    assert output.splitlines()[-1] == f"{status}: 1 {status}"


def test_every_gpu_of_a_node_needs_a_number(site: Site) -> None:
    gpus = [Subject("gpu", name) for name in ("node-0/gpu-0", "node-0/gpu-1", "node-1/gpu-0")]
    run = run_of(*(judgement(60.0, subject=gpu) for gpu in gpus), gpus=2)
    assert site.certify([run], [{**BUSBW, "subject": "gpu"}])[0] == 3
    assert site.rows()["BW"]["reason"] == "1 GPU of node-1 of run-1 have no such number"


@pytest.mark.parametrize(
    ("runs", "status", "code"),
    [
        ([GOOD], "met", None),
        ([run_of(judgement(60.0, source="sanity"))], "met", None),
        (
            [run_of(judgement(60.0), verdict=Verdict.DEGRADED)],
            "not met",
            "requirement-check-without-pass",
        ),
        ([GOOD, run_of(judgement(60.0), run_id="b", verdict=Verdict.FAIL)], "not met", None),
        (
            [GOOD, run_of(judgement(60.0), run_id="b", verdict=OTHER)],
            "not shown",
            "requirement-check-without-pass",
        ),
        ([run_of(judgement(60.0, ranks=8))], "not shown", "requirement-parts-missing"),
        ([run_of(judgement(60.0, "node-1"))], "not shown", "requirement-parts-missing"),
        ([run_of(verdict=Verdict.NOT_RUN)], "not shown", "requirement-check-without-pass"),
    ],
)
def test_a_check_must_pass_in_every_run(
    site: Site, runs: list[RunResult], status: str, code: str | None
) -> None:
    exit_status, _ = site.certify(runs, [PASSES])
    row = site.rows()["P"]
    assert (row["verdict"], exit_status) == (
        status,
        {"met": 0, "not met": 1, "not shown": 3}[status],
    )
    assert code in (None, row["code"])


def test_requirement_is_not_shown_by_a_pass_without_a_baseline(site: Site) -> None:
    from dataclasses import replace

    from seatrial.model.result import Expected

    alone = replace(judgement(60.0, source="sanity"), expected=Expected())
    assert site.certify([run_of(alone)], [PASSES])[0] == 3
    assert site.rows()["P"]["code"] == "requirement-not-compared"


def test_evidence_points_to_the_deciding_number_in_run_json(site: Site) -> None:
    site.certify([GOOD, run_of(judgement(70.0), judgement(58.0), run_id="b")], [BUSBW])
    evidence = site.rows()["BW"]["evidence"]
    assert evidence == {
        "run_id": "b",
        "file": "evidence/2/run.json",
        "pointer": "/checks/0/judgements/1",
        "subject": "c",
        "value": 58.0,
        "unit": "GB/s",
    }


@pytest.mark.parametrize(
    ("until", "limit", "verdict", "status"),
    [
        ("2999-12-31", 99, "excepted", 0),
        ("2020-01-01", 99, "not met", 1),
        ("2999-12-31", 50, "met", 0),
    ],
)
def test_an_exception_counts_until_its_date(
    site: Site, until: str, limit: float, verdict: str, status: int
) -> None:
    waiver = {"id": "BW", "name": "A. Smith", "reason": "Cables are late.", "until": until}
    exit_status, _ = site.certify(
        [GOOD], [{**BUSBW, "limit": {"at_least": limit}}], exceptions=[waiver]
    )
    row = site.rows()["BW"]
    assert (row["verdict"], exit_status) == (verdict, status)
    assert row["exception"] == {"name": "A. Smith", "reason": "Cables are late.", "until": until}
    assert "A. Smith" in (site.certificate / "certificate.html").read_text()


def test_not_met_takes_precedence_over_not_shown(site: Site) -> None:
    low = {**BUSBW, "id": "LOW", "limit": {"at_least": 99}}
    status, output = site.certify([GOOD], [BUSBW, low, {**BUSBW, "id": "NONE", "check": "rdma"}])
    assert (status, output.splitlines()[-1]) == (1, "not met: 1 met, 1 not met, 1 not shown")
