"""Logs of trainings: steps of each program, numbers that are not finite, slowdowns, stragglers, and
NCCL's RAS.
"""

from collections.abc import Callable, Sequence

import pytest

from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.readers.parts import read_text
from seatrial.readers.training import read_training
from seatrial.readers.training_results import read_document
from seatrial.readers.training_steps import read_step

MEGATRON = (
    " [2026-08-03 10:11:{second:02}] iteration {number:8}/  500000 | consumed samples: 61440 | "
    "elapsed time"
    " per iteration (ms): {time} | throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: "
    "1.2E-05 |"
    " lm loss: {loss} | loss scale: 1.0 | grad norm: {norm} | number of skipped iterations: "
    "{skipped:3} |"
)
TITAN = (
    "[titan] 2026-02-24 19:46:17,508 - root - INFO - step: {number:2}  loss:  {loss}  grad_norm: "
    "26.6250"
    "  memory: 66.91GiB(37.51%)  tps: {tps}  tflops: 314.71  mfu: 13.99%"
)


def megatron(
    number: int,
    time_ms: float = 3000.0,
    loss: str = "8.120011E+00",
    norm: str = "1.9",
    skipped: int = 0,
) -> str:
    return MEGATRON.format(
        second=number % 60, number=number, time=time_ms, loss=loss, norm=norm, skipped=skipped
    )


def check(lines: Sequence[str]) -> Check:
    (read,) = read_text("\n".join(lines), "train", "train")
    assert isinstance(read, Check)
    return read


@pytest.mark.parametrize(
    "line",
    [
        # Megatron-LM leaves a loss that is no number out
        megatron(7).replace(" lm loss: 8.120011E+00 |", "") + " number of nan iterations:   1 |",
        '{"step": 7, "loss": "NaN", "step_time": 0.5}',
        "{'loss': 'inf', 'grad_norm': '0.71', 'learning_rate': '9e-06', 'epoch': '0.01'}",
    ],
    ids=["megatron", "json", "hugging-face"],
)
def test_a_loss_that_is_no_number_is_seen_however_the_program_writes_it(line: str) -> None:
    step = read_step(line)
    assert step and not step.is_finite
    result = check([line] * 30)
    assert (result.verdict, result.reason.code) == (Verdict.FAIL, "training-log-not-finite")


@pytest.mark.parametrize(
    ("line", "number", "loss", "time_ms", "rate"),
    [
        (megatron(120), 120, 8.120011, 3000.0, 412.3),
        (TITAN.format(number=4, loss="7.62585", tps="10,050"), 4, 7.62585, None, 314.71),
        (
            "Training epoch 0, iteration 1/249 | lr: 3.9e-06 | global_batch_size: 8 | "
            "global_step: 1 |"
            " reduced_train_loss: 1.653 | train_step_timing in s: 2.505 | TFLOPS_per_GPU: 610.2",
            1,
            1.653,
            2505.0,
            610.2,
        ),
        (
            "Epoch 0: : 100%|███| 100/100 [10:48<00:00, reduced_train_loss=0.0172, "
            "global_step=99.00,"
            " consumed_samples=25600.0, train_step_timing in s=3.130]",
            99,
            0.0172,
            3130.0,
            None,
        ),
        ("train 21%|## | 161544/770000 [29:39:25<397:31:10, 2.35s/ba, loss/train/total=0.1]", 161544, 0.1, None, None),
        ("{'loss': 2.31, 'grad_norm': 0.71, 'learning_rate': 9e-06, 'epoch': 0.01}", None, 2.31, None, None),
        ('{"step": 12, "loss": 2.5, "grad_norm": 1.0, "step_time_s": 1.25}', 12, 2.5, 1250.0, None),
    ],
    ids=["megatron", "torchtitan", "nemo", "nemo-bar", "composer", "hugging-face", "json"],
)  # fmt: skip
def test_a_step_is_read_from_the_line_of_each_program(
    line: str, number: int | None, loss: float, time_ms: float | None, rate: float | None
) -> None:
    step = read_step(line)
    assert step is not None and step.is_finite
    assert (step.number, step.loss, step.time_ms, step.tflops_per_gpu) == (
        number,
        loss,
        time_ms,
        rate,
    )


@pytest.mark.parametrize(
    "line",
    [
        "#   Rank  0 Group  0 Pid 4021 on node-1 device  0 [0000:63:00.0] NVIDIA H100 80GB HBM3",
        "packet loss: 3 of 100",
        "     1048576        262144     float     sum      -1    42.11   24.90   43.58      0",
        "iteration of the loop begins",
    ],
)
def test_lines_of_other_programs_are_not_read_as_steps(line: str) -> None:
    assert read_step(line) is None
    assert read_training([line]) is None


