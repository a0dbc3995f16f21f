"""Output of other tools as checks: nvidia-smi -q of a real H100, and what the others print."""

import json
from pathlib import Path

import pytest

from seatrial.logs.cluster import LogsConfig
from seatrial.logs.judge import Log, judge_logs
from seatrial.model.errors import NothingFoundError
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.readers.parts import read_text
from seatrial.runs.explanations import CATALOG

H100 = (Path(__file__).parents[2] / "golden" / "nvidia-smi" / "h100-q.txt").read_text()


def check(text: str) -> Check:
    (read,) = read_text(text, "tool", "tool")
    assert isinstance(read, Check)
    return read


def field(name: str, before: str, after: str) -> str:
    old = next(
        line
        for line in H100.splitlines()
        if line.strip().startswith(name) and line.endswith(f": {before}")
    )
    return H100.replace(old, old.removesuffix(before) + after, 1)


def test_a_healthy_gpu_reports_no_fault() -> None:
    healthy = check(H100)
    assert (healthy.verdict, healthy.reason.sentence) == (
        Verdict.PASS,
        "nvidia-smi: 1 of 1 without a fault",
    )


@pytest.mark.parametrize(
    ("text", "verdict", "words"),
    [
        (
            field("GPU Recovery Action", "None", "Drain and Reset"),
            "fail",
            "the driver asks for: Drain and Reset",
        ),
        (field("Remapping Failure Occurred", "No", "Yes"), "fail", "could not be remapped"),
        (field("HW Slowdown", "Not Active", "Active"), "degraded", "slowed down by hardware"),
        (field("DRAM Uncorrectable", "0", "3"), "degraded", "uncorrectable memory errors (3)"),
        (field("Current", "16x", "8x"), "degraded", "PCIe x8 of x16"),
        (field("State", "N/A", "In Progress"), "fail", "not registered with its fabric"),
        (field("Performance State", "P0", "[GPU requires reset]"), "fail", "it requires a reset"),
    ],
)
def test_faults_in_nvidia_smi_output_are_reported(text: str, verdict: str, words: str) -> None:
    read = check(text)
    assert (read.verdict.value, words in read.reason.sentence) == (verdict, True), read.reason
    assert "GPU 00000000:00:06.0" in read.reason.sentence
    assert CATALOG[read.reason.code or ""].next_step


LSPCI = """\
16:01.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x0 (downgraded)
1b:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)
\tSubsystem: NVIDIA Corporation Device 16c1
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16
"""


def test_lspci_reports_missing_lanes_but_no_lower_speed_and_no_bridges() -> None:
    assert (check(LSPCI).verdict, check(LSPCI).reason.sentence) == (
        Verdict.PASS,
        "lspci: 1 of 1 without a fault",
    )
    narrow = check(LSPCI.replace("Width x16\n", "Width x8 (downgraded)\n"))
    assert (narrow.verdict, narrow.reason.code) == (Verdict.DEGRADED, "tool-pcie-lanes")
    assert (
        "1b:00.0 (NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)): x8 of x16 lanes"
        in narrow.reason.sentence
    )


def diagnostic(**result: object) -> str:
    tests = [
        {
            "name": "Memory",
            "results": [{"gpu_ids": "0", "status": "PASS"}, {"gpu_ids": "1", **result}],
        }
    ]
    return json.dumps(
        {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}}
    )


def test_dcgmi_names_the_gpu_of_a_test_that_failed() -> None:
    failed = check(diagnostic(status="FAIL", warnings=["an uncorrectable error"]))
    assert (failed.verdict, failed.reason.sentence) == (
        Verdict.FAIL, "dcgmi diag: Memory fail on GPU 1: an uncorrectable error",
    )  # fmt: skip
    newer = {
        "status": "Fail",
        "entity_group": "GPU",
        "entity_id": 3,
        "warnings": [{"warning": "row remap", "error_id": 1}],
    }
    del newer["entity_group"]
    assert check(diagnostic(status="Warn")).verdict is Verdict.DEGRADED
    assert check(diagnostic(status="PASS")).verdict is Verdict.PASS
    assert "row remap" in check(diagnostic(**newer)).reason.sentence


