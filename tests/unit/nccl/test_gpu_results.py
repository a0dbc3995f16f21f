"""The logs of docs/gpu-results, from nccl-tests 2.19 on real GPUs: what the page says of them."""

from pathlib import Path

import pytest

from seatrial.nccl import classify, parse_file
from seatrial.nccl.model import Sweep

LOGS = Path(__file__).parents[3] / "docs" / "gpu-results"


def sweep(name: str) -> Sweep:
    (made,) = parse_file(LOGS / name)
    return made


@pytest.mark.parametrize(
    ("name", "ranks", "model", "rows"),
    [
        ("h100-four-nodes.log", 4, "NVIDIA H100 80GB HBM3", 6),
        ("h100-slow-node.log", 4, "NVIDIA H100 80GB HBM3", 6),
        ("h200-killed-rank.log", 4, "NVIDIA H200", 1),
        ("h200-one-rank.log", 1, "NVIDIA H200", 14),
    ],
)
def test_a_log_is_read_whole(name: str, ranks: int, model: str, rows: int) -> None:
    made = sweep(name)
    assert (made.collective, made.ranks, len(made.rows)) == ("all_reduce", ranks, rows)
    assert {device.name for device in made.devices} == {model}
    assert all(row.out_of_place and row.out_of_place.wrong == 0 for row in made.rows)


def test_the_slow_node_takes_nineteen_times_as_long() -> None:
    healthy, slow = (sweep(f"h100-{name}.log").rows[-1].out_of_place for name in ("four-nodes", "slow-node"))
    assert (healthy and healthy.time_us, slow and slow.time_us) == (108_900, 2_118_670)


def test_the_rank_that_was_killed_is_told_from_those_that_noticed() -> None:
    first = classify((LOGS / "h200-killed-rank.log").read_text().splitlines())[0]
    assert (first.host, "killed by a signal" in first.cause) == ("10.77.0.4", True), "as mpirun calls node-2"
