"""`seatrial localize` over logs of pairs with a known truth: it is found, or what would tell it is
said.
"""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.cli.app import main
from tests.unit.localize.written_logs import ADDRESSES, Fleet, Placed

SEEDS = range(3)
GOLDEN = Path(__file__).parents[2] / "golden" / "nccl-logs"
Answer = dict[str, Any]


@pytest.fixture
def answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Fleet], Answer]:
    """What the command prints for the logs of a fleet, with its exit status."""

    def localized(fleet: Fleet) -> Answer:
        logs = fleet.write(tmp_path / f"{fleet.seed}")
        with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
            patched.setattr(sys, "argv", ["seatrial", "localize", *logs, "--json"])
            main()
        return {**json.loads(capsys.readouterr().out), "status": ended.value.code}

    return localized


def blamed(answer: Answer, kind: str) -> set[str]:
    """Those of a kind that are named for sure."""
    return {s["name"] for s in answer["suspects"] if s["kind"] == kind and s["confidence"] >= 0.9}


def sure_kinds(answer: Answer) -> set[str]:
    return {f["kind"] for f in answer["findings"] if f.get("confidence", 0) >= 0.9}


def hosts(placed: Placed) -> set[str]:
    return {host for host, _ in placed}


def one_gpu(drawn: random.Random, _host: str) -> tuple[str, ...]:
    return (drawn.choice(ADDRESSES),)


