"""Who is blamed for which pattern of failed pairs."""

import random
from collections.abc import Sequence
from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.checks.connectivity import reachability
from seatrial.checks.connectivity.reachability import Blame, Pair, TriedPairs
from seatrial.checks.connectivity.stages import peers_to_reach
from seatrial.model.reason import uncoded
from seatrial.text.hostlist import host_list
from tests.suspects import kinds_and_names, suspect_names

NAMES = [f"node-{i}" for i in range(6)]


def blame(tried: dict[Pair, str]) -> Blame:
    """Who is to blame for the pairs with an error text among those of `tried`."""
    peers: dict[str, list[str]] = {}
    for a, b in tried:
        peers.setdefault(a, []).append(b)
    return reachability.blame(
        TriedPairs(peers, {pair: uncoded(error) for pair, error in tried.items() if error})
    )


def error_by_pair(failing: set[frozenset[str]], names: list[str] = NAMES) -> dict[Pair, str]:
    return {
        pair: "refused" if frozenset(pair) in failing else "" for pair in permutations(names, 2)
    }


def all_of(name: str, names: list[str] = NAMES) -> set[frozenset[str]]:
    return {frozenset((name, other)) for other in names if other != name}


def test_nobody_is_blamed_when_all_pairs_work() -> None:
    assert blame(error_by_pair(set())) == blame({})
    assert blame(error_by_pair(set())).suspects == ()


def test_a_node_that_fails_everywhere_is_blamed_alone() -> None:
    findings = blame(error_by_pair(all_of("node-3")))
    assert [(s.kind, s.name, s.confidence) for s in findings.suspects] == [("node", "node-3", 1.0)]
    assert findings.set_aside == ("node-3",)
    assert "5 of 5 nodes: refused" in findings.suspects[0].evidence.sentence


def test_single_failing_pair_is_a_link_and_its_second_node_is_left_out() -> None:
    findings = blame(error_by_pair({frozenset(("node-0", "node-4"))}))
    assert kinds_and_names(findings) == [("link", "node-0--node-4")]
    assert findings.set_aside == ("node-4",)


def test_failed_node_and_failed_link_are_both_found() -> None:
    findings = blame(error_by_pair(all_of("node-5") | {frozenset(("node-1", "node-2"))}))
    assert set(kinds_and_names(findings)) == {("node", "node-5"), ("link", "node-1--node-2")}
    assert set(findings.set_aside) == {"node-5", "node-2"}


def test_failing_pair_of_two_nodes_blames_neither() -> None:
    findings = blame(error_by_pair({frozenset(("node-0", "node-1"))}, NAMES[:2]))
    assert [(s.kind, s.confidence) for s in findings.suspects] == [("link", 0.5)]
    assert findings.set_aside == ("node-1",)


def test_failure_in_one_direction_is_a_link() -> None:
    pairs = error_by_pair(set()) | {("node-2", "node-1"): "timed out"}
    assert suspect_names(blame(pairs)) == ["node-1--node-2"]


def between(a: Sequence[str], b: Sequence[str]) -> set[frozenset[str]]:
    return {frozenset((x, y)) for x in a for y in b}


@pytest.mark.parametrize(
    ("count", "at", "name", "set_aside"),
    [
        (4, 2, "node-[0-1]--node-[2-3]", 2),
        (64, 32, "node-[0-31]--node-[32-63]", 32),
        (64, 8, "node-[0-7]--node-[8-63]", 8),
        (64, 56, "node-[0-55]--node-[56-63]", 8),
    ],
)
def test_a_cut_is_one_finding_with_both_sides(
    count: int, at: int, name: str, set_aside: int
) -> None:
    names = [f"node-{i}" for i in range(count)]
    result = blame(error_by_pair(between(names[:at], names[at:]), names))
    (suspect,) = result.suspects
    assert (suspect.kind, suspect.name, suspect.evidence.code) == ("link", name, "fabric-cut")
    assert f"{at * (count - at)} pairs fail" in suspect.evidence.sentence
    assert len(result.set_aside) == set_aside
    assert not result.setup


