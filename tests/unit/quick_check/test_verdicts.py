"""The quick check of one machine, check.py: its lines and its verdict, by what its probes measure."""

import pytest

from tests.unit.quick_check.machine import FACTS, RESULTS, ROW, Machine, device, gpus, printing


def test_a_machine_with_gpus_that_passes(machine: Machine) -> None:
    machine.has_gpus(gpus(4))
    assert machine.check() == (
        0,
        [
            "[ENV] node-0: 2 CPUs, 0 GPUs, 25 GB of memory",
            "[ENV] torch 2.6.0",
            *(f"[COMPUTE] cuda:{i} NVIDIA H100: matmul bfloat16 700 TFLOP/s, memory copy 2700 GB/s" for i in range(4)),
            "[COLLECTIVE] all_reduce over 4 GPUs, NCCL: 480.50 GB/s busbw at 1024 MiB, no wrong elements",
            "[TRAIN] resnet50 fp32 on 4 GPUs: 1000 samples/s, 100 ms a step, loss 7.000 to 3.000",
            "[RESULT] pass: all results are right; rates are not judged",
        ],
    )
    results = machine.results()
    assert (results["verdict"], results["train"], results["env"]) == ("pass", RESULTS, FACTS)
    assert [figures["matmul_tflops"] for figures in results["compute"]] == [700.0] * 4


def test_a_machine_without_gpus_is_not_run_unless_that_is_allowed(machine: Machine) -> None:
    status, lines = machine.check()
    assert (status, lines[-1]) == (
        3,
        "[RESULT] not_run: GPU: torch sees no GPU; --allow-no-gpu checks the processors alone",
    )
    assert machine.check("--gpus", "8")[1][-1] == "[RESULT] not_run: GPU: torch sees 0 of 8 GPUs"
    passed = "[RESULT] pass: all results are right; rates are not judged"
    for arguments in (["--allow-no-gpu"], ["--allow-no-gpu", "--gpus", "8"]):
        status, lines = machine.check(*arguments)
        assert (status, lines[-1]) == (0, passed)
        assert "[TRAIN] resnet50 fp32 on 2 processes" in lines[-2]
    assert machine.check(environment={"SEATRIAL_ALLOW_NO_GPU": "1"})[0] == 0


def test_fewer_gpus_than_promised_fail_although_none_would_be_allowed(machine: Machine) -> None:
    machine.has_gpus(gpus(2))
    status, lines = machine.check("--gpus", "4", "--allow-no-gpu")
    assert (status, lines[-1]) == (1, "[RESULT] fail: GPU: torch sees 2 of 4 GPUs")


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ({"wrong": "a copy differs from its source"}, "corrupt: COMPUTE: cuda:3: a copy differs from its source"),
        ({"error": "CUDA error:\nECC"}, "fail: COMPUTE: cuda:3: CUDA error: ECC"),
        ({"copy_gb_s": []}, "fail: COMPUTE: cuda:3: no samples"),
        ({"digests": {"float32": "1"}}, "corrupt: COMPUTE: cuda:3: its results differ from those of the devices alike"),
    ],
)
def test_a_bad_gpu_is_named(machine: Machine, last: dict[str, object], reason: str) -> None:
    machine.has_gpus(
        [each | {"digests": {"float32": "0"}} | (last if each["device"] == "cuda:3" else {}) for each in gpus(4)]
    )
    status, lines = machine.check()
    assert (status, lines[-1]) == (1, f"[RESULT] {reason}")
    assert any(line.startswith("[TRAIN] resnet50") for line in lines)  # the rest goes on


