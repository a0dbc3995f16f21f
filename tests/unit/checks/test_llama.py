"""What the check `training` makes of the last event of a decoder's training."""

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.checks.training.llama import conclude_llama
from seatrial.checks.training.section import Workload
from seatrial.config.run import Run
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.remote.ranks import RankLine
from tests.unit.collectives.fake_mpirun import make_testbed, result
from tests.unit.training_output import LAB

RANKS = 4


def conclude(folder: Path, status: int = 0, **event: Any) -> Check:
    """The check of a training of four ranks that ends with this event."""
    phases = ("data", "forward", "backward", "optimizer", "compute", "step")
    ranks = []
    for rank in range(RANKS):
        times = {f"{phase}_ms": 1.0 for phase in phases}
        ranks.append(
            {"rank": rank, "host": f"node-{rank}", "parameters": "8b1f", "memory_gb": None, **times}
        )
    last = {
        "event": "llama",
        "parallel": {"fsdp": RANKS},
        "parameters": 200_000,
        "world_size": RANKS,
        "steps": 8,
        "finite": True,
        "first_loss": 6.0,
        "last_loss": 5.0,
        "tokens_s_per_gpu": 500.0,
        "model_tflops": None,
        "step_ms_p50": 1.0,
        "step_ms_p99": 1.0,
        "communication": {},
        "ranks": ranks,
        **event,
    }
    lines = [
        RankLine(json.dumps({"event": "part", **rank}), number) for number, rank in enumerate(ranks)
    ]
    workload = Workload(model="llama", replays=10, digest_every=2)
    run = Run("run-1", LAB, load_suite("quick"), folder)
    return conclude_llama(
        run, make_testbed(), workload, result([*lines, RankLine(json.dumps(last), 0)], status)
    )


def odd(rank: int, by: str, *, is_certain: bool = True) -> dict[str, Any]:
    return {"rank": rank, "host": f"node-{rank}", "by": by, "replays": 2, "is_certain": is_certain}


def test_each_replay_time_is_a_separate_measurement(tmp_path: Path) -> None:
    times = [[10.0, 11.0, 12.0]] * (RANKS - 1) + [[80.0, 90.0, 85.0]]
    check = conclude(tmp_path, replays={"steps": 10, "odd": [], "step_ms": times})
    assert check.verdict is Verdict.PASS, check.reason
    alone = [(m.subject.name, m.value) for m in check.measurements if m.metric == "alone_time"]
    assert [value for name, value in alone if name == "node-3"] == [80.0, 90.0, 85.0]
    assert len(alone) == 3 * RANKS


@pytest.mark.parametrize(
    ("part", "odd_rank", "verdict", "code", "evidence"),
    [
        ("replays", odd(2, "compute"), Verdict.CORRUPT, "replays-differ", "rank-replays-differ"),
        ("replays", odd(2, "transport"), Verdict.CORRUPT, "replays-differ", "rank-sums-differ"),
        (
            "replays",
            odd(2, "compute", is_certain=False),
            Verdict.INCONCLUSIVE,
            "replays-disagree",
            None,
        ),
        ("copies", odd(2, "copy"), Verdict.CORRUPT, "copies-differ", "rank-copy-differs"),
        ("copies", odd(2, "copy", is_certain=False), Verdict.INCONCLUSIVE, "copies-differ", None),
    ],
)
def test_rank_that_differs_bitwise_is_blamed_only_by_a_majority(
    part: str,
    odd_rank: dict[str, Any],
    verdict: Verdict,
    code: str,
    evidence: str | None,
    tmp_path: Path,
) -> None:
    more: dict[str, dict[str, Any]] = {
        "replays": {"steps": 10, "step_ms": []},
        "copies": {"step": 4},
    }
    check = conclude(tmp_path, 7, **{part: {**more[part], "odd": [odd_rank]}})
    assert (check.verdict, check.reason.code) == (verdict, code), check.reason
    assert "rank 2 on node-2" in check.reason.sentence
    assert [(each.name, each.evidence.code) for each in check.suspects] == (
        [("node-2", evidence)] if evidence else []
    )
