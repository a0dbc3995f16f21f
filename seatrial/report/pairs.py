"""Pairs of nodes that were tested, as matrices in the order of what was found, one for each
operation. Pure.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.text import words

NODES_SHOWN = 40
_SURE = 0.5  # the confidence from which a finding orders and marks the nodes
_HALF = 0.5  # of the speed of like pairs, below which a pair has failed

Tests = Sequence[Mapping[str, Any]]
Pairs = Mapping[frozenset[str], Tests]


@dataclass(frozen=True, slots=True)
class PairCell:
    """`text` is the share of what like pairs reach, in percent; empty where the pair was not
    tested.
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
    blamed = [name for suspect in result.suspects for name in suspect.nodes]
    return next(iter(pair_matrices(document, blamed)), None)


def pair_matrices(document: Mapping[str, Any], blamed: Iterable[str] = ()) -> list[PairMatrix]:
    """Return a matrix for each operation in a localisation's document, all with the nodes in the
    same order.
    """
    by_operation: dict[str, dict[frozenset[str], list[Mapping[str, Any]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for test in document.get("tests", ()):
        if len(set(test["nodes"])) == 2:
            operation = str(test.get("collective") or document.get("collective") or "")
            by_operation[operation][frozenset(test["nodes"])].append(test)
    findings = [
        finding
        for finding in document.get("findings", ())
        if finding.get("confidence", 1.0) >= _SURE
    ]
    named = {
        name
        for finding in findings
        if finding["kind"] != "cut"
        for name in finding.get("nodes", ())
    }
    marked = frozenset((*blamed, *named))
    cut = next((finding["sides"] for finding in findings if finding["kind"] == "cut"), ())
    nodes = _ordered(by_operation.values(), marked, cut)
    return [
        _matrix(operation, pairs, nodes, marked, cut) for operation, pairs in by_operation.items()
    ]


def _ordered(
    operations: Iterable[Pairs], blamed: frozenset[str], sides: Sequence[Sequence[str]]
) -> list[str]:
    """Return all nodes: those that are blamed first, then by slow tests; within the sides of a
    cut.
    """
    slow: Counter[str] = Counter()
    for pairs in operations:
        for pair, tests in pairs.items():
            slow.update(dict.fromkeys(pair, sum(bool(test["slow"]) for test in tests)))
    side_of = _side_of(sides)
    by_doubt = sorted(slow, key=lambda node: (node not in blamed, -slow[node], node))[:NODES_SHOWN]
    shown = set(by_doubt)
    first = sorted(
        slow,
        key=lambda node: (side_of.get(node, len(sides)), node not in blamed, -slow[node], node),
    )
    return [node for node in first if node in shown]


def _side_of(sides: Sequence[Sequence[str]]) -> dict[str, int]:
    return {node: place for place, side in enumerate(sides) for node in side}


def _matrix(
    operation: str,
    pairs: Pairs,
    nodes: Sequence[str],
    blamed: frozenset[str],
    sides: Sequence[Sequence[str]],
) -> PairMatrix:
    lines = tuple(tuple(_cell(pairs.get(frozenset((a, b)), ())) for b in nodes) for a in nodes)
    left_out = len({node for pair in pairs for node in pair} - set(nodes))
    side_of = _side_of(sides)
    numbers = [side_of.get(node, len(sides)) for node in nodes]
    starts = tuple(i for i in range(1, len(nodes)) if numbers[i] != numbers[i - 1])
    split = starts[0] if len(sides) == 2 and starts else 0
    return PairMatrix(tuple(nodes), lines, split, left_out, operation, starts, blamed)


def _cell(tests: Tests) -> PairCell:
    if not tests:
        return PairCell()
    ratios = [test["ratio"] for test in tests if test["ratio"] is not None]
    text = f"{100 * statistics.median(ratios):.0f} %" if ratios else "failed"
    slow = 2 * sum(test["slow"] for test in tests) > len(tests)
    rates = [
        words.quantity(test["busbw_gb_s"], "GB/s") if test["busbw_gb_s"] else "failed"
        for test in tests
    ]
    return PairCell(text, _verdict(slow, ratios), ", ".join(rates))


def _verdict(slow: bool, ratios: Sequence[float]) -> Verdict:
    if not slow:
        return Verdict.PASS
    return Verdict.FAIL if not ratios or statistics.median(ratios) < _HALF else Verdict.DEGRADED
