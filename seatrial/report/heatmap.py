"""Nodes by metric with the worst verdict of each, the worst nodes first; equal nodes are one line.

Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from seatrial.model.curves import Reading, readings
from seatrial.model.measurement import Subject, SubjectKind
from seatrial.model.reason import Reason
from seatrial.model.result import SURE, RunResult, Suspect
from seatrial.model.verdict import Verdict, worst
from seatrial.text import words

NODES_SHOWN = 40  # on lines of their own; the others are in the full table
NAMES_SHOWN = 3  # of a group
BLAMED = "blamed"  # the column of what a check blames nodes for without a number


@dataclass(frozen=True, slots=True)
class Column:
    """One metric of a check, under the same conditions."""

    check: str
    title: str


Place = tuple[str, Column]  # a node and a column


@dataclass(frozen=True, slots=True)
class Cell:
    """`verdict` is None where a number was only recorded; `text` is the value, `tooltip`
    everything.

    `compared` is false where a number passes without a baseline.
    """

    verdict: Verdict | None
    text: str
    tooltip: str
    compared: bool = True


NOT_MEASURED = Cell(Verdict.NOT_RUN, "not measured", "not measured on this node")
NOT_BLAMED = Cell(None, "–", "not blamed by this check")
# By whether the column is of what nodes are blamed for
_MISSING = {False: NOT_MEASURED, True: NOT_BLAMED}


@dataclass(frozen=True, slots=True)
class Blame:
    """What a check blames a node for; its `verdict` is None if the check is not sure of the
    node.
    """

    check: str
    confidence: float
    verdict: Verdict | None
    evidence: Reason


@dataclass(frozen=True, slots=True)
class HeatMapRow:
    """A node and its cells; a suspect has the confidence that it is to blame, and the verdict that
    blames it.
    """

    node: str
    cells: tuple[Cell, ...]
    blamed: float | None = None
    blamed_for: Verdict | None = None

    @property
    def verdicts(self) -> tuple[Verdict | None, ...]:
        return tuple(cell.verdict for cell in self.cells)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the node."""
        return worst(verdict for verdict in (*self.verdicts, self.blamed_for) if verdict)

    @property
    def clean(self) -> bool:
        return self.blamed is None and set(self.verdicts) <= {Verdict.PASS, None}


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that have the same verdict in every column; `cells` are those of the first."""

    nodes: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def names(self) -> str:
        return words.some_of(self.nodes, NAMES_SHOWN)


@dataclass(frozen=True, slots=True)
class HeatMap:
    """`lines` are all nodes, the worst first; `alone` are those that get a line to see, `alike` the
    rest in groups.
    """

    columns: tuple[Column, ...]
    lines: tuple[HeatMapRow, ...]
    alone: tuple[HeatMapRow, ...]
    alike: tuple[NodeGroup, ...]


def heat_map(result: RunResult) -> HeatMap | None:
    """Return the map; None if nothing was measured on nodes, and none is blamed."""
    columns, cells = _cells(result)
    names = dict.fromkeys(
        (*(str(node.get("name")) for node in result.nodes), *(node for node, _ in cells))
    )
    blames = {node: blames for node, blames in _blames(result).items() if node in names}
    for node, of_node in blames.items():
        for blame in of_node:
            if blame.verdict:
                marked = _blamed_cells(node, blame, columns, cells)
                columns += [column for _, column in marked if column not in columns]
                cells |= marked
    if not columns:
        return None
    rows = [_row(name, columns, cells, blames.get(name, ())) for name in names]
    lines = tuple(sorted(rows, key=_worst_first))
    alone = (
        lines
        if len(lines) <= NODES_SHOWN
        else tuple(line for line in lines if not line.clean)[:NODES_SHOWN]
    )
    return HeatMap(tuple(columns), lines, alone, _grouped(lines[len(alone) :]))


def _blamed_cells(
    node: str, blame: Blame, columns: Sequence[Column], cells: Mapping[Place, Cell]
) -> dict[Place, Cell]:
    """Return the cells to mark: none where a number is bad, else what was not measured, else a
    column of its own.
    """
    own = [column for column in columns if column.check == blame.check]
    known = [cells[node, column] for column in own if (node, column) in cells]
    if any(cell.verdict not in (None, Verdict.PASS) for cell in known):
        return {}
    missing = [column for column in own if (node, column) not in cells]
    cell = Cell(blame.verdict, NOT_MEASURED.text if missing else "blamed", blame.evidence.sentence)
    return {(node, column): cell for column in missing or [Column(blame.check, BLAMED)]}


def _grouped(lines: Sequence[HeatMapRow]) -> tuple[NodeGroup, ...]:
    alike: dict[object, list[HeatMapRow]] = {}
    for line in lines:
        alike.setdefault(tuple((cell.verdict, cell.compared) for cell in line.cells), []).append(
            line
        )
    return tuple(
        NodeGroup(tuple(line.node for line in group), group[0].cells) for group in alike.values()
    )


def _row(
    name: str, columns: Sequence[Column], cells: Mapping[Place, Cell], blames: Sequence[Blame]
) -> HeatMapRow:
    shown = tuple(cells.get((name, column), _MISSING[column.title == BLAMED]) for column in columns)
    if not blames:
        return HeatMapRow(name, shown)
    sure = [blame.verdict for blame in blames if blame.verdict]
    return HeatMapRow(
        name, shown, max(blame.confidence for blame in blames), worst(sure) if sure else None
    )


def _blames(result: RunResult) -> dict[str, list[Blame]]:
    """Return what each node is blamed for, by node."""
    blames: dict[str, list[Blame]] = {}
    for check in result.checks:
        for suspect in (*check.suspects, *check.raw.suspects):
            verdict = (suspect.verdict or check.verdict) if suspect.confidence >= SURE else None
            blame = Blame(check.name, suspect.confidence, verdict, suspect.evidence)
            _add(blames, suspect, blame)
    for suspect in result.suspects:
        _add(blames, suspect, Blame("", suspect.confidence, None, suspect.evidence))
    return blames


def _add(blames: dict[str, list[Blame]], suspect: Suspect, blame: Blame) -> None:
    if node := _node(Subject(cast(SubjectKind, suspect.kind), suspect.name)):
        blames.setdefault(node, []).append(blame)


def _cells(result: RunResult) -> tuple[list[Column], dict[Place, Cell]]:
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
        (node, column): _cell(group)
        for column, nodes in judged.items()
        for node, group in nodes.items()
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
    facts = [words.measurement_name(m), words.quantity(m.value, m.unit)]
    if judgement:
        expected = words.interval(judgement.expected, m.unit)
        facts += [
            judgement.verdict.value,
            f"expected {expected} ({judgement.source})" if expected != "–" else "",
            "" if judgement.compared else "no baseline yet",
        ]
    if len(group) > 1:
        facts.append(f"the worst of {len(group)}")
    return Cell(
        judgement.verdict if judgement else None,
        words.quantity(m.value, m.unit),
        ", ".join(text for text in facts if text),
        judgement.compared if judgement else True,
    )


def _severity(reading: Reading) -> tuple[int, float]:
    """Return a sort key with readings that were only recorded last."""
    if reading.judgement is None:
        return len(Verdict), 0.0
    return reading.judgement.verdict.severity, -abs(reading.judgement.deviation or 0.0)


def _worst_first(line: HeatMapRow) -> tuple[Any, ...]:
    bad = sorted(verdict.severity for verdict in (*line.verdicts, line.blamed_for) if verdict)
    return (line.clean, bad, -(line.blamed or 0.0))