def ends(placed: Placed, address: str) -> int:
    return sum(address in gpus for _, gpus in placed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("share", [0.85, 0.3])
def test_only_the_slow_node_is_named(
    answer: Callable[[Fleet], Answer], seed: int, share: float
) -> None:
    it = answer(
        Fleet(
            seed,
            lambda placed: share if "cnode003" in hosts(placed) else 1,
            noise=0.03,
            strays=0.01,
        )
    )
    assert blamed(it, "node") == {"cnode003"}
    assert it["status"] == 1
    assert it["verdict"] == ("fail" if share < 0.5 else "degraded")


@pytest.mark.parametrize("seed", SEEDS)
def test_two_slow_nodes_are_not_taken_for_a_cut(
    answer: Callable[[Fleet], Answer], seed: int
) -> None:
    slow = {"cnode003", "cnode007"}
    it = answer(
        Fleet(seed, lambda placed: 0.7 if slow & hosts(placed) else 1, nodes=16, strays=0.01)
    )
    assert blamed(it, "node") == slow
    assert sure_kinds(it) == {"node"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("inside", [{0, 1, 2, 3, 4, 5, 6, 7}, {1, 4, 6, 11, 16}, {2, 9}])
def test_a_cut_is_reported_with_both_sides_and_blames_no_node(
    answer: Callable[[Fleet], Answer], seed: int, inside: set[int]
) -> None:
    side = {f"cnode{i:03d}" for i in inside}
    drawn = random.Random(seed)
    it = answer(
        Fleet(
            seed,
            lambda placed: drawn.uniform(0.25, 0.5) if len(side & hosts(placed)) == 1 else 1,
            nodes=17,
            missing=0.05,
        )
    )
    assert sure_kinds(it) == {"cut"}
    assert it["suspects"] == []
    everyone = {f"cnode{i:03d}" for i in range(17)}
    assert sorted(map(sorted, it["findings"][0]["sides"])) == sorted(
        [sorted(side), sorted(everyone - side)]
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_path_from_one_address_is_a_rail_although_most_pairs_with_it_are_fine(
    answer: Callable[[Fleet], Answer], seed: int
) -> None:
    drawn = random.Random(seed)
    it = answer(
        Fleet(
            seed,
            lambda placed: 0.5 if ends(placed, ADDRESSES[3]) == 1 and drawn.random() < 0.3 else 1,
            nodes=17,
            gpus=one_gpu,
        )
    )
    assert blamed(it, "node") == blamed(it, "link") == set()
    assert blamed(it, "rail") == {ADDRESSES[3]}


@pytest.mark.parametrize("seed", SEEDS)
def test_slow_crossed_rails_on_all_nodes_are_reported_as_placement(
    answer: Callable[[Fleet], Answer], seed: int
) -> None:
    def gpus(drawn: random.Random, _host: str) -> tuple[str, ...]:
        return (drawn.choice(ADDRESSES[:4]),)

    it = answer(
        Fleet(
            seed,
            lambda placed: 0.6 if len({g for _, g in placed}) > 1 else 1,
            gpus=gpus,
            strays=0.01,
        )
    )
    assert sure_kinds(it) == {"placement"}
    assert it["suspects"] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_one_rail_of_one_node_is_told_from_the_node(
    answer: Callable[[Fleet], Answer], seed: int
) -> None:
    bad, used = ("cnode005", (ADDRESSES[1],)), []

    def speed(placed: Placed) -> float:
        used.append(bad in placed)
        return 0.5 if used[-1] else 1

    it = answer(Fleet(seed, speed, gpus=lambda drawn, _: (drawn.choice(ADDRESSES[:3]),)))
    assert blamed(it, "node") == set()
    assert blamed(it, "gpu") == {f"cnode005/{ADDRESSES[1]}"} or sum(used) < 3


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slow", ["node", "placement"])
def test_node_always_tested_in_one_placement_is_not_blamed(
    answer: Callable[[Fleet], Answer], seed: int, slow: str
) -> None:
    """The numbers are the same whether node or placement is slow: both are named, and the next test
    separates them.
    """
    assert slow
    it = answer(
        Fleet(
            seed,
            lambda placed: 0.6 if "cnode002" in hosts(placed) else 1,
            gpus=lambda _, host: (ADDRESSES[1] if host == "cnode002" else ADDRESSES[0],),
        )
    )
    assert it["status"] == 3
    assert blamed(it, "node") == set()
    shares = {f["kind"]: f["confidence"] for f in it["findings"]}
    assert shares["node"] > 0.05
    assert shares["placement"] > 0.05
    assert sum(f["confidence"] for f in it["findings"]) == pytest.approx(1, abs=0.1)
    assert it["next_test"]["nodes"]


@pytest.mark.parametrize("seed", SEEDS)
def test_missing_and_failed_pairs_blame_nobody_healthy(
    answer: Callable[[Fleet], Answer], seed: int
) -> None:
    it = answer(
        Fleet(
            seed,
            lambda placed: 0.7 if "cnode003" in hosts(placed) else 1,
            nodes=16,
            missing=0.5,
            failing=0.1,
        )
    )
    assert blamed(it, "node") == {"cnode003"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_whose_tests_fail_is_named(answer: Callable[[Fleet], Answer], seed: int) -> None:
    it = answer(
        Fleet(seed, lambda placed: None if "cnode003" in hosts(placed) else 1, failing=0.03)
    )
    assert blamed(it, "node") == {"cnode003"}
    assert {f["code"] for f in it["findings"]} == {"localize-node-fails"}


@pytest.mark.parametrize("seed", range(10))
def test_strays_of_a_healthy_fleet_name_no_part(
    answer: Callable[[Fleet], Answer], seed: int
) -> None:
    it = answer(Fleet(seed, lambda _: 1, noise=0.03, strays=0.01))
    assert it["suspects"] == []
    assert it["findings"] == [{"code": "localize-none", "kind": "none", "sides": []}]
    assert (it["status"] == 3) == bool(it["next_test"])
    assert it["status"] in (0, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_link_measured_once_is_to_be_repeated(
    answer: Callable[[Fleet], Answer], seed: int
) -> None:
    it = answer(Fleet(seed, lambda placed: 0.5 if hosts(placed) == {"cnode002", "cnode005"} else 1))
    assert it["suspects"] == []
    assert it["status"] == 3
    assert it["next_test"]["nodes"] == ["cnode002", "cnode005"]


def test_rates_printed_as_zero_are_computed_from_times(
    answer: Callable[[Fleet], Answer],
) -> None:
    """10 MB/s prints as 0.01 GB/s, and a tenth of that as 0.00."""
    slow = answer(
        Fleet(0, lambda placed: 2.5e-5 if "cnode003" in hosts(placed) else 2.5e-4, nodes=6)
    )
    assert (blamed(slow, "node"), sure_kinds(slow)) == ({"cnode003"}, {"node"})
    (finding,) = slow["findings"]
    assert all(0.08 < row["ratio"] < 0.12 for row in finding["tests"] if "cnode003" in row["nodes"])


def test_tests_over_all_nodes_are_refused_with_the_command_that_judges_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = GOLDEN / "xxrjun_h100_n10g8_80ranks_five_collectives.log"
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr(sys, "argv", ["seatrial", "localize", str(log)])
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert line.startswith("seatrial: LOGS: every test is over the same 10 nodes")
    assert "`seatrial judge LOGS`" in line