@pytest.mark.parametrize(
    ("perf", "status", "reason"),
    [
        (ROW.format(size=1 << 30, busbw=480.5, wrong=3), 1, "corrupt: COLLECTIVE: all_reduce: elements are wrong"),
        (ROW.format(size=1 << 30, busbw=480.5, wrong="N/A"), 1, "corrupt: COLLECTIVE: all_reduce: elements are wrong"),
        (ROW.format(size=1 << 20, busbw=480.5, wrong=0), 3, "inconclusive: COLLECTIVE: no row of 1024 MiB"),
        (ROW.format(size="9" * 5000, busbw=480.5, wrong=0), 3, "inconclusive: COLLECTIVE: no row of 1024 MiB"),
        ("USAGE: all_reduce_perf\n# Out of bounds values : 0 OK", 3, "inconclusive: COLLECTIVE: no row of 1024 MiB"),
    ],
)
def test_nccl_tests_count_by_their_rows(machine: Machine, perf: str, status: int, reason: str) -> None:
    machine.has_gpus(gpus(2), perf)
    assert (machine.check()[0], machine.check()[1][-1]) == (status, f"[RESULT] {reason}")


def test_two_gpus_that_differ_are_both_named(machine: Machine) -> None:
    machine.has_gpus([device(f"cuda:{i}", digests={"float32": str(i)}) for i in range(2)])
    assert machine.check()[1][-1] == "[RESULT] corrupt: COMPUTE: cuda:0, cuda:1: alike, and their results differ"


def summed(*wrong: object) -> str:
    """What the probe all_reduce prints over as many ranks."""
    ranks = [{"rank": i, "host": "node-0", "wrong": each, "first_wrong": None} for i, each in enumerate(wrong)]
    return printing({"event": "all_reduce", "rounds": 10, "elements": 2_000_000, "backend": "nccl", "ranks": ranks})


_RANK_0_WAITS = "import os, signal\nif os.environ['RANK'] == '0': signal.pause()"


def test_without_nccl_tests_torch_sums_and_the_rate_stands_beside_the_pass(machine: Machine) -> None:
    machine.has(all_reduce=summed(0, 0))
    machine.has_gpus(gpus(2), perf=None)
    status, lines = machine.check()
    assert status == 0
    assert "[COLLECTIVE] all_reduce over 2 GPUs, torch: 10 sums of 2,000,000 elements, no wrong elements" in lines
    assert lines[-1].endswith("; the rate of all_reduce was not measured: all_reduce_perf (nccl-tests) is not on PATH")


@pytest.mark.parametrize(
    ("program", "status", "reason"),
    [
        (summed(0, 3) + "; raise SystemExit(7)", 1, "corrupt: COLLECTIVE: all_reduce: elements are wrong on rank 1"),
        (summed(0, None), 1, "corrupt: COLLECTIVE: all_reduce: elements are wrong on rank 1"),
        (summed(0), 3, "inconclusive: COLLECTIVE: 1 of 2 ranks told their sums"),
        ("print('[' * 100000)", 3, "inconclusive: COLLECTIVE: 0 of 2 ranks told their sums"),
        (f"{_RANK_0_WAITS}\nraise SystemExit('lost a peer')", 1, "fail: COLLECTIVE: rank 1: lost a peer"),
    ],
)
def test_sums_by_torch_that_are_wrong_or_missing(machine: Machine, program: str, status: int, reason: str) -> None:
    machine.has(all_reduce=program)
    machine.has_gpus(gpus(2), perf=None)
    done = machine.check()
    assert (done[0], done[1][-1]) == (status, f"[RESULT] {reason}")


@pytest.mark.parametrize(
    ("ranks", "reason"),
    [
        ([{"rank": i, "finite": i != 1, "checksum": "a"} for i in range(3)], "is not finite on rank 1"),
        (
            [{"rank": i, "finite": True, "checksum": str(i == 2)} for i in range(3)],
            "other parameters on rank 2 than on the others",
        ),
        ("nonsense", "other parameters on different ranks"),
    ],
)
def test_wrong_numbers_of_training_name_the_rank(machine: Machine, ranks: object, reason: str) -> None:
    machine.has(training=f"{printing({'event': 'summary', 'ranks': ranks})}\nraise SystemExit(7)")
    status, lines = machine.check("--allow-no-gpu")
    assert status == 1
    assert lines[-1].startswith("[RESULT] corrupt: TRAIN: ")
    assert reason in lines[-1]
