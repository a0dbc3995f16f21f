"""Whom the check `devices` blames for what its probe prints, and whom it does not."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from seatrial.checks.devices.section import Devices, Disk
from seatrial.checks.metrics import Doubt
from seatrial.checks.table import repeat_checks
from seatrial.config.run import setup_of
from seatrial.model.reason import Reason
from seatrial.model.verdict import Verdict
from seatrial.tasks.check import compare
from tests.fake_platform import ProgramOutput
from tests.stored_nights import as_before
from tests.suspects import kinds_and_names, suspect_names
from tests.unit.devices.lab import ALL, Lab, answer, device, gpus, rate


def test_a_gpu_that_computes_wrongly_is_named(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(gpus=2)
    lab.says(answer(*gpus(2)))
    lab.says(answer(*gpus(2, wrong="a copy differs from its source")), "node-2")
    check, left = lab.check()
    assert (check.verdict, check.reason.code) == (Verdict.CORRUPT, "wrong-result")
    assert kinds_and_names(check) == [("gpu", "node-2/gpu-1")]
    assert left == ["node-0", "node-1", "node-3"]


def digested(digest: str, **changes: Any) -> dict[str, Any]:
    """A device without rounding errors of its own, and what its results depend on."""
    return device(**{"software": "torch 2.9", "digests": {"float32": digest * 16}, **changes})


@pytest.mark.parametrize(
    ("output", "verdict", "code"),
    [
        (
            {"tool": "python", "write_mb_s": 9.0, "read_mb_s": 9.0, "wrong": "the block at byte 0"},
            "corrupt",
            "disk-wrong",
        ),
        ({"error": "[Errno 5] Input/output error"}, "fail", "probe-failed"),
        ({"tool": "dd", "write_mb_s": 9.0, "read_mb_s": 9.0}, "fail", "probe-failed"),
    ],
)
def test_a_node_with_a_bad_disk_is_named(
    lab: Lab, output: dict[str, Any], verdict: str, code: str
) -> None:
    lab.says()
    lab.says_of_disk(
        {"tool": "fio", "filesystem": "xfs", "write_mb_s": 900.0, "read_mb_s": 2000.0, "wrong": ""}
    )
    lab.says_of_disk(output, "node-1")
    lab.suite(disk=Disk())
    check, left = lab.check()
    assert (check.verdict, check.reason.code) == (verdict, code)
    assert suspect_names(check) == ["node-1"]
    assert left == ["node-0", "node-2", "node-3"]


def test_disks_whose_machine_was_busy_are_not_blamed(lab: Lab) -> None:
    lab.says()
    lab.says_of_disk({})
    lab.suite(disk=Disk())
    check, left = lab.check()
    assert (check.verdict, check.reason.code, left) == (Verdict.INCONCLUSIVE, "probe-busy", ALL)


def test_a_gpu_that_is_slower_than_its_peers_is_named_on_the_first_night(
    make_lab: Callable[..., Lab],
) -> None:
    """Three quarters of what the others reach: no processor would be suspected for it."""
    lab = make_lab(gpus=2)

    def gpu_pair(slow: float) -> str:
        rates = [
            rate("matmul_best", *(700.0 * slow * (1 + i / 1000) for i in range(5)), dtype="bf16")
        ]
        like = {"matmul_tflops": [700.0, 702.0, 701.0], "copy_gb_s": [2900.0, 2910.0]}
        return answer(device("cuda:0", **like), device("cuda:1", rates=rates, **like))

    lab.says(gpu_pair(1.0))
    lab.says(gpu_pair(0.7), "node-2")
    check, _ = lab.check()
    (judged,) = compare([check], setup_of(lab.run.cluster), repeat=as_before)
    assert judged.verdict in (Verdict.DEGRADED, Verdict.FAIL)
    assert suspect_names(judged) == ["node-2/gpu-1"]


def test_node_whose_digest_differs_from_the_majority_is_corrupt(lab: Lab) -> None:
    lab.says(answer(digested("a")))
    lab.says(answer(digested("b")), "node-2")
    check, left = lab.check()
    assert (check.verdict, check.reason.code) == (Verdict.CORRUPT, "digest-differs")
    assert kinds_and_names(check) == [("node", "node-2")]
    assert left == ["node-0", "node-1", "node-3"]


def test_wrong_results_of_several_formats_are_one_reason(lab: Lab) -> None:
    lab.says(answer(digested("a", digests={"float32": "a" * 16, "bfloat16": "a" * 16})))
    lab.says(answer(digested("a", digests={"float32": "b" * 16, "bfloat16": "c" * 16})), "node-2")
    check, _ = lab.check()
    (suspect,) = check.suspects
    assert suspect.evidence == Reason.of("digest-differs", dtypes="float32, bfloat16", count=3)


def test_a_gpu_is_held_against_those_of_other_nodes(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(gpus=2)
    like = {"software": "torch 2.9", "digests": {"bfloat16": "a" * 16}}
    lab.says(answer(device("cuda:0", **like), device("cuda:1", **like)))
    lab.says(
        answer(
            device("cuda:0", **like),
            device("cuda:1", **{**like, "digests": {"bfloat16": "b" * 16}}),
        ),
        "node-1",
    )
    check, _ = lab.check()
    assert kinds_and_names(check) == [("gpu", "node-1/gpu-1")]
    assert "of 7 like devices" in check.reason.sentence


def test_without_a_majority_nobody_is_blamed(lab: Lab) -> None:
    lab.says(answer(digested("a")), "node-0", "node-1")
    lab.says(answer(digested("b")), "node-2", "node-3")
    check, left = lab.check()
    assert (check.verdict, check.reason.code) == (Verdict.INCONCLUSIVE, "digests-divided")
    assert all(name in check.reason.sentence for name in ALL)
    assert (check.suspects, left) == ((), ALL)


@pytest.mark.parametrize(
    "other",
    [{"model": "H200"}, {"library": "numpy"}, {"software": "torch 2.8"}],
    ids=["model", "library", "software"],
)
def test_digests_are_compared_only_between_like_devices(lab: Lab, other: dict[str, Any]) -> None:
    lab.says(answer(digested("a")))
    lab.says(answer(digested("b", **other)), "node-2")
    check, left = lab.check()
    assert (check.verdict, check.suspects, left) == (Verdict.PASS, (), ALL)


def test_a_device_known_to_be_wrong_does_not_vote(lab: Lab) -> None:
    lab.says(answer(digested("a")), "node-0", "node-1")
    lab.says(answer(digested("b")), "node-2")
    lab.says(answer(digested("b", wrong="a copy differs from its source")), "node-3")
    check, _ = lab.check()
    evidence = {suspect.name: suspect.evidence.code for suspect in check.suspects}
    assert evidence == {"node-2": "digest-differs", "node-3": "wrong-result"}


@pytest.mark.parametrize(
    ("output", "code"),
    [
        (
            answer(device(error="CUDA error: an illegal memory access\x1b[2J", matmul_tflops=[])),
            "probe-failed",
        ),
        (answer(device(copy_gb_s=[])), "probe-failed"),
        (json.dumps({"error": "torch cannot be imported"}), "probe-failed"),
        (ProgramOutput("Segmentation fault", 139), "probe-failed"),
        (ProgramOutput("", 137), "probe-killed"),
        (ProgramOutput("", 1), "probe-failed"),
        (answer(device("tpu:0")), "probe-failed"),
        (answer(device(matmul_tflops=[-1.0])), "probe-failed"),
        (answer(device(matmul_tflops=[1e300])), "probe-failed"),
        (answer(device(size="8192")), "probe-failed"),
        (answer(device(library="abacus")), "probe-failed"),
        ('{"devices": [{"device": "cpu", "matmul_tflops": [NaN]}]}', "probe-failed"),
        ('{"devices": ' + "[" * 100_000, "probe-failed"),
    ],
)
def test_a_node_whose_device_cannot_be_measured_is_named(
    lab: Lab, output: ProgramOutput | str, code: str
) -> None:
    lab.says()
    lab.says(output, "node-1")
    check, left = lab.check()
    assert (check.verdict, check.reason.code) == (Verdict.FAIL, code)
    assert suspect_names(check) == ["node-1"]
    assert left == ["node-0", "node-2", "node-3"]
    assert "\x1b" not in check.reason.sentence
    assert len(check.reason.sentence) < 600


def test_a_node_that_hangs_is_named(lab: Lab) -> None:
    lab.says()
    lab.says(ProgramOutput(hangs=True), "node-1")
    lab.run = replace(
        lab.run, suite=lab.run.suite.model_copy(update={"devices": Devices(timeout_s=0.3)})
    )
    check, _ = lab.check()
    assert (check.verdict, check.reason.code) == (Verdict.FAIL, "probe-timeout")
    assert [(suspect.name, suspect.confidence) for suspect in check.suspects] == [("node-1", 1.0)]


def test_probe_failure_on_all_nodes_blames_none(lab: Lab) -> None:
    lab.says(json.dumps({"error": "torch cannot be imported"}))
    check, left = lab.check()
    assert (check.verdict, check.suspects, left) == (Verdict.FAIL, (), ALL)


def test_node_whose_gpus_torch_does_not_see_fails(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(gpus=2)
    lab.says(answer(*gpus(2)))
    lab.says(answer(device()), "node-1")
    check, left = lab.check()
    assert (check.verdict, check.reason.code) == (Verdict.FAIL, "probe-failed")
    assert check.reason.sentence == "node-1: devices cannot measure: torch sees 0 of 2 GPUs"
    assert "node-1" not in left


def test_nodes_whose_machine_was_busy_are_not_blamed(lab: Lab) -> None:
    lab.says()
    lab.says(answer(), "node-1", "node-2")
    check, left = lab.check()
    assert (check.verdict, check.reason.code) == (Verdict.INCONCLUSIVE, "probe-busy")
    assert (check.suspects, left) == ((), ALL)


def test_a_device_that_breaks_when_it_is_repeated_is_blamed(lab: Lab) -> None:
    lab.says()
    check, _ = lab.check()
    lab.says(answer(device(wrong="a copy differs from its source")), "node-2")
    doubts = [Doubt(m, 1, 3) for m in check.measurements if m.subject.name == "node-2"]
    repeated = repeat_checks(lab.context, {"devices": doubts})["devices"]
    assert suspect_names(repeated) == ["node-2"]
    assert [problem.verdict for problem in repeated.problems] == [Verdict.CORRUPT]
