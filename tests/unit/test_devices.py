"""What the check `devices` makes of what its probe prints; the nodes are fakes."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.contract import CheckContext
from seatrial.checks.devices.check import DEVICES
from seatrial.checks.devices.section import Devices, Disk
from seatrial.checks.repeated import Doubt
from seatrial.checks.repeats import measure_again
from seatrial.checks.requirements import try_check
from seatrial.checks.suites import load_suite
from seatrial.config.run import Run
from seatrial.judge.baselines.tolerance import tolerance_of
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import code_of
from seatrial.model.result import Check
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.platforms.fake import FakePlatform, ProgramOutput


def device(name: str = "cpu", **changes: Any) -> dict[str, Any]:
    """One device as the probe prints it."""
    healthy = {"model": "H100", "library": "torch", "dtype": "bfloat16", "size": 8192, "wrong": "", "error": ""}
    rates = {"matmul_tflops": [600.0, 700.0, 800.0], "copy_gb_s": [2000.0, 2100.0]}
    return {"device": name, **healthy, **rates, **changes}


def gpus(count: int, **changes: Any) -> list[dict[str, Any]]:
    """That many GPUs, of which the last has `changes`."""
    return [device(f"cuda:{i}", **(changes if i == count - 1 else {})) for i in range(count)]


def answer(*devices: dict[str, Any]) -> str:
    return f"a login greets first\n{json.dumps({'devices': devices})}\n"


class Lab:
    """Four nodes; `says` is what the probe prints on each."""

    def __init__(self, folder: Path, gpus: int = 0) -> None:
        self.platform = FakePlatform(nodes=4)
        suite = load_suite("quick").model_copy(update={"devices": Devices(timeout_s=5)})
        hardware = {"hardware": "H100-SXM", "gpus_per_node": gpus} if gpus else {}
        self.run = Run("run-1", self.platform.cluster(**hardware), suite, folder)
        self.testbed: Testbed = self.platform.launch(self.run)

    def says(self, output: ProgramOutput | str, *nodes: str) -> None:
        for name in nodes or self.platform.nodes:
            self.platform.nodes[name].programs["devices.py"] = lambda request: output

    def says_of_disk(self, answer: dict[str, Any], *nodes: str) -> None:
        for name in nodes or self.platform.nodes:
            self.platform.nodes[name].programs["disk.py"] = lambda request: json.dumps(answer)

    def suite(self, **section: Any) -> None:
        """What the suite asks of devices."""
        devices = Devices(**{"timeout_s": 5, **section})
        self.run = replace(self.run, suite=self.run.suite.model_copy(update={"devices": devices}))

    @property
    def context(self) -> CheckContext:
        return CheckContext(self.run, self.testbed)

    def check(self) -> tuple[Check, list[str]]:
        """The check, and the nodes that are left."""
        result = try_check(DEVICES, self.context)
        return result.check, [node.name for node in result.testbed.nodes]


ALL = ["node-0", "node-1", "node-2", "node-3"]


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """Labs that are taken down after the test."""
    labs: list[Lab] = []

    def made(gpus: int = 0) -> Lab:
        labs.append(Lab(tmp_path, gpus))
        return labs[-1]

    yield made
    for lab in labs:
        lab.platform.teardown("run-1")


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab()


def test_every_gpu_is_measured(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(gpus=2)
    lab.says(answer(*gpus(2)))
    check, left = lab.check()
    assert (check.verdict, left) == (Verdict.PASS, ALL)
    assert check.reason == "8 devices of 4 nodes were measured"
    matmul, copy = [m for m in check.measurements if m.subject.name == "node-3/gpu-1"]
    assert (matmul.metric, matmul.value, matmul.unit, matmul.subject.kind) == ("matmul", 700.0, "TFLOP/s", "gpu")
    assert matmul.conditions == {"device": "H100", "dtype": "bfloat16", "size": 8192}
    assert (copy.metric, copy.value, copy.unit) == ("memory_copy", 2050.0, "GB/s")
    assert copy.samples == (2000.0, 2100.0)


def test_without_gpus_the_node_is_measured(lab: Lab) -> None:
    lab.says(answer(device()))
    check, _ = lab.check()
    assert {(m.subject.kind, m.subject.name) for m in check.measurements} == {("node", name) for name in ALL}


def test_numbers_of_two_libraries_are_two_series(lab: Lab) -> None:
    lab.says(answer(device(library="torch")))
    lab.says(answer(device(library="numpy")), "node-1")
    check, _ = lab.check()
    libraries = {(m.subject.name, m.metric): m.conditions.get("library") for m in check.measurements}
    assert {libraries["node-0", metric] for metric in ("matmul", "memory_copy")} == {None}
    assert {libraries["node-1", metric] for metric in ("matmul", "memory_copy")} == {"numpy"}


def test_the_probe_is_told_how_many_gpus_the_node_should_have(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(gpus=2)
    lab.says(answer(*gpus(2)))
    lab.check()
    (command,) = [command for command in lab.platform.nodes["node-3"].commands if "--gpus" in command]
    assert command[command.index("--gpus") + 1] == "2"


def test_a_gpu_that_computes_wrongly_is_named(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(gpus=2)
    lab.says(answer(*gpus(2)))
    lab.says(answer(*gpus(2, wrong="a copy differs from its source")), "node-2")
    check, left = lab.check()
    assert (check.verdict, code_of(check.reason)) == (Verdict.CORRUPT, "wrong-result")
    assert [(suspect.kind, suspect.name) for suspect in check.suspects] == [("gpu", "node-2/gpu-1")]
    assert left == ["node-0", "node-1", "node-3"]


def digested(digest: str, **changes: Any) -> dict[str, Any]:
    """A device without rounding errors of its own, and what its results depend on."""
    return device(**{"software": "torch 2.9", "digests": {"float32": digest * 16}, **changes})


def rate(metric: str, *samples: float, **conditions: Any) -> dict[str, Any]:
    return {"metric": metric, "conditions": conditions, "samples": samples}


def test_what_a_suite_asks_for_is_measured(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(gpus=1)
    rates = [
        rate("matmul_best", 700.0, 720.0, 710.0, dtype="bf16"),
        rate("host_to_device", 55.0, at_once=1),
        rate("peer_copy", 350.0, peer="gpu-1"),
        rate("gpu_power", 687.0, during="stress"),
    ]
    lab.says(answer(device("cuda:0", rates=rates)))
    lab.suite(dtypes=("bf16",), host_link=True, memory_share=0.9, stress_s=1, timeout_s=10)
    check, _ = lab.check()
    best, link, peer, power = [m for m in check.measurements if m.subject.name == "node-2/gpu-0"][2:]
    assert (best.value, best.unit, best.conditions) == (710.0, "TFLOP/s", {"device": "H100", "dtype": "bf16"})
    assert (link.value, link.conditions["at_once"], peer.conditions["peer"]) == (55.0, 1, "gpu-1")
    assert (power.value, power.unit, power.better) == (687.0, "W", None)
    (command,) = [command for command in lab.platform.nodes["node-3"].commands if "--gpus" in command]
    line = " ".join(command)
    assert "--memory-share 0.9 --stress-s 1 --dtypes bf16 --host-link" in line
    assert "--peers" not in line


@pytest.mark.parametrize(
    "bad",
    [
        rate("matmul_best", dtype="bf16"),
        rate("matmul_best", float("nan"), dtype="bf16"),
        rate("matmul_best", 1.0, dtype="int1"),
        rate("speed", 1.0),
        rate("peer_copy", 1.0, peer="../etc"),
        rate("host_to_device", 1.0, at_once=0),
    ],
)
def test_a_rate_that_is_none_is_refused(lab: Lab, bad: dict[str, Any]) -> None:
    lab.says(answer(device()))
    lab.says(answer(device(rates=[bad])), "node-1")
    check, left = lab.check()
    assert (check.verdict, code_of(check.reason)) == (Verdict.FAIL, "probe-unreadable")
    assert "node-1" not in left


def test_every_node_writes_and_reads_its_disk(lab: Lab) -> None:
    lab.says(answer(device()))
    lab.says_of_disk({"tool": "fio", "filesystem": "xfs", "write_mb_s": 900.0, "read_mb_s": 2000.0, "wrong": ""})
    lab.suite(disk=Disk(folder="/scratch", bytes=1 << 30))
    check, _ = lab.check()
    write, read = [m for m in check.measurements if m.subject.name == "node-1"][2:]
    assert (write.metric, write.value, write.unit) == ("disk_write", 900.0, "MB/s")
    assert read.conditions == {"tool": "fio", "filesystem": "xfs"}
    (command,) = [command for command in lab.platform.nodes["node-3"].commands if "--folder" in command]
    assert f"--bytes {1 << 30} --seconds 5 --timeout-s 5 --folder /scratch" in " ".join(command)


@pytest.mark.parametrize(
    ("said", "verdict", "code"),
    [
        (
            {"tool": "python", "write_mb_s": 9.0, "read_mb_s": 9.0, "wrong": "the block at byte 0"},
            "corrupt",
            "disk-wrong",
        ),
        ({"error": "[Errno 5] Input/output error"}, "fail", "probe-failed"),
        ({"tool": "dd", "write_mb_s": 9.0, "read_mb_s": 9.0}, "fail", "probe-unreadable"),
    ],
)
def test_a_node_with_a_bad_disk_is_named(lab: Lab, said: dict[str, Any], verdict: str, code: str) -> None:
    lab.says(answer(device()))
    lab.says_of_disk({"tool": "fio", "filesystem": "xfs", "write_mb_s": 900.0, "read_mb_s": 2000.0, "wrong": ""})
    lab.says_of_disk(said, "node-1")
    lab.suite(disk=Disk())
    check, left = lab.check()
    assert (check.verdict, code_of(check.reason)) == (verdict, code)
    assert [suspect.name for suspect in check.suspects] == ["node-1"]
    assert left == ["node-0", "node-2", "node-3"]


def test_disks_whose_machine_was_busy_are_not_blamed(lab: Lab) -> None:
    lab.says(answer(device()))
    lab.says_of_disk({})
    lab.suite(disk=Disk())
    check, left = lab.check()
    assert (check.verdict, code_of(check.reason), left) == (Verdict.INCONCLUSIVE, "probe-busy", ALL)


def test_a_doubtful_disk_alone_is_measured_again(lab: Lab) -> None:
    lab.says(answer(device()))
    lab.says_of_disk({"tool": "fio", "filesystem": "xfs", "write_mb_s": 900.0, "read_mb_s": 2000.0, "wrong": ""})
    lab.suite(disk=Disk())
    check, _ = lab.check()
    before = len(lab.platform.nodes["node-2"].commands)
    slow = [m for m in check.measurements if m.subject.name == "node-2" and m.metric == "disk_write"]
    repeated = measure_again(lab.context, {"devices": [Doubt(m, 1, 3) for m in slow]})["devices"]
    assert [m.series() for m in repeated.measurements] == [m.series() for m in slow]
    (command,) = lab.platform.nodes["node-2"].commands[before:]
    assert any(word.endswith("/disk.py") for word in command)


def test_only_what_is_in_doubt_is_measured_again() -> None:
    section = Devices(dtypes=("bf16",), host_link=True, peers=True, memory_share=0.9, stress_s=60, timeout_s=600)
    assert section.only({"matmul"}).arguments(1) == [
        *("--seconds", "0.3", "--timeout-s", "600", "--gpus", "1"),
        *("--rounds", "1", "--memory-share", "0", "--stress-s", "0"),
    ]
    again = section.only({"matmul_stress", "device_to_host", "peer_copy", "matmul_best"})
    assert again == section.model_copy(update={"memory_share": 0.0})


def test_stress_must_leave_time_for_the_rest() -> None:
    with pytest.raises(ValueError, match=r"stress_s is 60, which needs a timeout_s above 120, is 100"):
        Devices(stress_s=60, timeout_s=100)


def test_a_gpu_varies_less_than_processors() -> None:
    conditions = {"device": "x"}
    gpu, node = (Measurement("matmul", 1.0, "TFLOP/s", Subject(kind, "node-0"), conditions) for kind in ("gpu", "node"))
    assert tolerance_of(gpu).cap < 2 < tolerance_of(node).cap


def test_the_minority_computes_wrongly(lab: Lab) -> None:
    lab.says(answer(digested("a")))
    lab.says(answer(digested("b")), "node-2")
    check, left = lab.check()
    assert (check.verdict, code_of(check.reason)) == (Verdict.CORRUPT, "digest-differs")
    assert [(suspect.kind, suspect.name) for suspect in check.suspects] == [("node", "node-2")]
    assert left == ["node-0", "node-1", "node-3"]


def test_a_gpu_is_held_against_those_of_other_nodes(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(gpus=2)
    like = {"software": "torch 2.9", "digests": {"bfloat16": "a" * 16}}
    lab.says(answer(device("cuda:0", **like), device("cuda:1", **like)))
    lab.says(
        answer(device("cuda:0", **like), device("cuda:1", **{**like, "digests": {"bfloat16": "b" * 16}})), "node-1"
    )
    check, _ = lab.check()
    assert [(suspect.kind, suspect.name) for suspect in check.suspects] == [("gpu", "node-1/gpu-1")]
    assert "of 7 like devices" in check.reason


def test_without_a_majority_nobody_is_blamed(lab: Lab) -> None:
    lab.says(answer(digested("a")), "node-0", "node-1")
    lab.says(answer(digested("b")), "node-2", "node-3")
    check, left = lab.check()
    assert (check.verdict, code_of(check.reason)) == (Verdict.INCONCLUSIVE, "digests-divided")
    assert all(name in check.reason for name in ALL)
    assert (check.suspects, left) == ((), ALL)


@pytest.mark.parametrize(
    "other", [{"model": "H200"}, {"library": "numpy"}, {"software": "torch 2.8"}], ids=["model", "library", "software"]
)
def test_only_like_devices_must_compute_alike(lab: Lab, other: dict[str, Any]) -> None:
    lab.says(answer(digested("a")))
    lab.says(answer(digested("b", **other)), "node-2")
    check, left = lab.check()
    assert (check.verdict, check.suspects, left) == (Verdict.PASS, (), ALL)


def test_a_device_that_is_known_to_be_wrong_has_no_say(lab: Lab) -> None:
    lab.says(answer(digested("a")), "node-0", "node-1")
    lab.says(answer(digested("b")), "node-2")
    lab.says(answer(digested("b", wrong="a copy differs from its source")), "node-3")
    check, _ = lab.check()
    evidence = {suspect.name: code_of(suspect.evidence) for suspect in check.suspects}
    assert evidence == {"node-2": "digest-differs", "node-3": "wrong-result"}


@pytest.mark.parametrize(
    ("output", "code"),
    [
        (answer(device(error="CUDA error: an illegal memory access\x1b[2J", matmul_tflops=[])), "probe-failed"),
        (answer(device(copy_gb_s=[])), "probe-failed"),
        (json.dumps({"error": "torch cannot be imported"}), "probe-failed"),
        (ProgramOutput("Segmentation fault", 139), "probe-unreadable"),
        (ProgramOutput("", 137), "probe-killed"),
        (ProgramOutput("", 1), "probe-unreadable"),
        (answer(device("tpu:0")), "probe-unreadable"),
        (answer(device(matmul_tflops=[-1.0])), "probe-unreadable"),
        (answer(device(matmul_tflops=[1e300])), "probe-unreadable"),
        (answer(device(size="8192")), "probe-unreadable"),
        (answer(device(library="abacus")), "probe-unreadable"),
        ('{"devices": [{"device": "cpu", "matmul_tflops": [NaN]}]}', "probe-unreadable"),
        ('{"devices": ' + "[" * 100_000, "probe-unreadable"),
    ],
)
def test_a_node_whose_device_cannot_be_measured_is_named(lab: Lab, output: ProgramOutput | str, code: str) -> None:
    lab.says(answer(device()))
    lab.says(output, "node-1")
    check, left = lab.check()
    assert (check.verdict, code_of(check.reason)) == (Verdict.FAIL, code)
    assert [suspect.name for suspect in check.suspects] == ["node-1"]
    assert left == ["node-0", "node-2", "node-3"]
    assert "\x1b" not in check.reason
    assert len(check.reason) < 600


def test_a_node_that_hangs_is_named(lab: Lab) -> None:
    lab.says(answer(device()))
    lab.says(ProgramOutput(hangs=True), "node-1")
    lab.run = replace(lab.run, suite=lab.run.suite.model_copy(update={"devices": Devices(timeout_s=0.3)}))
    check, _ = lab.check()
    assert (check.verdict, code_of(check.reason)) == (Verdict.FAIL, "probe-timeout")
    assert [suspect.name for suspect in check.suspects] == ["node-1"]


def test_what_all_nodes_lack_is_no_nodes_fault(lab: Lab) -> None:
    lab.says(json.dumps({"error": "torch cannot be imported"}))
    check, left = lab.check()
    assert (check.verdict, check.suspects, left) == (Verdict.FAIL, (), ALL)


def test_gpus_that_torch_does_not_see_are_no_pass(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(gpus=2)
    lab.says(answer(*gpus(2)))
    lab.says(answer(device()), "node-1")
    check, left = lab.check()
    assert (check.verdict, code_of(check.reason)) == (Verdict.FAIL, "probe-failed")
    assert check.reason == "node-1: devices cannot measure: torch sees 0 of 2 GPUs"
    assert "node-1" not in left


def test_nodes_whose_machine_was_busy_are_not_blamed(lab: Lab) -> None:
    lab.says(answer(device()))
    lab.says(answer(), "node-1", "node-2")
    check, left = lab.check()
    assert (check.verdict, code_of(check.reason)) == (Verdict.INCONCLUSIVE, "probe-busy")
    assert (check.suspects, left) == ((), ALL)


def test_only_nodes_in_doubt_are_measured_again(lab: Lab) -> None:
    lab.says(answer(device()))
    check, _ = lab.check()
    commands = {name: len(node.commands) for name, node in lab.platform.nodes.items()}
    slow = [m for m in check.measurements if m.subject.name == "node-2" and m.metric == "matmul"]
    repeated = measure_again(lab.context, {"devices": [Doubt(m, 1, 3) for m in slow]})["devices"]
    assert [m.series() for m in repeated.measurements] == [m.series() for m in slow]
    again = {name: len(node.commands) - commands[name] for name, node in lab.platform.nodes.items()}
    assert again == {"node-0": 0, "node-1": 0, "node-2": 1, "node-3": 0}


def test_a_device_that_breaks_when_it_is_repeated_is_blamed(lab: Lab) -> None:
    lab.says(answer(device()))
    check, _ = lab.check()
    lab.says(answer(device(wrong="a copy differs from its source")), "node-2")
    doubts = [Doubt(m, 1, 3) for m in check.measurements if m.subject.name == "node-2"]
    repeated = measure_again(lab.context, {"devices": doubts})["devices"]
    assert [suspect.name for suspect in repeated.suspects] == ["node-2"]
    assert [verdict for verdict, _ in repeated.problems] == [Verdict.CORRUPT]