DCGM_TEXT = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
| Software                  | Pass - All                                     |
| PCIe                      | Skip - All                                     |
| Memory Bandwidth          | {}|
+---------------------------+------------------------------------------------+
"""


@pytest.mark.parametrize(
    ("result", "verdict"),
    [("Pass - All", Verdict.PASS), ("Fail - GPU: 5", Verdict.FAIL), ("Warn", Verdict.DEGRADED)],
)
def test_the_table_of_dcgmi_is_read(result: str, verdict: Verdict) -> None:
    assert check(DCGM_TEXT.format(f"{result:47}")).verdict is verdict


def test_unfinished_tool_output_is_inconclusive() -> None:
    assert check("Successfully ran diagnostic for group.\n").verdict is Verdict.INCONCLUSIVE
    assert (
        check("nvbandwidth Version: v0.8\nRunning host_to_device_memcpy_ce.\n").verdict
        is Verdict.INCONCLUSIVE
    )


def test_nvbandwidth_output_becomes_measurements() -> None:
    text = (
        "nvbandwidth Version: v0.8\nRunning host_to_device_memcpy_ce.\nSUM "
        "host_to_device_memcpy_ce 440.12\n"
    )
    (sum_gb_s,) = check(text).measurements
    assert (sum_gb_s.value, sum_gb_s.unit, sum_gb_s.conditions) == (
        440.12,
        "GB/s",
        {"test": "host_to_device_memcpy_ce"},
    )
    document = {
        "nvbandwidth": {
            "testcases": [
                {"name": "a", "status": "Passed", "sum": 12.5},
                {"name": "b", "status": "Error"},
            ]
        }
    }
    assert check(json.dumps(document)).verdict is Verdict.FAIL
    broken = text + "[CUDA_ERROR_ECC_UNCORRECTABLE] uncorrectable ECC error encountered\n"
    assert "CUDA_ERROR_ECC_UNCORRECTABLE" in check(broken).reason.sentence


def nvbandwidth_of(test: str, rows: int, slow: int) -> str:
    """Return the output of one test of four GPUs of which `slow` has half of the rate."""
    text = f"Running {test}.\nmemcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)\n  0  1  2  3\n"
    for row in range(rows):
        text += f" {row}"
        for column in range(4):
            rate = "25.10" if slow in (column, row if rows > 1 else column) else "55.20"
            text += "  N/A" if rows > 1 and row == column else f"  {rate}"
        text += "\n"
    return text + f"\nSUM {test} 190.70\n"


@pytest.mark.parametrize(
    ("test", "rows", "code"),
    [
        ("host_to_device_memcpy_ce", 1, "tool-gpu-pcie"),
        ("device_local_copy", 1, "tool-gpu-memory"),
        ("device_to_device_memcpy_read_ce", 4, "tool-gpu-nvlink"),
    ],
)
def test_a_gpu_with_half_of_the_rate_in_nvbandwidth_is_named(
    test: str, rows: int, code: str
) -> None:
    text = nvbandwidth_of(test, rows, slow=2)
    found = check(text)
    assert (found.verdict, found.reason.code) == (Verdict.DEGRADED, code)
    assert "GPU 2: " in found.reason.sentence
    assert check(nvbandwidth_of(test, rows, slow=9)).verdict is Verdict.PASS
    matrix = [line.split()[1:] for line in text.splitlines()[3 : 3 + rows]]
    document = {
        "nvbandwidth": {"testcases": [{"name": test, "sum": 1.0, "bandwidth_matrix": matrix}]}
    }
    assert check(json.dumps(document)).reason == found.reason


def test_copies_of_all_gpus_at_once_are_not_compared_with_each_other() -> None:
    assert check(nvbandwidth_of("host_to_all_memcpy_ce", 1, slow=2)).verdict is Verdict.PASS


def test_latencies_of_nvbandwidth_are_nanoseconds() -> None:
    (latency,) = check(nvbandwidth_of("host_device_latency_sm", 1, slow=2)).measurements
    assert (latency.metric, latency.unit, latency.value) == ("copy_latency_sum", "ns", 190.7)


PERFTEST = """\
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_3
 #bytes     #iterations    BW peak[{0}]    BW average[{0}]   MsgRate[Mpps]
 65536      5000             392.10             391.92             0.747665
 8388608    5000             393.20             393.12             0.005858
"""


@pytest.mark.parametrize(
    ("unit", "gb_s"), [("Gb/sec", 49.14), ("MB/sec", 0.39312), ("MiB/sec", 0.41222)]
)
def test_a_bandwidth_of_perftest_is_in_gigabytes(unit: str, gb_s: float) -> None:
    small, large = check(PERFTEST.format(unit)).measurements
    assert (small.conditions["message_bytes"], large.subject.name) == (65536, "mlx5_3")
    assert large.value == pytest.approx(gb_s, rel=1e-4)


def test_a_latency_of_perftest_is_the_typical_one_and_an_error_fails() -> None:
    text = """\
                    Send Latency Test
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 2       1000          1.02           4.51         1.06               1.07             0.05
"""
    (latency,) = check(text).measurements
    assert (latency.metric, latency.value, latency.unit, latency.better) == (
        "rdma_latency",
        1.06,
        "us",
        "lower",
    )
    assert check(text + " Completion with error at client\n").verdict is Verdict.FAIL


def test_tools_are_judged_beside_logs() -> None:
    judgement = judge_logs(
        [Log("a", (check(H100),)), Log("b", (check(diagnostic(status="FAIL")),))],
        LogsConfig("H100-SXM", 1),
    )
    assert judgement.verdict is Verdict.FAIL and "dcgmi diag" in judgement.reason.sentence


@pytest.mark.parametrize("text", ["hello", '{"a": 1}', "{broken", "{\n", ""])
def test_other_text_is_not_read_as_a_tool(text: str) -> None:
    with pytest.raises(NothingFoundError):
        read_text(text, "x", "x")
