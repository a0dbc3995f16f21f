"""Pairs of nodes that a run has tested, as a matrix in the order of what was found. Pure."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict

NODES_SHOWN = 32


@dataclass(frozen=True, slots=True)
class PairCell:
    """`text` is the share of what like pairs reach, in percent; empty where the pair was not tested."""

    text: str = ""
    verdict: Verdict | None = None
    tooltip: str = ""


@dataclass(frozen=True, slots=True)
class PairMatrix:
    """Lines of cells, one for each of `nodes`; the first `split` are one side of a cut, `left_out` are not shown."""

    nodes: tuple[str, ...]
    lines: tuple[tuple[PairCell, ...], ...]
    split: int
    left_out: int


def pair_matrix(result: RunResult) -> PairMatrix | None:
    """Return the matrix; None where no pairs were tested."""
    document = result.localization or {}
    pairs: dict[frozenset[str], list[Mapping[str, Any]]] = defaultdict(list)
    for test in document.get("tests", ()):
        if len(test["nodes"]) == 2:
            pairs[frozenset(test["nodes"])].append(test)
    if not pairs:
        return None
    sides = next((finding["sides"] for finding in document["findings"] if finding["kind"] == "cut"), ())
    nodes, split = _ordered(result, pairs, sides)
    lines = tuple(tuple(_cell(pairs.get(frozenset((a, b)), ())) for b in nodes) for a in nodes)
    left_out = len({node for pair in pairs for node in pair} - set(nodes))
    return PairMatrix(nodes, lines, split, left_out)


def _ordered(
    result: RunResult, pairs: Mapping[frozenset[str], Sequence[Mapping[str, Any]]], sides: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], int]:
    """The nodes by the sides of a cut, else suspects first, then by slow tests; and how many are on the first side."""
    slow = Counter(node for pair, tests in pairs.items() for node in pair for test in tests if test["slow"])
    blamed = {name for suspect in result.suspects for name in suspect.name.partition("/")[0].split("--")}
    nodes = sorted({node for pair in pairs for node in pair}, key=lambda node: (node not in blamed, -slow[node], node))
    shown = nodes[:NODES_SHOWN]
    first = set(sides[0]) if len(sides) == 2 else set()
    return tuple(sorted(shown, key=lambda node: node not in first)), sum(node in first for node in shown)


def _cell(tests: Sequence[Mapping[str, Any]]) -> PairCell:
    if not tests:
        return PairCell()
    ratios = [test["ratio"] for test in tests if test["ratio"] is not None]
    text = f"{100 * statistics.median(ratios):.0f} %" if ratios else "failed"
    slow = 2 * sum(test["slow"] for test in tests) > len(tests)
    rates = [f"{test['busbw_gb_s']:.4g} GB/s" if test["busbw_gb_s"] else "failed" for test in tests]
    return PairCell(text, Verdict.DEGRADED if slow else Verdict.PASS, ", ".join(rates))
