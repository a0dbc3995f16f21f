"""Nodes by metric with the worst verdict of each, the worst nodes first; equal nodes are one line. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from seatrial.model.curves import Reading, readings
from seatrial.model.measurement import Subject, SubjectKind
from seatrial.model.result import SURE, UNJUDGED, RunResult, standing_of
from seatrial.model.verdict import Verdict, worst
from seatrial.text import words

NODES_SHOWN = 40  # on lines of their own; the others are in the full table
NAMES_SHOWN = 3  # of a group


@dataclass(frozen=True, slots=True)
class Column:
    """One metric of a check, under the same conditions."""

    check: str
    title: str


@dataclass(frozen=True, slots=True)
class Cell:
    """`standing` is None where a number was only recorded; `text` is the value, `tooltip` everything."""

    standing: str | None
    text: str
    tooltip: str

    @property
    def verdict(self) -> Verdict | None:
        return Verdict.PASS if self.standing == UNJUDGED else Verdict(self.standing) if self.standing else None


NOT_MEASURED = Cell(Verdict.NOT_RUN, "not measured", "not measured on this node")


@dataclass(frozen=True, slots=True)
class HeatMapRow:
    """A node and its cells; a suspect has the confidence that it is to blame, and the verdict that blames it."""

    node: str
    cells: tuple[Cell, ...]
    blamed: float | None = None
    blamed_for: Verdict | None = None

    @property
    def verdicts(self) -> tuple[Verdict | None, ...]:
        return tuple(cell.verdict for cell in self.cells)

    @property
    def standings(self) -> tuple[str | None, ...]:
        return tuple(cell.standing for cell in self.cells)

    @property
    def standing(self) -> str:
        """The worst verdict of the node; `unjudged` where nothing of it was compared."""
        found = [verdict for verdict in (*self.verdicts, self.blamed_for) if verdict]
        return standing_of(worst(found), any(cell.standing not in (None, UNJUDGED) for cell in self.cells))

    @property
    def clean(self) -> bool:
        return self.blamed is None and set(self.verdicts) <= {Verdict.PASS, None}


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that stand the same in every column."""

    nodes: tuple[str, ...]
    standings: tuple[str | None, ...]

    @property
    def names(self) -> str:
        return words.some_of(self.nodes, NAMES_SHOWN)


@dataclass(frozen=True, slots=True)
class HeatMap:
    """`lines` are all nodes, the worst first; `alone` are those that get a line to see, `alike` the rest in groups."""

    columns: tuple[Column, ...]
    lines: tuple[HeatMapRow, ...]
    alone: tuple[HeatMapRow, ...]
    alike: tuple[NodeGroup, ...]


def heat_map(result: RunResult) -> HeatMap | None:
    """Return the map; None if nothing was measured on nodes."""
    columns, cells = _cells(result)
    if not columns:
        return None
    blamed = _blamed(result)
    names = dict.fromkeys((*(str(node.get("name")) for node in result.nodes), *(node for node, _ in cells)))
    rows = [
        HeatMapRow(
            name, tuple(cells.get((name, column), NOT_MEASURED) for column in columns), *blamed.get(name, (None, None))
        )
        for name in names
    ]
    lines = tuple(sorted(rows, key=_worst_first))
    alone = lines if len(lines) <= NODES_SHOWN else tuple(line for line in lines if not line.clean)[:NODES_SHOWN]
    alike: dict[tuple[str | None, ...], list[str]] = {}
    for line in lines[len(alone) :]:
        alike.setdefault(line.standings, []).append(line.node)
    groups = tuple(NodeGroup(tuple(nodes), standings) for standings, nodes in alike.items())
    return HeatMap(tuple(columns), lines, alone, groups)


def _blamed(result: RunResult) -> dict[str, tuple[float, Verdict | None]]:
    """Return the confidence in each suspect, by node, and the worst verdict of the checks that are sure of it."""
    blamed: dict[str, tuple[float, Verdict | None]] = {}
    for verdict, suspect in (
        *((None, suspect) for suspect in result.suspects),
        *((check.verdict, suspect) for check in result.checks for suspect in (*check.suspects, *check.raw.suspects)),
    ):
        if node := _node(Subject(cast(SubjectKind, suspect.kind), suspect.name)):
            confidence, before = blamed.get(node, (0.0, None))
            sure = [each for each in (before, verdict if suspect.confidence >= SURE else None) if each]
            blamed[node] = max(confidence, suspect.confidence), worst(sure) if sure else None
    return blamed


def _cells(result: RunResult) -> tuple[list[Column], dict[tuple[str, Column], Cell]]:
    """Return columns and cells of the metrics that were judged on any node."""
    readings_by_node: dict[Column, dict[str, list[Reading]]] = {}
    for check in result.checks:
        for reading in readings(check):
            if node := _node(reading.measurement.subject):
                column = Column(check.name, words.metric_of(reading.measurement))
                readings_by_node.setdefault(column, {}).setdefault(node, []).append(reading)
    judged = {
        column: nodes
        for column, nodes in readings_by_node.items()
        if any(reading.judgement for group in nodes.values() for reading in group)
    }
    return list(judged), {
        (node, column): _cell(group) for column, nodes in judged.items() for node, group in nodes.items()
    }


def _node(subject: Subject) -> str:
    """Return the node of a node or GPU ("node-3/gpu-1", "node-3:1"); "" for other subjects."""
    if subject.kind == "node":
        return subject.name
    return subject.name.replace(":", "/").partition("/")[0] if subject.kind == "gpu" else ""


def _cell(group: Sequence[Reading]) -> Cell:
    """Return the cell of the worst reading."""
    worst = min(group, key=_severity)
    m, judgement = worst.measurement, worst.judgement
    facts = [words.what(m), words.quantity(m.value, m.unit)]
    if judgement:
        expected = words.interval(judgement.expected, m.unit)
        facts += [
            words.label(judgement.standing),
            f"expected {expected} ({judgement.source})" if expected != "–" else "",
        ]
    if len(group) > 1:
        facts.append(f"the worst of {len(group)}")
    return Cell(
        judgement.standing if judgement else None,
        words.quantity(m.value, m.unit),
        ", ".join(text for text in facts if text),
    )


def _severity(reading: Reading) -> tuple[int, float]:
    """Return a sort key with unjudged readings last."""
    if reading.judgement is None:
        return len(Verdict), 0.0
    return reading.judgement.verdict.severity, -abs(reading.judgement.deviation or 0.0)


def _worst_first(line: HeatMapRow) -> tuple[Any, ...]:
    bad = sorted(verdict.severity for verdict in (*line.verdicts, line.blamed_for) if verdict)
    return (line.clean, bad, -(line.blamed or 0.0))
