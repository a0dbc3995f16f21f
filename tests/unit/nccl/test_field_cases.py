"""Errors as people met and reported them: cause, host or GPU, and exit status of `seatrial judge`.

`tests/golden/field-cases/` has what each of them posted; each is named by a number and what it is
about.
"""

import csv
import importlib
import json
import os
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from seatrial.causes import cause_in
from seatrial.causes.table import REASONS as OF_LOGS
from seatrial.cli.logs import judge
from seatrial.platforms.kubernetes.kueue import waits_for
from seatrial.platforms.kubernetes.waiting import SeenObjects, describe_progress, problem
from seatrial.platforms.slurm.bringup import read_nodes_log
from seatrial.remote import probes
from seatrial.remote.probes import facts
from seatrial.runs.explanations import CATALOG

CASES = Path(__file__).parents[2] / "golden" / "field-cases"
# What `seatrial judge` is asked, its exit status and code, what the last line names and does not,
# and what a night engineer is told to do
with (CASES / "expected.csv").open(newline="") as rows:
    EXPECTED = list(csv.DictReader(rows))


def judged(case: str, asked: str, *options: str) -> Any:
    log = str(CASES / case / "input.log")
    return CliRunner().invoke(judge, [log, *shlex.split(asked), *options])


def documents(case: str) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in (CASES / case).glob("*.json")}


@pytest.mark.parametrize("expected", EXPECTED, ids=[row["case"] for row in EXPECTED])
def test_field_case_gets_the_expected_cause_status_and_next_step(expected: dict[str, str]) -> None:
    case, asked, code = expected["case"], expected["asked"], expected["code"]
    done = judged(case, asked)
    last = done.output.strip().splitlines()[-1]
    assert (done.exit_code, expected["named"] in last) == (int(expected["status"]), True), last
    assert not expected["unnamed"] or expected["unnamed"] not in last
    if code:
        document = json.loads(judged(case, asked, "--json").output)
        assert document["code"] == code
        step = document["next_step"].rstrip(".")
        assert step and f"next: {step}; seatrial explain {code}\n" in done.output
        assert expected["step"] in document["next_step"]


def test_judge_prints_the_log_line_that_shows_the_first_cause() -> None:
    of_logs = [row for row in EXPECTED if row["code"] in OF_LOGS]
    assert of_logs
    for case, asked in ((row["case"], row["asked"]) for row in of_logs):
        findings = json.loads(judged(case, asked, "--json").output)["findings"]
        assert findings[0]["evidence"] and all(entry["next_step"] for entry in findings)
        assert findings[0]["evidence"][:100] in judged(case, asked).output.replace("\n", " ")


def test_cause_is_read_from_the_second_line_of_a_hook_error() -> None:
    pod = documents("56-k8s-hook-error-in-second-line")["pod"]
    found = problem([pod], {"p-0": 0.0}, 1000.0)
    assert found
    name, reason = found
    assert name == "p-0"
    assert "pod p-0 on node-a" in reason.sentence
    assert "driver/library version mismatch" in reason.sentence
    assert reason.code == "log-driver-mismatch"
    assert "reboot" in (CATALOG["log-driver-mismatch"].next_step or "")


def test_a_sandbox_without_a_runtime_is_told_while_the_run_waits() -> None:
    case = documents("58-k8s-sandbox-has-no-nvidia-runtime")
    seen = SeenObjects()
    seen.take_pods([case["pod"]])
    seen.take_event(case["event"], 0.0)
    assert (
        'no runtime for "nvidia" is configured'
        in describe_progress(seen.pods.values(), 1, None, seen.unmounted).sentence
    )


def test_an_eviction_for_pods_that_were_not_ready_is_told_from_one_for_others() -> None:
    queued = waits_for(documents("59-kueue-evicted-pods-not-ready")["workload"])
    assert queued and queued.reason.code == "evicted-pods-not-ready"
    assert "own pods were not ready" in CATALOG["evicted-pods-not-ready"].meaning


def test_registry_error_is_kept_though_advice_follows_it() -> None:
    log = (CASES / "61-slurm-bringup-advice-hides-401" / "nodes.log").read_text()
    (words,) = read_nodes_log(log).last_lines.values()
    assert "401 Unauthorized" in words and "registry-1.docker.io" in words


def test_what_nvidia_smi_says_when_it_fails_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{CASES / '63-node-nvml-mismatch-advice'}:{os.environ['PATH']}")
    assert facts.gpu_models() is None
    cause = cause_in(facts.gpu_problem())
    assert cause and cause.code == "log-driver-mismatch" and "reboot" in cause.next_step


def test_a_gpu_that_requires_a_reset_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PATH", f"{CASES / '64-inventory-loses-gpu-that-requires-reset'}:{os.environ['PATH']}"
    )
    # They import each other by file name
    monkeypatch.syspath_prepend(str(Path(probes.__file__).parent))
    inventory = importlib.import_module("inventory")
    gpus = inventory.gpu_list(time.monotonic() + 60)
    assert [(gpu["name"], gpu["requires_reset"]) for gpu in gpus] == [
        ("gpu-0", False),
        ("gpu-1", True),
    ]