@pytest.mark.parametrize("value", ["nan", "NaN", "-inf", "Infinity"])
def test_a_loss_that_is_not_finite_fails_from_its_step_on(value: str) -> None:
    read = check([megatron(1), megatron(2), megatron(3, loss=value), megatron(4, loss=value)])
    assert read.verdict is Verdict.FAIL
    assert "the loss is not finite from step 3 on" in read.reason.sentence


@pytest.mark.parametrize(
    "line",
    [
        "[rank37]: AssertionError: Rank 37, node node-4, device 5, iteration 3: Unexpected result "
        "nan"
        " (message='found NaN in local forward loss calculation')",
        (
            "[rank37]: AssertionError: Rank 37: found NaN in local forward loss calculation. "
            "Device: 5, node: node-4"
        ),
    ],
)
def test_rank_that_found_the_nan_is_named_with_its_node_and_gpu(line: str) -> None:
    with_steps = check([megatron(2), megatron(3, loss="nan"), line])
    alone = check([line])
    assert "from step 3 on, first on rank 37 (node-4, GPU 5)" in with_steps.reason.sentence
    assert alone.verdict is Verdict.FAIL and "rank 37 (node-4, GPU 5)" in alone.reason.sentence


def test_a_rank_is_named_without_its_node_where_the_assertion_has_none() -> None:
    assertion = (
        "AssertionError: Rank 11: found NaN in local grad norm in backward pass before "
        "data-parallel"
    )
    read = check([f"{assertion} communication collective. Device: 3"])
    assert (
        read.verdict is Verdict.FAIL and "rank 11 (node not named, GPU 3)" in read.reason.sentence
    )


@pytest.mark.parametrize(
    ("number", "place"),
    [
        ("'global_step/max_steps': '{}/2169', ", "from step 5 on"),
        ("'epoch': 0.0{}, ", "from step 2 of the log on"),
    ],
)
def test_steps_of_hugging_face_are_told_by_their_number_else_by_their_place(
    number: str, place: str
) -> None:
    lines = [
        f"{{'loss': 1.8, 'grad_norm': {norm}, {number.format(at)}'x': 1}}"
        for at, norm in ((1, "2.5"), (5, "nan"))
    ]
    assert place in check(lines).reason.sentence


def test_steps_without_a_number_that_are_slow_or_not_finite_are_told_by_their_place() -> None:
    lines = [
        f"{{'loss': {'nan' if n == 21 else 1.8}, 'step_time': {1.0 if n < 41 else 1.4}}}"
        for n in range(1, 61)
    ]
    sentence = check(lines).reason.sentence
    assert "not finite at 1 step, 21 of the log to 21 of the log, and is finite" in sentence
    assert "steps from 41 of the log on take 1,400 ms" in sentence


def test_a_gradient_without_a_number_in_a_skipped_step_is_usual() -> None:
    """A loss scale that is too large makes one, and the step is not taken."""
    lines = [megatron(n, norm="inf" if n < 3 else "1.0", skipped=int(n < 3)) for n in range(1, 30)]
    assert check(lines).verdict is Verdict.PASS


def test_training_whose_loss_is_finite_again_after_a_nan_is_degraded() -> None:
    read = check([megatron(n, loss="nan" if n == 7 else "2.0") for n in range(1, 30)])
    assert (
        read.verdict is Verdict.DEGRADED
        and "7 to 7, and is finite after them" in read.reason.sentence
    )


@pytest.mark.parametrize(
    "line",
    [megatron, lambda n, time: TITAN.format(number=n, loss="7.6", tps=f"{30e6 / time:,.0f}")],
)
def test_a_slowdown_that_stays_is_degraded_with_the_step_that_it_begins_at(
    line: Callable[[int, float], str],
) -> None:
    lines = [line(n, 3000.0 if n < 140 else 3900.0) for n in range(1, 200)]
    read = check(lines)
    assert read.verdict is Verdict.DEGRADED
    assert (
        "steps from 140 on take" in read.reason.sentence
        and "1.30 times the" in read.reason.sentence
    )


