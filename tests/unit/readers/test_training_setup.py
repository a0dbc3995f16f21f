"""What logs of trainings say of model, GPUs and batch, and their rates against published ones."""

import pytest

from seatrial.logs.cluster import LogsConfig
from seatrial.logs.judge import Log, LogsJudgement, judge_logs
from seatrial.model.verdict import Verdict
from seatrial.readers.parts import read_text
from seatrial.readers.training_setup import read_setup
from tests.unit.readers.test_training import TITAN, megatron

TITAN_HEAD = """\
[titan] 2026-02-24 19:45:01,186 - root - INFO - CUDA capacity: NVIDIA H100 80GB HBM3 with 79.18GiB memory
[titan] 2026-02-24 19:45:02,000 - root - INFO - Building 1-D device mesh with ['dp_shard'], [8]
[titan] 2026-02-24 19:45:03,156 - root - INFO - Model llama3 8B size: 8,030,261,248 total parameters
[titan] 2026-02-24 19:45:03,157 - root - INFO - Applied selective activation checkpointing to the model
[titan] 2026-02-24 19:45:04,482 - root - INFO - Training starts at step 1, with local batch size 2, global batch size \
16, sequence length 8192, total steps 100 (warmup 200)
"""
NEW_MESH = (
    "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=1"
)
MEGATRON_HEAD = """\
using world size: 8, data-parallel size: 8, context-parallel size: 1, tensor-model-parallel size: 1
------------------------ arguments ------------------------
  bf16 ............................................ True
  fp8 ............................................. None
  global_batch_size ............................... 16
  micro_batch_size ................................ 2
  recompute_granularity ........................... selective
  seq_length ...................................... 8192
  tensor_model_parallel_size ...................... 1
  world_size ...................................... 8
Total number of parameters in billions: 8.03
"""


def titan(tokens_s: str) -> str:
    steps = [TITAN.format(number=number, loss="7.6", tps=tokens_s) for number in range(1, 6)]
    return TITAN_HEAD + "\n".join(steps)


def judged(text: str, hardware: str | None = None) -> LogsJudgement:
    return judge_logs([Log("log", tuple(read_text(text, "log", "log")))], LogsConfig(hardware))


@pytest.mark.parametrize(
    ("text", "verdict", "words"),
    [
        (titan("6,080"), Verdict.PASS, "as expected by catalog"),
        (titan("4,000"), Verdict.DEGRADED, "31 % below the 5,762 tokens/s"),
        (titan("2,000"), Verdict.FAIL, "65 % below the 5,762 tokens/s"),
        (titan("4,000").replace("batch size 2", "batch size 1"), Verdict.PASS, "differs in batch"),
        (
            titan("4,000").replace("selective act", "full act"),
            Verdict.PASS,
            "differs in activation checkpointing",
        ),
        (titan("4,000").replace("llama3 8B", "qwen3 8B"), Verdict.PASS, "2 measurements"),
        (titan("4,000").replace("8,030,261,248", "6,998,069,248"), Verdict.PASS, "2 measurements"),
        (
            titan("4,000").replace("H100 80GB HBM3", "GeForce RTX 4090"),
            Verdict.PASS,
            "no baseline yet",
        ),
    ],
)
def test_training_rate_is_judged_by_a_published_rate_of_the_same_setup(
    text: str, verdict: Verdict, words: str
) -> None:
    judgement = judged(text)
    assert (judgement.verdict, words in judgement.reason.sentence) == (verdict, True), (
        judgement.reason
    )


def test_a_training_that_ends_before_its_first_step_does_not_pass() -> None:
    judgement = judged(TITAN_HEAD)
    assert (
        judgement.verdict is Verdict.INCONCLUSIVE and "without a step" in judgement.reason.sentence
    )


def test_megatron_names_its_model_and_batch_and_an_option_the_gpus() -> None:
    text = MEGATRON_HEAD + "\n".join(megatron(number, time_ms=8192.0) for number in range(1, 6))
    judgement = judged(text, "H100-SXM")  # 16 * 8192 / 8 tokens in 8.192 s
    assert (
        judgement.verdict is Verdict.FAIL
        and "2,000 tokens/s is 65 % below the 5,762" in judgement.reason.sentence
    )
    assert judged(text).verdict is Verdict.PASS  # of GPUs that are not known


def test_a_loss_that_is_not_finite_stays_a_failure_beside_a_good_rate() -> None:
    lost = titan("6,080").replace("loss:  7.6", "loss:  nan")
    judgement = judged(lost)
    assert judgement.verdict is Verdict.FAIL and "not finite" in judgement.reason.sentence


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (NEW_MESH, {"ranks": 8, "parallel": "tp2"}),
        (
            "Building 2-D device mesh with ['pp', 'dp_shard'], [2, 8]",
            {"ranks": 16, "parallel": "pp2"},
        ),
        ("Compiling each TransformerBlock with torch.compile", {"compile": True}),
        ("Float8 tensorwise scaled training active", {"precision": "fp8"}),
        ("  tensor_model_parallel_size ...................... 4", {"parallel": "tp4"}),
        ("  recompute_granularity ........................... full", {"recompute": "full"}),
        ("All distributed processes registered. Starting with 64 processes", {"ranks": 64}),
        ("8.0 B     Trainable params", {"model": "llama 8b"}),
    ],
)
def test_training_conditions_are_read_from_each_setup_line(
    line: str, expected: dict[str, object]
) -> None:
    known = [
        "Number of parameters in billions: 8.03",
        "All distributed processes registered. Starting with 8 processes",
    ]
    conditions = read_setup([line, *known]).conditions()
    assert expected.items() <= conditions.items()
