"""What the check `devices` measures, what it measures again, and what it refuses as a
measurement.
"""

from collections.abc import Callable
from typing import Any

import pytest

from seatrial.checks.devices.section import Devices, Disk
from seatrial.checks.metrics import Doubt, tolerance_of
from seatrial.checks.table import repeat_checks
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.verdict import Verdict
from tests.unit.devices.lab import ALL, Lab, answer, device, gpus, rate


def test_every_gpu_is_measured(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(gpus=2)
    lab.says(answer(*gpus(2)))
    check, left = lab.check()
    assert (check.verdict, left) == (Verdict.PASS, ALL)
    assert check.reason.sentence == "8 devices of 4 nodes were measured"
    matmul, copy = [m for m in check.measurements if m.subject.name == "node-3/gpu-1"]
    assert (matmul.metric, matmul.value, matmul.unit, matmul.subject.kind) == (
        "matmul",
        700.0,
        "TFLOP/s",
        "gpu",
    )
    assert matmul.conditions == {"device": "H100", "dtype": "bfloat16", "size": 8192}
    assert (copy.metric, copy.value, copy.unit) == ("memory_copy", 2050.0, "GB/s")
    assert copy.samples == (2000.0, 2100.0)


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (gpus(1), "node-0: matmul 700 TFLOP/s, memory copy 2,050 GB/s"),
        (
            gpus(2, copy_gb_s=[3010.4], matmul_tflops=[1.5]),
            "node-0: 2 devices, the slowest matmul 1.50 TFLOP/s, memory copy 3,010 GB/s",
        ),
        (gpus(1, error="CUDA error: out of memory"), "node-0: no healthy device of 1"),
    ],
)
def test_log_line_of_a_node_shows_its_slowest_device(
    says: list[dict[str, Any]],
    words: str,
    make_lab: Callable[..., Lab],
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = make_lab(gpus=len(says))
    lab.says(answer(*says))
    with caplog.at_level("INFO", "seatrial"):
        lab.check()
    assert words in caplog.messages


def test_without_gpus_the_node_is_measured(lab: Lab) -> None:
    lab.says()
    check, _ = lab.check()
    assert {(m.subject.kind, m.subject.name) for m in check.measurements} == {
        ("node", name) for name in ALL
    }


def test_numbers_of_two_libraries_are_two_series(lab: Lab) -> None:
    lab.says(answer(device(library="torch")))
    lab.says(answer(device(library="numpy")), "node-1")
    check, _ = lab.check()
    libraries = {
        (m.subject.name, m.metric): m.conditions.get("library") for m in check.measurements
    }
    assert {libraries["node-0", metric] for metric in ("matmul", "memory_copy")} == {None}
    assert {libraries["node-1", metric] for metric in ("matmul", "memory_copy")} == {"numpy"}


def test_the_probe_is_told_how_many_gpus_the_node_should_have(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(gpus=2)
    lab.says(answer(*gpus(2)))
    lab.check()
    (command,) = [
        command for command in lab.platform.nodes["node-3"].commands if "--gpus" in command
    ]
    assert command[command.index("--gpus") + 1] == "2"


def test_measurements_set_in_the_suite_are_taken(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(gpus=1)
    rates = [
        rate("matmul_best", 700.0, 720.0, 710.0, dtype="bf16"),
        rate("host_to_device", 55.0, at_once=1),
        rate("peer_copy", 350.0, peer="gpu-1"),
        rate("gpu_power", 687.0, during="stress"),
    ]
    lab.says(answer(device("cuda:0", rates=rates)))
    lab.suite(dtypes=("bf16",), host_link=True, memory_share=0.9, stress_s=1)
    check, _ = lab.check()
    best, link, peer, power = [m for m in check.measurements if m.subject.name == "node-2/gpu-0"][
        2:
    ]
    assert (best.value, best.unit, best.conditions) == (
        710.0,
        "TFLOP/s",
        {"device": "H100", "dtype": "bf16"},
    )
    assert (link.value, link.conditions["at_once"], peer.conditions["peer"]) == (55.0, 1, "gpu-1")
    assert (power.value, power.unit, power.better) == (687.0, "W", None)
    (command,) = [
        command for command in lab.platform.nodes["node-3"].commands if "--gpus" in command
    ]
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
def test_an_invalid_rate_is_refused(lab: Lab, bad: dict[str, Any]) -> None:
    lab.says()
    lab.says(answer(device(rates=[bad])), "node-1")
    check, left = lab.check()
    assert (check.verdict, check.reason.code) == (Verdict.FAIL, "probe-failed")
    assert "node-1" not in left


def test_every_node_writes_and_reads_its_disk(lab: Lab) -> None:
    lab.says()
    lab.says_of_disk(
        {"tool": "fio", "filesystem": "xfs", "write_mb_s": 900.0, "read_mb_s": 2000.0, "wrong": ""}
    )
    lab.suite(disk=Disk(folder="/scratch", bytes=1 << 30))
    check, _ = lab.check()
    write, read = [m for m in check.measurements if m.subject.name == "node-1"][2:]
    assert (write.metric, write.value, write.unit) == ("disk_write", 900.0, "MB/s")
    assert read.conditions == {"tool": "fio", "filesystem": "xfs"}
    (command,) = [
        command for command in lab.platform.nodes["node-3"].commands if "--folder" in command
    ]
    assert f"--bytes {1 << 30} --seconds 5 --timeout-s 600 --folder /scratch" in " ".join(command)


def test_only_the_doubtful_disk_is_measured_again(lab: Lab) -> None:
    lab.says()
    lab.says_of_disk(
        {"tool": "fio", "filesystem": "xfs", "write_mb_s": 900.0, "read_mb_s": 2000.0, "wrong": ""}
    )
    lab.suite(disk=Disk())
    check, _ = lab.check()
    before = len(lab.platform.nodes["node-2"].commands)
    slow = [
        m for m in check.measurements if m.subject.name == "node-2" and m.metric == "disk_write"
    ]
    repeated = repeat_checks(lab.context, {"devices": [Doubt(m, 1, 3) for m in slow]})["devices"]
    assert [m.series() for m in repeated.measurements] == [m.series() for m in slow]
    (command,) = lab.platform.nodes["node-2"].commands[before:]
    assert any(word.endswith("/disk.py") for word in command)


def test_only_doubtful_metrics_are_measured_again() -> None:
    section = Devices(
        dtypes=("bf16",), host_link=True, peers=True, memory_share=0.9, stress_s=60, timeout_s=600
    )
    assert section.only({"matmul"}).arguments(1) == [
        *("--seconds", "0.3", "--timeout-s", "600", "--gpus", "1"),
        *("--rounds", "1", "--memory-share", "0", "--stress-s", "0"),
    ]
    again = section.only({"matmul_stress", "device_to_host", "peer_copy", "matmul_best"})
    assert again == section.model_copy(update={"memory_share": 0.0})


def test_stress_time_must_fit_in_the_timeout() -> None:
    with pytest.raises(
        ValueError, match=r"stress_s is 60, which needs a timeout_s above 120, is 100"
    ):
        Devices(stress_s=60, timeout_s=100)


def test_gpu_tolerance_is_smaller_than_cpu_tolerance() -> None:
    conditions = {"device": "x"}
    gpu, node = (
        Measurement("matmul", 1.0, "TFLOP/s", Subject(kind, "node-0"), conditions)
        for kind in ("gpu", "node")
    )
    assert tolerance_of(gpu).cap < 2 < tolerance_of(node).cap


def test_only_nodes_in_doubt_are_measured_again(lab: Lab) -> None:
    lab.says()
    check, _ = lab.check()
    commands = {name: len(node.commands) for name, node in lab.platform.nodes.items()}
    slow = [m for m in check.measurements if m.subject.name == "node-2" and m.metric == "matmul"]
    repeated = repeat_checks(lab.context, {"devices": [Doubt(m, 1, 3) for m in slow]})["devices"]
    assert [m.series() for m in repeated.measurements] == [m.series() for m in slow]
    again = {name: len(node.commands) - commands[name] for name, node in lab.platform.nodes.items()}
    assert again == {"node-0": 0, "node-1": 0, "node-2": 1, "node-3": 0}