def test_slow_checkpoint_and_warm_up_steps_are_only_notes() -> None:
    times = [9000.0, 5000.0, *[3000.0 + 20 * (n % 5) for n in range(198)]]
    times[50] = times[100] = times[150] = 30_000.0
    read = check([megatron(n, time) for n, time in enumerate(times, start=1)])
    assert read.verdict is Verdict.PASS
    assert "step 51 took 30,000 ms, 9.9 times those before" in read.reason.sentence


def test_a_training_that_gets_faster_passes() -> None:
    read = check([megatron(n, 3900.0 if n < 100 else 3000.0) for n in range(1, 200)])
    assert read.verdict is Verdict.PASS


def test_steps_give_time_and_rate_as_measurements() -> None:
    read = check([megatron(n) for n in range(1, 30)])
    assert {(m.metric, m.value, m.unit) for m in read.measurements} >= {
        ("step_time", 3000.0, "ms"),
        ("model_flops", 412.3, "TFLOP/s"),
    }


@pytest.mark.parametrize(
    "affected",
    ["[StragglerId(rank=76, node='node-012')]", "{StragglerId(rank=76, node='node-012')}", "[76]"],
)
def test_a_straggler_is_named_with_its_score(affected: str) -> None:
    read = check(
        [
            "GPU relative performance:",
            " Worst performing 2/512 ranks:",
            "  Rank=76 Node=node-012 Score=0.61",
            "  Rank=13 Node=node-002 Score=0.97",
            (
                "STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. "
                f"Affected ranks: {affected}"
            ),
        ]
    )
    assert read.verdict is Verdict.DEGRADED
    assert (
        read.reason.sentence
        == "straggler detection: rank 76 on node-012 computes at 61 % of the others"
    )


def test_straggler_scores_above_the_threshold_pass() -> None:
    read = check(
        [
            "GPU individual performance:",
            "  Rank=76 Node=node-012 Score=0.98",
            "  Rank=1 Node=a Score=1.00",
        ]
    )
    assert read.verdict is Verdict.PASS


RAS = [
    "Communicators... (0.00s)",
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
    "    #  in group  per comm  per node  per comm  in group",
]


def test_nccl_ras_status_without_errors_passes() -> None:
    assert (
        check(
            [*RAS, "    0         1         4         8        32        32   RUNNING      OK"]
        ).verdict
        is Verdict.PASS
    )


@pytest.mark.parametrize(
    ("lines", "verdict", "words"),
    [
        (
            [
                "#0-0 (00000000000000a1) ERROR",
                "  Asynchronous error on 1 rank",
                (
                    "  Rank 3 reported Remote process error -- GPU 3 managed by process 9 on "
                    "node 10.0.0.7"
                ),
            ],
            "fail",
            "rank 3 (process 9, GPU 3, node 10.0.0.7) reported Remote process error",
        ),
        (
            [
                "#0-0 (00000000000000a1) MISMATCH",
                "  Communicator ranks have different AllReduce operation counts",
                "  31 ranks have launched up to operation 641",
                (
                    "  Rank 12 has launched up to operation 600 -- GPU 4 managed by process 7 "
                    "on node 10.0.0.8"
                ),
            ],
            "inconclusive",
            "rank 12 (process 7, GPU 4, node 10.0.0.8) has launched up to operation 600",
        ),
        (
            [
                "DEAD",
                "  1 job process considered dead (unreachable via the RAS network)",
                "  Process 60004 on node 10.0.0.13 managing GPU 0",
            ],
            "fail",
            "process 60004 (GPU 0, node 10.0.0.13) does not answer",
        ),
    ],
)
def test_ranks_that_ras_lists_are_named(lines: list[str], verdict: str, words: str) -> None:
    read = check([*RAS, *lines])
    assert (read.verdict.value, words in read.reason.sentence) == (verdict, True), read.reason


@pytest.mark.parametrize(
    ("checksums", "words"),
    [
        (("a", "b"), ["ranks have different parameters: no majority agrees"]),
        (("a", "b", "a"), ["other parameters than most on rank 1 (node-1)"]),
        (("a", "b", "a", None), ["other parameters than most on rank 1 (node-1)"]),
        (("a", None, None), []),
    ],
    ids=["one against one", "one against two", "one without", "only the first has one"],
)
def test_ranks_with_other_parameters_are_named_by_the_majority_of_those_that_have_a_checksum(
    checksums: tuple[str | None, ...], words: list[str]
) -> None:
    ranks = [
        {"rank": rank, "host": f"node-{rank}", "checksum": checksum}
        for rank, checksum in enumerate(checksums)
    ]
    report = read_document({"throughput": 100, "ranks": ranks})
    assert report is not None
    assert [result.words for result in report.results] == words
