"""Levels, the next test, and a posterior that can be worked out by hand."""

import math
from itertools import combinations, pairwise, permutations
from random import Random
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from seatrial.localize import GroupTest, Localization, NextTest, localize
from seatrial.localize.cause import Cause
from seatrial.localize.causes import columns
from seatrial.localize.findings import shown_first
from seatrial.localize.level import fast_level
from seatrial.localize.localization import tests_of
from seatrial.localize.next_test import affects
from seatrial.localize.observations import Comparison
from seatrial.localize.posterior import Posterior
from seatrial.model.verdict import Verdict
from seatrial.report.pairs import pair_matrices


def pair(a: str, b: str, busbw: float, **more: object) -> GroupTest:
    gpus = more.get("gpus", ())
    assert isinstance(gpus, tuple)
    return GroupTest(f"{a}-{b}", "alltoall", (a, b), {1 << 30: busbw} if busbw else {}, gpus)


def test_tests_that_no_other_part_explains_are_shown_or_all_where_there_are_none() -> None:
    node, link = Cause("node", "n0"), Cause("link", "n0--n1")
    tests = {node: np.array([0, 1, 2]), link: np.array([0, 1])}
    effects = [SimpleNamespace(causes=(cause,), likeliest=cause) for cause in tests]
    posterior = cast(Posterior, SimpleNamespace(effects=effects, tests_of=tests.__getitem__))
    assert shown_first(posterior, node, tests[node]).tolist() == [2]
    assert shown_first(posterior, link, tests[link]).tolist() == [0, 1]


def test_normal_level_is_that_of_the_fast_tests_though_most_are_slow() -> None:
    random = np.random.default_rng(0)
    values = np.concatenate([random.normal(0, 0.03, 20), random.normal(-0.7, 0.1, 100)])
    assert fast_level(values) == pytest.approx(0, abs=0.03)


def test_worked_example_of_the_docs_names_the_slow_node() -> None:
    busbw = {
        ("n0", "n1"): 100,
        ("n2", "n3"): 60,
        ("n1", "n2"): 60,
        ("n3", "n0"): 100,
        ("n0", "n2"): 60,
    }
    localization = localize([pair(a, b, rate) for (a, b), rate in busbw.items()])
    (finding,) = localization.findings
    assert (finding.cause.kind, finding.cause.name) == ("node", "n2")
    assert finding.confidence == 0.999
    assert [row.ratio for row in finding.rows] == pytest.approx([0.6] * 3, abs=0.01)
    assert localization.next_test is None


@pytest.mark.parametrize("share", [0.02, 0.01, 0.0003])
def test_node_that_has_almost_stopped_is_named_with_its_true_speed(share: float) -> None:
    random = np.random.default_rng(1)
    tests = [
        pair(a, b, 400 * random.normal(1, 0.01) * (share if "n3" in (a, b) else 1))
        for a, b in combinations([f"n{i}" for i in range(8)], 2)
    ]
    localization = localize(tests)
    (finding,) = localization.findings
    assert (finding.cause.kind, finding.cause.name, finding.named) == ("node", "n3", True)
    assert finding.reason.values["percent"] == round(100 * share)
    assert all(row.ratio == pytest.approx(share, rel=0.05, abs=0.001) for row in finding.rows)


@pytest.mark.parametrize("nodes", [4, 5, 8])
@pytest.mark.parametrize("gpus", ["1b 43 9d c3", "1b,43 9d,c3"])
def test_slow_rail_of_few_nodes_is_named(nodes: int, gpus: str) -> None:
    rails = [tuple(rail.split(",")) for rail in gpus.split()]
    names = [f"n{i}" for i in range(nodes)]
    localization = localize(
        [
            pair(a, b, 60 if rail == rails[1] else 100, gpus=(rail, rail))
            for a, b in combinations(names, 2)
            for rail in rails
        ]
    )
    (finding,) = localization.findings
    assert (finding.kind, finding.cause.gpus, finding.named) == ("rail", rails[1], True)


