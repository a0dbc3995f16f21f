"""The tests of a pair by perftest, its command lines, the rails of nodes, and what its numbers are
held against.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.catalog.published import published
from seatrial.checks.contract import CheckContext
from seatrial.checks.rdma.check import AllEnded, Listening, rdma
from seatrial.checks.rdma.section import (
    PairTest,
    Rail,
    Rdma,
    command_line,
    gpu_beside,
    most_rounds,
    options_in,
    rdma_devices,
    tests_of_pair,
)
from seatrial.checks.suites import load_suite
from seatrial.config.run import Run
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.readers.perftest import read_document, read_perftest
from seatrial.remote.answers import NodeAnswer, read_answer
from seatrial.remote.node_probe import Inventory
from seatrial.remote.probes import probe
from tests.fake_platform import FakePlatform, Request
from tests.unit.readers.healthy import OUTPUTS

RAIL = Rail("mlx5_3", 18_518, {"node-0": 3, "node-1": 7})
HELP = (
    "  --use_cuda=<id>  --use_cuda_dmabuf  --data_validation  --report_gbits  "
    "--use_cuda_bus_id=<id>"
)


def command(test: PairTest, known: str = "", server: str = "", **fields: Any) -> str:
    return " ".join(command_line(Rdma(**fields), test, RAIL, "node-1", options_in(known), server))


def test_perftest_command_of_server_and_client() -> None:
    test = PairTest("ib_write_bw", (RAIL,), "both")
    common = "ib_write_bw -F -d mlx5_3 -p 18518 -s 8388608 -q 4 --report_gbits -D 5 -f 2 -b"
    assert (command(test), command(test, server="10.0.0.1")) == (common, f"{common} 10.0.0.1")


def test_perftest_uses_gpu_memory_and_validation_when_supported() -> None:
    write = command(
        PairTest("ib_write_bw", (RAIL,), "out"),
        HELP,
        gid_index=3,
        folder="/opt/perftest/bin",
        seconds=1,
    )
    assert write == (
        "/opt/perftest/bin/ib_write_bw -F -d mlx5_3 -p 18518 -x 3 -s 8388608 -q 4 --report_gbits "
        "-D 1 -f 0"
        " --data_validation --use_cuda=7 --use_cuda_dmabuf"
    )
    send, latency = (
        command(PairTest(name, (RAIL,), "out"), HELP) for name in ("ib_send_bw", "ib_write_lat")
    )
    assert "--data_validation" not in send + latency
    assert (
        latency == "ib_write_lat -F -d mlx5_3 -p 18518 -s 2 -n 1000 --use_cuda=7 --use_cuda_dmabuf"
    )
    assert "--use_rocm=7" in command(PairTest("ib_write_bw", (RAIL,), "out"), "--use_rocm=<id>")


def test_each_rail_is_tested_alone_and_then_all_at_once() -> None:
    rails = [Rail(f"mlx5_{i}", 18_515 + i, {}) for i in range(2)]
    tests = [(test.program, len(test.rails), test.way) for test in tests_of_pair(Rdma(), rails)]
    ways = ("out", "in", "both")
    bandwidth = [("ib_write_bw", many, way) for many in (1, 1, 2) for way in ways]
    assert tests == [*bandwidth, ("ib_write_lat", 1, "out"), ("ib_write_lat", 1, "out")]
    assert len(list(tests_of_pair(Rdma(programs=("ib_read_bw",)), rails[:1]))) == 3
    assert [most_rounds(nodes) for nodes in (1, 2, 3, 4, 5)] == [1, 1, 3, 3, 5]


def inventory(*rates: float, gpus: int = 0) -> Inventory:
    ports = [
        {
            "port": f"mlx5_{i}/1",
            "kind": "InfiniBand",
            "up": rate > 0,
            "gbit_s": rate,
            "numa": i // 2,
        }
        for i, rate in enumerate(rates)
    ]
    ports.append({"port": "eth0", "kind": "network", "up": True, "gbit_s": 800.0})
    gpu_facts = [{"name": f"gpu-{i}", "numa": i // 2} for i in range(gpus)]
    return Inventory.model_validate({"ports": ports, "gpus": gpu_facts})


def test_rails_are_the_fastest_devices_that_are_up() -> None:
    assert rdma_devices(inventory(400, 400, 0, 100)) == {"mlx5_0": 400, "mlx5_1": 400}
    assert rdma_devices(inventory()) == {}


def test_a_gpu_on_the_same_socket_is_used() -> None:
    node = inventory(400, 400, 400, 400, gpus=4)
    assert [gpu_beside(node, f"mlx5_{i}", i) for i in range(4)] == [0, 1, 2, 3]
    assert gpu_beside(inventory(400), "mlx5_0", 0) is gpu_beside(None, "mlx5_0", 0) is None


@pytest.mark.parametrize(
    ("fabric", "way", "low"),
    [("IB-8x400G", "out", 40), ("RoCE-4x200G", "both", 40), ("IB", "out", None)],
)
def test_rdma_bandwidth_is_judged_by_the_rate_of_a_port(
    fabric: str, way: str, low: float | None
) -> None:
    conditions: dict[str, ConditionValue] = {"rail": "mlx5_0", "way": way, "message_bytes": 8 << 20}
    measurement = Measurement("rdma_bandwidth", 10.0, "GB/s", Subject("link", "a--b"), conditions)
    baselines = published(measurement, Setup("H100-SXM", 2, 8, 8, fabric, None, None), [8 << 20])
    assert [baseline.low for baseline in baselines] == ([low] if low else [])


REAL_JSON = {
    "test_info": {
        "test": "RDMA_Write_Bidirectional_BW_Test",
        "Device": "mlx5_0",
        "Number_of_qps": 4,
    },
    "results": {
        "MsgSize": 8388608,
        "n_iterations": 58,
        "BW_peak": 0.0,
        "BW_average": 392.1,
        "MsgRate": 0.005843,
    },
}


def test_perftest_json_of_bandwidth_and_latency_is_read() -> None:
    report = read_document(REAL_JSON)
    assert report and report.tool == "perftest RDMA_Write BW"
    (m,) = report.measurements
    assert (m.metric, m.unit, m.conditions["bidirectional"], m.subject.name) == (
        "rdma_bandwidth",
        "GB/s",
        True,
        "mlx5_0",
    )
    assert m.value * 8 == pytest.approx(392.1, rel=1e-3)
    latency = {
        "test_info": {"test": "Send_Latency_Test"},
        "results": {"MsgSize": 2, "t_typical": 1.61},
    }
    report = read_document(latency)
    assert report and [(m.metric, m.value) for m in report.measurements] == [("rdma_latency", 1.61)]


@pytest.mark.parametrize(
    "results",
    [{}, {"MsgSize": True, "MsgRate": 1}, {"MsgSize": 8, "MsgRate": -1}, {"MsgSize": 1e300}],
)
def test_json_without_numbers_is_no_result(results: dict[str, object]) -> None:
    report = read_document({"test_info": {"test": "RDMA_Write_BW_Test"}, "results": results})
    assert report is not None and report.measurements == ()
    assert read_document({"test_info": "x", "results": results}) is None


def test_failed_data_validation_of_perftest_is_corrupt() -> None:
    (result,) = read_perftest(
        ["VALIDATION: FAILED (server) - 3 error(s), first at QP 0, Chunk 1"]
    ).results
    assert (result.verdict, result.code) == (Verdict.CORRUPT, "tool-wrong-data")


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (AllEnded, {"id": 1, "ended": [{"status": 0, "output": "x" * 4097}]}),
        (AllEnded, {"id": 1, "ended": [{"status": 10**9, "output": ""}]}),
        (AllEnded, {"id": 1, "ended": [{"status": 0, "output": ""}] * 65}),
        (Listening, {"id": 1, "listening": "yes"}),
    ],
)
def test_an_answer_that_no_probe_gives_is_refused(
    model: type[NodeAnswer], fields: dict[str, object]
) -> None:
    with pytest.raises(ValueError):
        read_answer(model, json.dumps(fields))


def test_each_rail_has_a_port_of_its_own_and_each_program_a_result(tmp_path: Path) -> None:
    ports = set()

    def perftest(request: Request) -> str:
        if not request.stdin:  # before the first request
            return ""
        asked = json.loads(request.stdin)
        ports.add(tuple(asked["ports"]))
        outputs = [
            HELP if "--help" in words else OUTPUTS["ib_write_bw"] for words in asked["programs"]
        ]
        ended = {
            "id": asked["id"],
            "ended": [{"status": 0, "output": output} for output in outputs],
        }
        listening = [{"id": asked["id"], "listening": True}] if asked["ports"] else []
        return "".join(f"{json.dumps(line)}\n" for line in (*listening, ended))

    platform = FakePlatform(nodes=2)
    for node in platform.nodes.values():
        node.programs["programs.py"] = perftest
    section = Rdma(devices=("mlx5_0", "mlx5_1"), programs=("ib_write_bw",))
    suite = load_suite("quick").model_copy(update={"rdma": section})
    run = Run("run-1", platform.cluster(), suite, tmp_path)
    check = rdma(CheckContext(run, platform.launch(run))).check
    assert (check.verdict, check.reason.sentence) == (Verdict.PASS, "1 pair of nodes on 2 rails")
    assert ports == {(), (18_515,), (18_516,), (18_515, 18_516)}


def printed_by(
    *programs: list[str], ports: tuple[int, ...] = (), seconds: float = 30
) -> list[dict[str, Any]]:
    """What the probe prints of these programs."""
    request = json.dumps({"id": 1, "programs": programs, "ports": ports, "seconds": seconds})
    command = [sys.executable, "-S", str(probe("programs"))]
    done = subprocess.run(
        command, input=request + "\n", capture_output=True, text=True, timeout=120, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_programs_run_in_parallel_with_bounded_output() -> None:
    flood = [sys.executable, "-S", "-c", "print('x' * 80_000_000)"]
    (answer,) = printed_by(
        ["echo", "here"], ["/nonexistent/program"], ["sh", "-c", "exit 3"], flood
    )
    first, missing, third, much = answer["ended"]
    assert (first, third["status"]) == ({"status": 0, "output": "here"}, 3)
    assert missing["status"] == 127 and "No such file" in missing["output"]
    assert len(much["output"]) <= 4096


def test_a_program_is_ended_at_its_limit() -> None:
    (answer,) = printed_by(["sleep", "60"], seconds=0.2)
    assert answer["ended"] == [{"status": None, "output": ""}]


def test_server_that_exits_before_listening_is_reported_at_once() -> None:
    listening, answer = printed_by(["sh", "-c", "echo no device; exit 1"], ports=(1,))
    assert listening == {"id": 1, "listening": False}
    assert answer["ended"][0]["output"] == "no device"