def test_cut_into_three_groups_and_a_dead_node_are_found_together() -> None:
    names = [f"n{i}" for i in range(10)]
    sides = names[:4], names[4:7], names[7:9]
    failing = (
        between(sides[0], [*sides[1], *sides[2]])
        | between(sides[1], sides[2])
        | all_of("n9", names)
    )
    result = blame(error_by_pair(failing, names))
    assert kinds_and_names(result) == [("link", "n[0-3]--n[4-6]--n[7-8]"), ("node", "n9")]
    assert set(result.set_aside) == set(names[4:])


def test_cut_is_found_from_a_sample_of_the_pairs() -> None:
    names = [f"node-{i}" for i in range(256)]
    peers = peers_to_reach(names, "run", shared_cores=8)
    across = between(names[:96], names[96:])
    result = blame(
        {
            (a, b): "timed out" if frozenset((a, b)) in across else ""
            for a in names
            for b in peers[a]
        }
    )
    assert suspect_names(result) == ["node-[0-95]--node-[96-255]"]


@pytest.mark.parametrize("count", [3, 4, 64])
def test_setup_is_suspected_and_no_node_blamed_when_no_pair_works(count: int) -> None:
    names = [f"node-{i}" for i in range(count)]
    result = blame(error_by_pair({frozenset(pair) for pair in permutations(names, 2)}, names))
    assert result.suspects == ()
    assert result.setup and result.setup.code == "no-pair-works"
    assert len(result.set_aside) == count - 1


def test_many_failing_links_of_one_node_are_one_finding() -> None:
    names = [f"node-{i}" for i in range(40)]
    (suspect,) = blame(error_by_pair(between(["node-39"], names[:12]), names)).suspects
    assert (suspect.kind, suspect.name) == ("link", "node-39--node-[0-11]")


SIDES = st.lists(st.integers(2, 6), min_size=2, max_size=4)


@given(SIDES, st.randoms(use_true_random=False))
def test_any_cut_is_named_with_exactly_its_sides(sizes: list[int], rng: random.Random) -> None:
    names = [f"node-{i}" for i in range(sum(sizes))]
    shuffled = rng.sample(names, len(names))
    sides, start = [], 0
    for size in sizes:
        sides.append(shuffled[start : start + size])
        start += size
    failing = {pair for a, b in combinations(sides, 2) for pair in between(a, b)}
    result = blame(error_by_pair(failing, names))
    (suspect,) = result.suspects
    in_order = sorted(
        (sorted(side, key=natural) for side in sides), key=lambda side: natural(side[0])
    )
    assert suspect.name == "--".join(host_list(side) for side in in_order)
    assert len(result.set_aside) == len(names) - max(sizes)


def natural(name: str) -> int:
    return int(name.rpartition("-")[2])


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["head"], "head"),
        (["node-3"], "node-3"),
        (["node-3", "node-1", "node-2", "node-7", "head"], "node-[1-3,7], head"),
        (["gpu-01", "gpu-02", "gpu-10"], "gpu-[01-02,10]"),
        (["a1", "b1"], "a1, b1"),
    ],
)
def test_host_lists_are_short_and_bounded(names: list[str], text: str) -> None:
    assert host_list(names) == text
    assert len(host_list([f"x{i}y" for i in range(1000)])) == 200


@given(st.sets(st.sampled_from(sorted({tuple(sorted(p)) for p in permutations(NAMES, 2)}))))
def test_remaining_nodes_all_reach_each_other(failing: set[tuple[str, str]]) -> None:
    findings = blame(error_by_pair({frozenset(pair) for pair in failing}))
    stay = set(NAMES) - set(findings.set_aside)
    assert not any(set(pair) <= stay for pair in failing)
    assert bool(findings.suspects or findings.setup) == bool(failing)
