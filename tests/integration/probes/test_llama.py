"""The decoder of the probe `training` on ranks of this machine: shared in every way, interrupted,
wrong, hanging.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.training.stuck import read_stuck
from seatrial.readers.flight_recorder import late_ranks
from seatrial.remote.probes import probe
from seatrial.remote.ranks import RankLine
from tests.integration.probes.launched import PATIENCE_S, Ended, finish, launch_many, start
from tests.site import free_port

PLANS = ("fsdp2-tp2", "pp2-fsdp2", "cp2-fsdp2", "moe-ep2-fsdp2")  # have every degree once
MORE_PLANS = (
    *("fsdp4", "tp4", "pp4", "cp4", "pp2-tp2", "cp2-tp2", "fsdp4-ac"),
    *("moe-fsdp4", "moe-ep4", "moe-ep2-cp2"),
)
ROUNDING = 2e-6  # relative: sums of float32 in another order
SMALL = (
    "--model",
    "llama",
    "--size",
    "debug",
    "--sequence",
    "32",
    "--device",
    "cpu",
    "--lr",
    "1e-2",
)


def torchrun(ranks: int, *command: str) -> Ended:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    port = ["--master-port", str(free_port())]
    return finish(start([*launcher, *port, *command], OMP_NUM_THREADS="1"), 0.0)


def train(ranks: int, *options: str) -> Ended:
    return torchrun(ranks, str(probe("training")), *SMALL, "--timeout-s", str(PATIENCE_S), *options)


def train_forked(ranks: int, *options: str) -> Ended:
    """As `train`, without torchrun: what takes time is that every rank imports torch."""
    return launch_many(ranks, "training", [[*SMALL, *options]])


def events(ended: Ended) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ended.lines if line.startswith('{"event"')]


def parameters(ended: Ended) -> list[str]:
    """The digest of each rank's parameters."""
    return [rank["parameters"] for rank in events(ended)[-1]["ranks"]]


@pytest.mark.parametrize(
    "plans",
    [PLANS, pytest.param(MORE_PLANS, marks=pytest.mark.slow)],
    ids=["each degree", "other plans"],
)
def test_every_degree_gives_the_loss_of_one_plain_rank(plans: Sequence[str]) -> None:
    ended = launch_many(4, "tests.integration.probes.every_degree", [plans])
    answers: Mapping[str, Sequence[float]] = json.loads(
        next(line for line in ended.lines if line.startswith("{"))
    )
    for plan in plans:
        plain = answers["moe" if plan.startswith("moe") else "dense"]
        assert answers[plan] == pytest.approx(plain, rel=ROUNDING), plan
    assert answers["dense"][-1] < 0.96 * answers["dense"][0]


@pytest.mark.slow
def test_a_resumed_training_ends_with_the_parameters_of_an_uninterrupted_one(
    tmp_path: Path,
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
    saving = ("--steps", "8", "--checkpoint-every", "3")
    uninterrupted = train(2, *saving, "--checkpoint-dir", str(whole))
    killed = train_forked(2, *saving, "--checkpoint-dir", str(broken), "--spoil", "death:1")
    assert killed.status
    assert events(killed)[-1]["event"] != "llama"
    resumed = train(2, *saving, "--checkpoint-dir", str(broken))
    assert events(resumed)[0]["step"] == 3
    assert parameters(resumed) == parameters(uninterrupted)  # bit for bit
    assert events(resumed)[-1]["checkpoint"]["read_back"]

    alone = train(1, "--steps", "10", "--batch", "2", "--checkpoint-dir", str(broken))
    assert events(alone)[0]["step"] == 8, alone.lines  # two ranks saved, one goes on
    assert events(alone)[-1]["last_loss"] < events(resumed)[-1]["first_loss"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "by", "replays"),
    [
        ("1:compute-once", "compute", 1),
        ("1:compute", "compute", 3),
        ("1:transport", "transport", 1),
    ],
)
def test_a_rank_that_computes_wrongly_is_named(fault: str, by: str, replays: int) -> None:
    ended = train(3, "--steps", "3", "--replays", "3", "--wrong", fault)
    (odd,) = events(ended)[-1]["replays"]["odd"]
    assert (odd["rank"], odd["by"], odd["replays"], odd["is_certain"]) == (1, by, replays, True)
    assert ended.status


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "times"), [("2:copy-once", 1), ("2:copy", 3)])
def test_a_rank_that_holds_other_parameters_is_named(fault: str, times: int) -> None:
    ended = train(4, "--tp", "2", "--steps", "6", "--digest-every", "2", "--wrong", fault)
    copies = events(ended)[-1]["copies"]
    (odd,) = copies["odd"]
    assert (copies["step"], odd["rank"], odd["by"], odd["replays"], odd["is_certain"]) == (
        2,
        2,
        "copy",
        times,
        True,
    )
    assert ended.status


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan", [("--pp", "2", "--batch", "2"), ("--experts", "4", "--ep", "2"), ("--cp", "2")]
)
def test_ranks_that_share_parameters_hold_the_same(plan: tuple[str, ...]) -> None:
    ended = train(4, *plan, "--steps", "4", "--digest-every", "2")
    assert events(ended)[-1]["copies"] == {"step": 4, "odd": []}


def test_the_rank_that_sleeps_is_named_with_the_collective_that_it_did_not_enter() -> None:
    ended = train_forked(3, "--steps", "6", "--hang-s", "15", "--spoil", "sleep:2")
    stuck_lines = [
        RankLine(line, json.loads(line)["rank"])
        for line in ended.lines
        if line.startswith('{"event": "stuck"')
    ]
    (sleeper,) = late_ranks(read_stuck(stuck_lines), 3)
    assert sleeper.rank == 2
    assert sleeper.reason.code == "collective-not-entered"
    assert "break_on_purpose" in sleeper.reason.sentence


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--tp", "3"), "tp 3 does not make 2 ranks; degrees whose product is 2 do: of 1, 2"),
        (("--tp", "2", "--kv-heads", "1"), "tp x cp 2 does not divide kv_heads 1; 1 do"),
        (("--precision", "fp8"), "--precision fp8 needs a GPU; processors take fp32 and bf16"),
        (("--checkpoint-dir", "/nowhere"), "--checkpoint-dir /nowhere: there is no such directory"),
    ],
)
def test_impossible_parallel_degrees_and_options_are_refused_before_the_first_step(
    options: tuple[str, ...], complaint: str
) -> None:
    ended = train_forked(2, *options)
    assert any(complaint in line for line in ended.lines), ended.lines
    assert '"step"' not in "".join(ended.lines)
