"""`seatrial suites`: what each suite does on given nodes, and how long it takes."""

import json
from pathlib import Path

import pytest

from seatrial.checks.contract import PlannedNodes, one_part
from seatrial.checks.devices.section import Devices
from seatrial.checks.suites import SHIPPED, Outline, SuiteFile, load_suite, outline, outlines
from seatrial.checks.table import CHECKS
from tests.command_line import command

GPUS, CPUS = PlannedNodes(4, 8, gpus=True), PlannedNodes(4, 1, gpus=False)
MINUTE = 60


@pytest.mark.parametrize(("timeout_s", "about_s"), [(10, 10), (120, 15)])
def test_estimate_of_a_check_without_a_plan_is_capped_by_its_timeout(
    timeout_s: int, about_s: int
) -> None:
    (part,) = one_part(Devices(timeout_s=timeout_s), GPUS)
    assert (part.about_s, part.most_s) == (about_s, timeout_s)


@pytest.mark.parametrize("nodes", [GPUS, CPUS], ids=["gpus", "cpus"])
def test_estimates_grow_from_quick_to_nightly_to_acceptance(nodes: PlannedNodes) -> None:
    about = {planned.suite: planned.about_s for planned in outlines(nodes)}
    assert about["quick"] < 2 * MINUTE
    assert about["quick"] < about["nightly"] < 30 * MINUTE
    assert about["nightly"] < about["acceptance"] < 120 * MINUTE
    assert about["acceptance"] > 10 * MINUTE


@pytest.mark.parametrize(
    "nodes", [GPUS, CPUS, PlannedNodes(1, 8, gpus=True), PlannedNodes(64, 8, gpus=True)]
)
def test_estimate_of_a_check_part_never_exceeds_its_timeout(nodes: PlannedNodes) -> None:
    for planned in outlines(nodes):
        for check, part in planned.parts:
            assert 0 < part.about_s <= part.most_s, (planned.suite, check, part)


def test_every_check_of_a_suite_is_listed_with_its_parts() -> None:
    planned = outline("nightly", GPUS)
    assert {check for check, _ in planned.parts} == {kind.name for kind in CHECKS} - {
        "dcgm",
        "rdma",
        "storage",
    }, "which are off"
    words = [part.what for _, part in planned.parts]
    assert "all_reduce (network): 64K to 8G, factor 2, 20 iterations" in words
    assert "50 sums of 2,000,000 elements by torch, each element checked" in words
    assert "llama 1b in bf16, batch 2 for each rank, 100 steps" in words


def test_checks_between_ranks_are_not_listed_for_one_rank() -> None:
    alone = outline("nightly", PlannedNodes(1, 1, gpus=False))
    assert "collectives" not in {check for check, _ in alone.parts}


def test_estimated_time_follows_the_training_steps_of_the_suite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def planned(**training: int) -> Outline:
        document = load_suite("quick").model_dump()
        document["training"]["gpu"] |= training
        changed = SuiteFile.model_validate(document)
        monkeypatch.setattr("seatrial.checks.suites.load_suite", lambda name: changed)
        return outline("quick", GPUS)

    usual, longer = planned(), planned(steps=10_000)
    assert longer.about_s > usual.about_s + 2 * MINUTE
    assert longer.most_s == usual.most_s


@pytest.mark.parametrize("words", [("suites",), ("run", "--suite", "list"), ("run", "--suite")])
def test_the_command_lists_every_suite(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines if line.split(":")[0] in SHIPPED] == list(SHIPPED)
    assert lines[-1].startswith("On 4 nodes with 8 GPUs. ")


def test_suite_list_uses_the_nodes_of_a_cluster_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("name: lab\nnodes: 2\nplatform: {kind: local}\n")
    assert command("run", str(file), "--suite", "list", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert {suite["nodes"] for suite in document["suites"]} == {"2 nodes with no GPU"}
    for suite in document["suites"]:
        assert suite["purpose"]
        assert abs(suite["about_s"] - sum(part["about_s"] for part in suite["parts"])) <= len(
            suite["parts"]
        )
    assert command("suites", "--nodes", "3", "--gpus-per-node", "0") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("On 3 nodes with no GPU. ")
