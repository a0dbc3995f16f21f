"""Pairs of nodes that were tested, as matrices in the order of what was found, one for each
operation. Pure.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.text import words

NODES_SHOWN = 40
_SURE = 0.5  # the confidence from which a finding orders and marks the nodes
_HALF = 0.5  # of the speed of like pairs, below which a pair has failed

Test = Mapping[str, Any]
Tests = Sequence[Test]
Sides = Sequence[Sequence[str]]  # the nodes of each side of a cut
Pairs = Mapping[frozenset[str], Tests]


@dataclass(frozen=True, slots=True)
class PairCell:
    """`text` is the share of what like pairs reach, in percent; empty where the pair was not
    tested.

    `tooltip` has the rate of each test in GB/s, in the order of the tests.
    """

    text: str = ""
    verdict: Verdict | None = None
    tooltip: str = ""


@dataclass(frozen=True, slots=True)
class PairMatrix:
    """Lines of cells, one for each of `nodes`; the first `split` are one side of a cut, `left_out`
    are not shown.

    `starts` are the places at which another side of a cut begins; `blamed` are the nodes that a
    finding names.
    """

    nodes: tuple[str, ...]
    lines: tuple[tuple[PairCell, ...], ...]
    split: int
    left_out: int
    operation: str = ""
    starts: tuple[int, ...] = ()
    blamed: frozenset[str] = frozenset()


def pair_matrix(result: RunResult) -> PairMatrix | None:
    """Return the matrix of a run, whose rounds have one operation; None where no pairs were
    tested.
    """
    document = result.localization or {}
    blamed = [node for suspect in result.suspects for node in suspect.nodes]
    return next(iter(pair_matrices(document, blamed)), None)


def pair_matrices(document: Mapping[str, Any], blamed: Iterable[str] = ()) -> list[PairMatrix]:
    """Return a matrix for each operation in a localisation's document, all with the nodes in the
    same order.

    Nodes in `blamed` are marked besides those that the document's own findings name. Tests of more
    nodes than two are no pairs, and are left out. Only the first cut orders the nodes.
    """
    by_operation: dict[str, dict[frozenset[str], list[Test]]] = defaultdict(
        partial(defaultdict, list)
    )
    for test in document.get("tests", ()):
        pair = frozenset(test["nodes"])
        if len(pair) == 2:
            operation = test.get("collective") or document.get("collective") or ""
            by_operation[str(operation)][pair].append(test)
    named: set[str] = set()
    cuts = []
    for finding in document.get("findings", ()):
        if finding.get("confidence", 1.0) < _SURE:
            continue
        if finding["kind"] == "cut":
            cuts.append(finding["sides"])
        else:
            named.update(finding.get("nodes", ()))
    marked = frozenset(named.union(blamed))
    sides = cuts[0] if cuts else ()
    nodes = _ordered(by_operation.values(), marked, sides)
    return [
        _matrix(operation, pairs, nodes, marked, sides) for operation, pairs in by_operation.items()
    ]


def _ordered(operations: Iterable[Pairs], blamed: Set[str], sides: Sides) -> list[str]:
    """Return the nodes to show: those that are blamed first, then by slow tests; within the sides
    of a cut.

    If there is no room for all, the last nodes of that order are left out, whichever side they are
    on.
    """
    slow: Counter[str] = Counter()
    for pairs in operations:
        for pair, tests in pairs.items():
            slow_tests = sum(bool(test["slow"]) for test in tests)
            for node in pair:
                slow[node] += slow_tests

    def doubt(node: str) -> tuple[bool, int, str]:
        return node not in blamed, -slow[node], node

    shown = sorted(slow, key=doubt)[:NODES_SHOWN]
    side_of = _side_of(sides)
    last = len(sides)
    return sorted(shown, key=lambda node: side_of.get(node, last))


def _side_of(sides: Sides) -> dict[str, int]:
    """Return the number of each node's side, from 0 on."""
    side_of: dict[str, int] = {}
    for place, side in enumerate(sides):
        side_of |= dict.fromkeys(side, place)
    return side_of


def _matrix(
    operation: str, pairs: Pairs, nodes: Sequence[str], blamed: frozenset[str], sides: Sides
) -> PairMatrix:
    """Return the matrix of an operation; a line per node and in it a cell per node.

    A pair is there twice: each time with its tests in that order if there are any, else with all.
    """
    lines = []
    for first in nodes:
        cells = []
        for second in nodes:
            tests = pairs.get(frozenset((first, second)), ())
            in_order = [test for test in tests if tuple(test["nodes"]) == (first, second)]
            cells.append(_cell(in_order or tests))
        lines.append(tuple(cells))
    tested = set[str]().union(*pairs)
    side_of = _side_of(sides)
    # Nodes of no side are behind all sides
    numbers = [side_of.get(node, len(sides)) for node in nodes]
    starts = [place for place in range(1, len(nodes)) if numbers[place] != numbers[place - 1]]
    split = starts[0] if starts and len(sides) == 2 else 0
    return PairMatrix(
        nodes=tuple(nodes),
        lines=tuple(lines),
        split=split,
        left_out=len(tested.difference(nodes)),
        operation=operation,
        starts=tuple(starts),
        blamed=blamed,
    )


def _cell(tests: Tests) -> PairCell:
    """Return the cell of a pair: the median of its tests, and bad where more than half of them are
    slow.
    """
    if not tests:
        return PairCell()
    ratios = [test["ratio"] for test in tests if test["ratio"] is not None]
    text = "failed"
    if ratios:
        median = statistics.median(ratios)
        text = f"{100 * median:.0f} %"
    slow_tests = sum(test["slow"] for test in tests)
    is_slow = 2 * slow_tests > len(tests)
    verdict = _verdict(is_slow, ratios)
    rates = (test["busbw_gb_s"] for test in tests)
    shown = [words.quantity(rate, "GB/s") if rate else "failed" for rate in rates]
    return PairCell(text, verdict, tooltip=", ".join(shown))


def _verdict(slow: bool, ratios: Sequence[float]) -> Verdict:
    """Return the verdict on a pair, by its share of the speed of like pairs in each test; a test
    that failed has none.
    """
    if not slow:
        return Verdict.PASS
    if not ratios or statistics.median(ratios) < _HALF:
        return Verdict.FAIL
    return Verdict.DEGRADED
