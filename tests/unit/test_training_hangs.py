"""What the check `training` makes of ranks that say where they stand, and of the log of a command
of the user's.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from seatrial.checks.suites import load_suite
from seatrial.checks.training.own import conclude_own
from seatrial.checks.training.section import Workload
from seatrial.checks.training.stuck import conclude_hang
from seatrial.cli.diagnose import diagnose
from seatrial.config.run import Run
from seatrial.model.verdict import Verdict
from seatrial.remote.ranks import RankLine
from tests.suspects import suspect_names
from tests.unit.collectives.fake_mpirun import make_testbed, result
from tests.unit.training_output import LAB


def stuck(rank: int, collective: int, **more: Any) -> RankLine:
    group = {
        "id": "0",
        "name": "default_pg",
        "ranks": [0, 1, 2, 3],
        "collective": collective,
        "operation": "all_gather",
    }
    event = {"event": "stuck", "rank": rank, "host": f"node-{rank}", "step": 3, "groups": [group]}
    return RankLine(
        json.dumps({**event, "stack": [f"a.py:{rank} wait"], "waits": True, "gpu": None, **more}),
        rank,
    )


def test_the_node_of_the_late_rank_is_named() -> None:
    check = conclude_hang(
        make_testbed(), result([stuck(0, 5), stuck(1, 5), stuck(2, 4), stuck(3, 5)], 1)
    )
    assert check
    assert check.verdict is Verdict.FAIL
    (suspect,) = check.suspects
    assert suspect.name == "node-2"
    assert suspect.evidence.sentence == (
        "rank 2 on node-2 did not enter all_gather 5 of group default_pg; it stands in a.py:2 wait"
    )


def test_the_log_of_a_run_names_the_late_rank(tmp_path: Path) -> None:
    log = tmp_path / "training.log"
    log.write_text(
        "".join(f"[1,{rank}]<stdout>:{stuck(rank, 5 - (rank == 2))}\n" for rank in range(4))
    )
    done = CliRunner().invoke(diagnose, [str(log)])
    assert done.exit_code == 1
    assert done.output.startswith("rank 2 on node-2 did not enter all_gather 5 of group default_pg")


def test_rank_without_a_dump_is_named() -> None:
    check = conclude_hang(make_testbed(), result([stuck(0, 5), stuck(1, 5), stuck(3, 5)], 1))
    assert check
    assert [
        suspect.evidence.sentence.startswith("rank 2 left no dump") for suspect in check.suspects
    ] == [True]


def test_a_rank_that_waits_for_a_silent_one_is_not_named() -> None:
    check = conclude_hang(make_testbed(), result([stuck(0, 5), stuck(1, 5), stuck(2, 4)], 1))
    assert check
    assert suspect_names(check) == ["node-3"]


def test_dump_printed_by_another_rank_is_ignored() -> None:
    lines = [stuck(rank, 5) for rank in range(4)]
    forged = RankLine(stuck(1, 4), 3)
    assert conclude_hang(make_testbed(), result([*lines, forged], 1)) is None


RAS = ["DEAD", "  Process 60004 on node 10.0.0.13 managing GPU 0"]


def test_nccl_ras_status_is_shown_but_blames_nobody_by_itself() -> None:
    named = conclude_hang(
        make_testbed(), result([stuck(0, 5, ras=RAS), stuck(1, 5), stuck(2, 4), stuck(3, 5)], 1)
    )
    assert named
    assert suspect_names(named) == ["node-2"]
    assert (
        "NCCL RAS: process 60004 (GPU 0, node 10.0.0.13) does not answer" in named.reason.sentence
    )
    alone = conclude_hang(make_testbed(), result([stuck(rank, 5, ras=RAS) for rank in range(4)], 1))
    assert alone
    assert (alone.verdict, alone.suspects) == (Verdict.FAIL, ())
    assert "process 60004" in alone.reason.sentence


def step(number: int, loss: float = 2.0) -> str:
    return (
        f"step: {number}  loss: {loss}  grad_norm: 1.5  memory:  0.98GiB(1.03%)  tps: 7,000  "
        "tflops: 411.58  mfu: 41.6%"
    )


@pytest.mark.parametrize(
    ("lines", "verdict", "words"),
    [
        ([step(number) for number in range(1, 41)], Verdict.PASS, "training log of 40 steps"),
        ([step(number) for number in range(1, 11)], Verdict.FAIL, "10 steps of the 30"),
        (
            [*[step(number) for number in range(1, 40)], step(40, float("nan"))],
            Verdict.FAIL,
            "not finite from step 40",
        ),
        (["nothing"], Verdict.FAIL, "0 steps of the 30"),
    ],
)
def test_log_of_a_custom_training_command_is_judged(
    lines: list[str], verdict: Verdict, words: str, tmp_path: Path
) -> None:
    workload = Workload(command=("python", "train.py"), log="torchtitan", steps=30)
    run = Run("run-1", LAB, load_suite("quick"), tmp_path)
    check = conclude_own(
        run, make_testbed(), workload, result([RankLine(line, 0) for line in lines])
    )
    assert (check.verdict, words in check.reason.sentence) == (verdict, True), check.reason


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"command": ["x"]}, "command and log belong together"),
        ({"model": "tiny", "sequence": 8}, "sequence is for model: llama"),
        ({"model": "llama", "precision": "fp16"}, "fp16 is not for llama"),
        ({"model": "llama", "interrupt": [{"after": "5s"}]}, "interrupt needs checkpoint_dir"),
        ({"model": "llama", "interrupt": [{"after": "soon"}]}, "such as 120s or 5m"),
        ({"model": "resnet50", "precision": "fp8"}, "fp8 is for llama"),
    ],
)
def test_inconsistent_training_options_are_refused(
    document: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        Workload.model_validate(document)
