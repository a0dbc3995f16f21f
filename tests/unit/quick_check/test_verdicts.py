"""The quick check of one machine, check.py: its lines and its verdict, by what its probes
measure.
"""

import pytest

from tests.unit.quick_check.machine import PASSED, ROW, Probes, device, gpus


def test_a_machine_without_gpus_is_not_run_unless_that_is_allowed(
    probes: Probes, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, lines = probes.check()
    assert (status, lines[-1]) == (
        3,
        "[RESULT] not_run: GPU: torch sees no GPU; --allow-no-gpu checks the processors alone",
    )
    assert probes.check("--gpus", "8")[1][-1] == "[RESULT] not_run: GPU: torch sees 0 of 8 GPUs"
    for arguments in (["--allow-no-gpu"], ["--allow-no-gpu", "--gpus", "8"]):
        status, lines = probes.check(*arguments)
        assert (status, lines[-1]) == (0, PASSED)
        assert "[TRAIN] resnet50 fp32 on 2 processes" in lines[-2]
    monkeypatch.setenv("SEATRIAL_ALLOW_NO_GPU", "1")
    assert probes.check()[0] == 0


def test_fewer_gpus_than_promised_fail_although_none_would_be_allowed(probes: Probes) -> None:
    probes.has_gpus(gpus(2))
    status, lines = probes.check("--gpus", "4", "--allow-no-gpu")
    assert (status, lines[-1]) == (1, "[RESULT] fail: GPU: torch sees 2 of 4 GPUs")


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (
            {"wrong": "a copy differs from its source"},
            "corrupt: COMPUTE: cuda:3: a copy differs from its source",
        ),
        ({"error": "CUDA error:\nECC"}, "fail: COMPUTE: cuda:3: CUDA error: ECC"),
        ({"copy_gb_s": []}, "fail: COMPUTE: cuda:3: no samples"),
        (
            {"digests": {"float32": "1"}},
            "corrupt: COMPUTE: cuda:3: its results differ from those of the devices alike",
        ),
    ],
)
def test_a_bad_gpu_is_named(probes: Probes, last: dict[str, object], reason: str) -> None:
    probes.has_gpus(
        [
            each | {"digests": {"float32": "0"}} | (last if each["device"] == "cuda:3" else {})
            for each in gpus(4)
        ]
    )
    status, lines = probes.check()
    assert (status, lines[-1]) == (1, f"[RESULT] {reason}")
    assert any(line.startswith("[TRAIN] resnet50") for line in lines)  # the rest goes on


@pytest.mark.parametrize(
    ("perf", "status", "reason"),
    [
        (
            ROW.format(size=1 << 30, busbw=480.5, wrong=3),
            1,
            "corrupt: COLLECTIVE: all_reduce: elements are wrong",
        ),
        (
            ROW.format(size=1 << 30, busbw=480.5, wrong="N/A"),
            1,
            "corrupt: COLLECTIVE: all_reduce: elements are wrong",
        ),
        (
            ROW.format(size=1 << 20, busbw=480.5, wrong=0),
            3,
            "inconclusive: COLLECTIVE: no row of 1024 MiB",
        ),
        (
            ROW.format(size="9" * 5000, busbw=480.5, wrong=0),
            3,
            "inconclusive: COLLECTIVE: no row of 1024 MiB",
        ),
        (
            "USAGE: all_reduce_perf\n# Out of bounds values : 0 OK",
            3,
            "inconclusive: COLLECTIVE: no row of 1024 MiB",
        ),
    ],
)
def test_nccl_tests_are_judged_by_their_rows(
    probes: Probes, perf: str, status: int, reason: str
) -> None:
    probes.has_gpus(gpus(2), perf)
    done = probes.check()
    assert (done[0], done[1][-1]) == (status, f"[RESULT] {reason}")


def test_two_gpus_that_differ_are_both_named(probes: Probes) -> None:
    probes.has_gpus([device(f"cuda:{i}", digests={"float32": str(i)}) for i in range(2)])
    assert (
        probes.check()[1][-1]
        == "[RESULT] corrupt: COMPUTE: cuda:0, cuda:1: alike, and their results differ"
    )