def in_four_racks(across: float, slow: float, seed: int = 0) -> list[GroupTest]:
    """All pairs of 16 nodes: slower across racks of four, and slow with n5."""
    random = np.random.default_rng(seed)
    return [
        pair(
            f"n{a}",
            f"n{b}",
            100
            * random.normal(1, 0.01)
            * (slow if 5 in (a, b) else 1)
            * (1 if a // 4 == b // 4 else across),
        )
        for a, b in combinations(range(16), 2)
    ]


def test_slow_node_is_named_beside_the_cut_between_all_racks() -> None:
    localization = localize(in_four_racks(across=0.8, slow=0.6))
    node, cut = localization.findings
    assert (node.cause.kind, node.cause.name, node.named) == ("node", "n5", True)
    assert (cut.kind, len(cut.sides), cut.named) == ("cut", 4, True)
    assert localization.verdict is Verdict.FAIL
    assert localization.next_test is None


def test_cut_of_which_no_node_is_sure_names_all_that_may_belong_to_it() -> None:
    node, cut = localize(in_four_racks(across=0.95, slow=0.8, seed=5)).findings
    assert (node.cause.name, node.named) == ("n5", True)
    assert (cut.title, cut.named) == ("a cut between 4 groups", False)
    assert "slow between 4 groups of nodes" in cut.reason.sentence
    assert "n1" in cut.unsure


# Microseconds of 128 and 512 KiB between two local nodes, of two groups whose uplink had a
# twentieth of a node's rate.
BEHIND_AN_UPLINK = (
    "01 112655 448532", "23 112783 580385", "45 112809 448973", "67 113276 514376", "12 112802 507436",
    "34 6822 27835", "56 112739 461340", "70 8653 24844", "34 9146 24696", "70 7234 24330", "16 10216 35034",
    "52 8153 25314", "01 112665 476586", "23 112287 509084", "45 112276 577727", "67 115417 535452",
    "02 9473 25854", "46 7281 28691", "73 112421 534479", "15 112607 583817",
)  # fmt: skip


def test_fast_tests_that_scatter_are_the_level_next_to_far_slower_ones_that_agree() -> None:
    rows = [line.split() for line in BEHIND_AN_UPLINK]
    tests = [
        GroupTest(p, "all_reduce", (p[0], p[1]), {128: 131 / int(a), 512: 524 / int(b)})
        for p, a, b in rows
    ]
    (cut,) = localize(tests).findings
    assert (cut.kind, {frozenset(side) for side in cut.sides}) == (
        "cut",
        {frozenset("1346"), frozenset("0257")},
    )
    assert cut.confidence > 0.99
    assert cut.rows[0].ratio == pytest.approx(0.06, abs=0.01)


def test_two_nodes_that_were_only_tested_together_share_the_blame_with_their_link() -> None:
    others = [pair(a, b, 40) for a, b in combinations("abcdef", 2)]
    localization = localize([*others, *(pair("x", "y", 20) for _ in range(4))])
    assert localization.verdict == "inconclusive"
    assert {f.cause.kind for f in localization.findings} == {"node", "link"}
    assert sum(f.confidence for f in localization.findings) == pytest.approx(1, abs=0.02)
    assert localization.next_test is not None
    assert len({"x", "y"}.intersection(localization.next_test.nodes)) == 1


def test_a_single_slow_test_names_no_part() -> None:
    tests = [pair(a, b, 40) for a, b in combinations("abcdef", 2)]
    localization = localize([*tests, pair("a", "x", 1)])
    assert localization.suspects == ()
    assert localization.next_test == NextTest(("a", "x"))


@pytest.mark.parametrize("repeats", [2, 3])
def test_a_link_that_is_slow_in_one_direction_is_named_with_it(repeats: int) -> None:
    tests = [
        pair(a, b, 20 if (a, b) == ("e", "b") else 40)
        for a, b in [*permutations("abcdef", 2)] * repeats
    ]
    localization = localize(tests)
    (finding,) = localization.findings
    assert finding.named
    assert finding.title == "link b--e"
    assert f"slow in {repeats} of {repeats} tests of the two from e to b" in str(finding.reason)
    (matrix,) = pair_matrices({**localization.to_dict(), "tests": tests_of(localization)})
    assert matrix.nodes[:2] == ("b", "e")
    assert [matrix.lines[0][1].text, matrix.lines[1][0].text] == ["100 %", "50 %"]


def test_a_node_that_is_slow_in_one_direction_is_named_and_not_its_links() -> None:
    tests = [pair(a, b, 20 if a == "e" else 40) for a, b in [*permutations("abcdef", 2)] * 3]
    assert [finding.title for finding in localize(tests).findings] == ["node e"]


def test_slow_links_of_a_ring_are_no_links_while_a_cut_explains_them() -> None:
    """Two leaf switches with the ranks in order: only two neighbours in the ring are on different
    ones.
    """
    ring = [*pairwise("abcdefgh"), ("h", "a")]
    behind = {("d", "e"), ("h", "a")}
    tests = [pair(a, b, 20 if (a, b) in behind else 40) for a, b in ring * 3]
    localization = localize(tests)
    assert localization.verdict == "inconclusive"
    assert localization.next_test is not None
    a, b = localization.next_test.nodes
    assert (a in "abcd") != (b in "abcd")
    assert {a, b} not in [set(each) for each in ring], "what was tested already tells nothing new"
    fine = localize([*tests, pair("b", "g", 40), pair("c", "f", 40)])
    assert {f.cause.name for f in fine.findings if f.named} == {"d--e", "a--h"}


def test_a_node_that_is_fine_with_another_is_not_named_for_two_slow_links() -> None:
    tests = [
        pair(a, b, 20 if "d" in (a, b) else 40) for a, b in [*pairwise("abcdefgh"), ("h", "a")] * 3
    ]
    assert [
        s.name for s in localize(tests).suspects if s.kind == "node" and s.confidence >= 0.9
    ] == ["d"]
    localization = localize([*tests, pair("d", "g", 40)])
    assert not [f for f in localization.findings if f.cause.kind == "node" and f.named]


def test_slow_test_with_a_fast_repeat_passes() -> None:
    tests = [pair(a, b, 40) for a, b in combinations("abcdef", 2)]
    assert localize([*tests, pair("a", "b", 20)]).verdict == "pass"


def test_tests_under_other_conditions_are_not_compared() -> None:
    tests = [pair(a, b, 40) for a, b in combinations("abcd", 2)]
    slower = [GroupTest("g", "alltoall", ("a", "b", "c", "d"), {1 << 30: 5.0}) for _ in range(4)]
    assert localize([*tests, *slower]).verdict == "pass"


def test_a_node_that_is_slow_in_most_tests_of_it_alone_is_named() -> None:
    rates = [
        (node, 50 if node == "n3" and turn < 4 else 100)
        for node in ("n1", "n2", "n3", "n4")
        for turn in range(5)
    ]
    localization = localize(
        [GroupTest(node, "all_reduce", (node,), {1 << 30: rate}) for node, rate in rates]
    )
    assert [(finding.title, finding.named) for finding in localization.findings] == [
        ("node n3", True)
    ]


def test_nodes_that_are_slow_in_tests_of_each_by_itself_are_named_and_not_a_cut() -> None:
    tests = [
        GroupTest(node, "all_reduce", (node,), {1 << 30: 60 if node in ("n2", "n5") else 100})
        for node in (f"n{i}" for i in range(8))
        for _ in range(3)
    ]
    localization = localize(tests)
    assert localization.verdict is Verdict.DEGRADED
    assert sorted(finding.title for finding in localization.findings) == ["node n2", "node n5"]


@pytest.mark.parametrize("seed", range(0, 1000, 100))
def test_random_tests_always_get_a_valid_verdict(seed: int) -> None:
    for one in range(seed, seed + 100):
        random = Random(one)
        names = [f"n{i}" for i in range(random.randint(1, 10))]
        tests = []
        for turn in range(random.randint(0, 40)):
            nodes = tuple(random.choices(names, k=random.randint(1, 4)))
            gpus = (
                tuple(random.choice([(), ("0",), ("0", "1")]) for _ in nodes)
                if random.random() < 0.5
                else ()
            )
            rate = random.choice((100, 100, 50, 0)) * random.lognormvariate(0, 0.05)
            tests.append(
                GroupTest(f"{turn}", "all_reduce", nodes, {1 << 30: rate} if rate else {}, gpus)
            )
        localization = localize(tests, {"rack": frozenset(names[:4])})
        assert localization.verdict in ("pass", "degraded", "fail", "inconclusive")
        assert all(0 < finding.confidence <= 1 for finding in localization.findings)


def test_localize_without_tests_is_inconclusive() -> None:
    assert localize([]).verdict == "inconclusive"


def test_column_of_a_cause_lists_exactly_the_tests_it_affects() -> None:
    gpus = [(("0",), ("0",)), (("0",), ("1",)), (("1",), ("1",))]
    tests = [
        pair(a, b, 20 if i % 3 else 40, gpus=gpus[i % 3])
        for i, (a, b) in enumerate(combinations("abcdef", 2))
    ]
    observed = Comparison(tests).observed()
    for column in columns(observed, {"rack": frozenset("abc")}):
        if column.cause.penetrance > 0.9 or column.cause.at_one_end:
            assert column.tests.tolist() == [
                i for i, test in enumerate(tests) if affects(column.cause, test)
            ]


def test_observed_values_are_log_ratios_to_comparable_tests() -> None:
    observed = Comparison(
        [pair(a, b, 20 if "d" in (a, b) else 40) for a, b in combinations("abcdef", 2)]
    ).observed()
    assert observed.value[observed.slow] == pytest.approx(math.log(0.5), abs=0.01)
    assert observed.slow.sum() == 5


@pytest.mark.parametrize("collective", ["all_reduce", "alltoall"])
def test_the_links_of_a_test_are_in_the_order_of_their_names(collective: str) -> None:
    """That of a set differs from one interpreter to the next, and may decide a tie."""
    nodes = tuple(f"node-{n}" for n in (5, 2, 7, 1, 4, 3, 6, 0))
    links = GroupTest("all", collective, nodes).neighbours
    assert list(links) == sorted(links)
    assert len(links) == (8 if collective == "all_reduce" else 28)


@pytest.mark.parametrize("count", [4, 6, 8, 16])
def test_one_faster_node_is_said_and_the_others_are_not_slow_unless_one_is(count: int) -> None:
    random = np.random.default_rng(count)
    names = [f"n{i}" for i in range(count)]

    def localized(of_n2: float) -> Localization:
        return localize(
            [
                pair(
                    a,
                    b,
                    random.normal(100, 1)
                    * (1.2 if "n1" in (a, b) else 1)
                    * (of_n2 if "n2" in (a, b) else 1),
                )
                for a, b in combinations(names, 2)
            ]
        )

    fine = localized(1)
    assert not fine.findings
    assert (fine.verdict, fine.reason.code) == (Verdict.INCONCLUSIVE, "localize-faster")
    assert fine.reason.values["part"] == "n1"
    assert fine.reason.values["percent"] == pytest.approx(20, abs=2)
    if count > 4:
        (finding,) = localized(0.7).findings
        assert (finding.cause.name, finding.named) == ("n2", True)
        assert finding.reason.values["percent"] == pytest.approx(70, abs=2)


def test_one_faster_gpu_is_said_and_no_node_is_slow() -> None:
    random = np.random.default_rng(1)
    localization = localize(
        [
            pair(
                a, b, random.normal(120 if (a, gpu) == ("n0", "43") else 100, 1), gpus=((gpu,),) * 2
            )
            for a, b in combinations([f"n{i}" for i in range(8)], 2)
            for gpu in ("1b", "43", "9d", "c3")
        ]
    )
    assert not localization.findings
    assert localization.reason.values["part"] == "n0/43"
