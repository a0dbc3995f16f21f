"""The check `dcgm`: what `dcgmi diag -j` says of each GPU is believed."""

import json
from pathlib import Path

import pytest

from seatrial.checks.contract import CheckContext, StepResult
from seatrial.checks.dcgm import Dcgm, dcgm
from seatrial.checks.suites import load_suite
from seatrial.config.run import Run
from seatrial.model.errors import MissingError
from seatrial.model.verdict import Verdict
from tests.fake_platform import FakePlatform
from tests.fake_platform.node import ProgramOutput
from tests.suspects import kinds_and_names

NO_ENGINE = """Error: unable to establish a connection to the specified host: localhost
Error: Unable to connect to host engine. Host engine connection invalid/disconnected."""


def report(*results: dict[str, object]) -> str:
    tests = [
        {
            "name": "Memory",
            "results": [{"entity_group": "GPU", "entity_id": 0, "status": "Pass"}, *results],
        }
    ]
    return json.dumps(
        {"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}}
    )


def checked(folder: Path, output: dict[str, str | ProgramOutput]) -> StepResult:
    """Three nodes; those of `output` print that, and exit 1 where it is an error, the others have
    no fault.
    """
    platform = FakePlatform(nodes=3)
    suite = folder / "own.yaml"
    suite.write_text("dcgm: {level: 2}\n")
    run = Run("run-1", platform.cluster(), load_suite(str(suite)), folder)
    testbed = platform.launch(run)
    for node in testbed.nodes:
        platform.nodes[node.name].programs["dcgmi"] = lambda request: output.get(
            request.node.name, report()
        )
    result = dcgm(CheckContext(run, testbed))
    assert any(
        "dcgmi diag -r 2 -j" in " ".join(command) for command in platform.nodes["node-0"].commands
    )
    return result


def test_dcgm_is_off_in_shipped_suites() -> None:
    assert all(
        load_suite(name).section(Dcgm) is None for name in ("quick", "nightly", "acceptance")
    )


def test_gpus_without_a_fault_pass(tmp_path: Path) -> None:
    check = checked(tmp_path, {"node-1": "WARNING: persistence mode is off\n" + report()}).check
    assert (check.verdict, check.reason.sentence) == (
        Verdict.PASS,
        "3 tests of 3 nodes without a fault",
    )


@pytest.mark.parametrize(
    ("result", "suspects", "verdict"),
    [
        (
            {"entity_group": "GPU", "entity_id": 5, "status": "Fail"},
            [("gpu", "node-1/gpu-5")],
            Verdict.FAIL,
        ),
        (
            {"gpu_ids": "2,3", "status": "FAIL"},
            [("gpu", "node-1/gpu-2"), ("gpu", "node-1/gpu-3")],
            Verdict.FAIL,
        ),
        ({"gpu_id": "4", "status": "Warn"}, [("gpu", "node-1/gpu-4")], Verdict.DEGRADED),
        (
            {"entity_group": "CPU", "entity_id": 0, "status": "Fail"},
            [("node", "node-1")],
            Verdict.FAIL,
        ),
    ],
)
def test_failed_dcgm_test_names_its_gpu_or_node(
    tmp_path: Path, result: dict[str, object], suspects: list[tuple[str, str]], verdict: Verdict
) -> None:
    check = checked(
        tmp_path, {"node-1": report({**result, "warnings": [{"warning": "uncorrectable errors"}]})}
    ).check
    assert (check.verdict, kinds_and_names(check)) == (verdict, suspects)
    assert check.reason.code == "tool-says-bad" and "uncorrectable errors" in check.reason.sentence


@pytest.mark.parametrize(
    "output", [ProgramOutput(NO_ENGINE, 1), "", "{" * 100_000, '{"DCGM Diagnostic": []}']
)
def test_a_node_without_a_result_is_no_pass(tmp_path: Path, output: str | ProgramOutput) -> None:
    check = checked(tmp_path, {"node-1": output}).check
    assert (check.verdict, check.reason.code, check.suspects) == (
        Verdict.INCONCLUSIVE,
        "dcgm-failed",
        (),
    )


def test_without_dcgm_nothing_is_run(tmp_path: Path) -> None:
    missing = ProgramOutput("sh: 1: dcgmi: not found", 127)
    with pytest.raises(
        MissingError, match="dcgmi is missing on node-0: install datacenter-gpu-manager"
    ):
        checked(tmp_path, dict.fromkeys(("node-0", "node-1", "node-2"), missing))