def summed(*wrong: object) -> dict[str, object]:
    """What the probe all_reduce prints over as many ranks."""
    ranks = [
        {"rank": i, "host": "node-0", "wrong": each, "first_wrong": None}
        for i, each in enumerate(wrong)
    ]
    return {
        "event": "all_reduce",
        "rounds": 10,
        "elements": 2_000_000,
        "backend": "nccl",
        "ranks": ranks,
    }


def test_without_nccl_tests_torch_sums_and_the_rate_stands_beside_the_pass(probes: Probes) -> None:
    probes.says("all_reduce", summed(0, 0))
    probes.has_gpus(gpus(2), perf=None)
    status, lines = probes.check()
    assert status == 0
    assert (
        "[COLLECTIVE] all_reduce over 2 GPUs, torch: 10 sums of 2,000,000 elements, no "
        "wrong elements"
    ) in lines
    assert lines[-1].endswith(
        "; the rate of all_reduce was not measured: all_reduce_perf (nccl-tests) is not on PATH"
    )


@pytest.mark.parametrize(
    ("output", "ended", "status", "reason"),
    [
        (summed(0, 3), (7, ""), 1, "corrupt: COLLECTIVE: all_reduce: elements are wrong on rank 1"),
        (
            summed(0, None),
            (0, ""),
            1,
            "corrupt: COLLECTIVE: all_reduce: elements are wrong on rank 1",
        ),
        (summed(0), (0, ""), 3, "inconclusive: COLLECTIVE: 1 of 2 ranks told their sums"),
        ("[" * 100_000, (0, ""), 3, "inconclusive: COLLECTIVE: 0 of 2 ranks told their sums"),
        ("", (1, "rank 1: lost a peer"), 1, "fail: COLLECTIVE: rank 1: lost a peer"),
    ],
)
def test_wrong_or_missing_torch_sums_do_not_pass(
    probes: Probes, output: object, ended: tuple[int, str], status: int, reason: str
) -> None:
    probes.says("all_reduce", output, *ended)
    probes.has_gpus(gpus(2), perf=None)
    done = probes.check()
    assert (done[0], done[1][-1]) == (status, f"[RESULT] {reason}")


@pytest.mark.parametrize(
    ("ranks", "reason"),
    [
        (
            [{"rank": i, "finite": i != 1, "checksum": "a"} for i in range(3)],
            "is not finite on rank 1",
        ),
        (
            [{"rank": i, "finite": True, "checksum": str(i == 2)} for i in range(3)],
            "other parameters on rank 2 than on the others",
        ),
        ("nonsense", "other parameters on different ranks"),
    ],
)
def test_wrong_numbers_of_training_name_the_rank(
    probes: Probes, ranks: object, reason: str
) -> None:
    probes.says("training", {"event": "summary", "ranks": ranks}, 7)
    status, lines = probes.check("--allow-no-gpu")
    assert status == 1
    assert lines[-1].startswith("[RESULT] corrupt: TRAIN: ")
    assert reason in lines[-1]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "devices printed no JSON"),
        ("null", "devices printed no JSON"),
        ("[" * 100_000, "devices printed no JSON"),
        ({"devices": 3}, "no device was measured"),
        ({"devices": [3, None, "x"]}, "no device was measured"),
        ({"devices": []}, "no device was measured"),
        ({"error": "torch cannot be imported\x1b[2J"}, "torch cannot be imported[2J"),
        ({"devices": [{}]}, ": no samples"),
        ('{"devices": [{"device": "cpu", "matmul_tflops": [NaN, true, -1]}]}', "cpu: no samples"),
    ],
)
def test_malformed_probe_output_does_not_pass_or_crash(
    probes: Probes, answer: object, reason: str
) -> None:
    probes.says("devices", answer)
    status, lines = probes.check("--allow-no-gpu")
    assert status in (1, 3)
    assert lines[-1].endswith(f"COMPUTE: {reason}")
