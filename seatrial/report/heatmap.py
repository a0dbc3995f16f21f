"""Nodes by metric with the worst verdict of each, the worst nodes first; equal nodes are one line.

Pure.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
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
Readings = list[Reading]


@dataclass(frozen=True, slots=True)
class Column:
    """One metric of a check, under the same conditions."""

    check: str
    title: str


Place = tuple[str, Column]  # a node and a column


@dataclass(frozen=True, slots=True)
class Cell:
    """`verdict` is None where a number was only recorded, or a check does not blame the node;
    `text` is the value, `tooltip` everything.

    `compared` is false where a number passes without a baseline.
    """

    verdict: Verdict | None
    text: str
    tooltip: str
    compared: bool = True


NOT_MEASURED = Cell(Verdict.NOT_RUN, "not measured", "not measured on this node")
NOT_BLAMED = Cell(None, "–", "not blamed by this check")
# What an empty cell says, by whether the column is one of blames alone
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
    """A node and its cells; for a suspect, `blamed` is the confidence and `blamed_for` the verdict.

    `blamed` is None for a node that nothing blames, `blamed_for` also where no check is sure.
    """

    node: str
    cells: tuple[Cell, ...]
    blamed: float | None = None
    blamed_for: Verdict | None = None

    @property
    def verdicts(self) -> tuple[Verdict | None, ...]:
        """The verdicts of the cells, in the order of the columns."""
        return tuple(cell.verdict for cell in self.cells)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the node."""
        verdicts = (*self.verdicts, self.blamed_for)
        return worst(verdict for verdict in verdicts if verdict)

    @property
    def clean(self) -> bool:
        """Whether every number that was judged passed, and no check blames the node."""
        if self.blamed is not None:
            return False
        return set(self.verdicts) <= {Verdict.PASS, None}


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that have the same verdict in every column; `cells` are those of the first."""

    nodes: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def names(self) -> str:
        """The first few by name, and how many more there are."""
        return words.some_of(self.nodes, NAMES_SHOWN)


@dataclass(frozen=True, slots=True)
class HeatMap:
    """`lines` are all nodes, the worst first; `alone` are those that get a line to see, `alike` the
    rest in groups.

    The cells of a line are in the order of `columns`.
    """

    columns: tuple[Column, ...]
    lines: tuple[HeatMapRow, ...]
    alone: tuple[HeatMapRow, ...]
    alike: tuple[NodeGroup, ...]


def heat_map(result: RunResult) -> HeatMap | None:
    """Return the map; None if nothing was measured on nodes, and none is blamed."""
    columns, cells = _cells(result)
    names = dict.fromkeys(str(node.get("name")) for node in result.nodes)
    names |= dict.fromkeys(node for node, _ in cells)
    blames = _blames(result)
    for node, of_node in blames.items():
        if node in names:
            _mark(node, of_node, columns, cells)
    if not columns:
        return None
    rows = [_row(name, columns, cells, blames.get(name, ())) for name in names]
    lines = tuple(sorted(rows, key=_worst_first))
    alone = lines
    if len(lines) > NODES_SHOWN:
        bad = [line for line in lines if not line.clean]
        alone = tuple(bad[:NODES_SHOWN])
    # Lines are sorted, so those that are not alone are behind those that are
    return HeatMap(tuple(columns), lines, alone, _grouped(lines[len(alone) :]))


def _mark(
    node: str, blames: Sequence[Blame], columns: list[Column], cells: dict[Place, Cell]
) -> None:
    """Mark the checks that surely blame the node; add missing columns."""
    for blame in blames:
        if not blame.verdict:
            continue
        marked = _blamed_cells(node, blame, columns, cells)
        columns += [column for _, column in marked if column not in columns]
        cells |= marked


def _blamed_cells(
    node: str, blame: Blame, columns: Sequence[Column], cells: Mapping[Place, Cell]
) -> dict[Place, Cell]:
    """Return the cells to mark: none if a number of the check is bad on the node, else the numbers
    not measured there, else a column for the blame alone.
    """
    own = [column for column in columns if column.check == blame.check]
    missing = []
    for column in own:
        known = cells.get((node, column))
        if known is None:
            missing.append(column)
        elif known.verdict not in (None, Verdict.PASS):
            return {}
    text = NOT_MEASURED.text
    if not missing:
        text = "blamed"
        missing = [Column(blame.check, BLAMED)]
    cell = Cell(blame.verdict, text, blame.evidence.sentence)
    return {(node, column): cell for column in missing}


def _grouped(lines: Sequence[HeatMapRow]) -> tuple[NodeGroup, ...]:
    """Group the lines that look the same: alike in verdicts, and in what was compared."""
    alike: dict[object, list[HeatMapRow]] = defaultdict(list)
    for line in lines:
        look = tuple((cell.verdict, cell.compared) for cell in line.cells)
        alike[look].append(line)
    groups = []
    for group in alike.values():
        nodes = tuple(line.node for line in group)
        groups.append(NodeGroup(nodes, group[0].cells))
    return tuple(groups)


def _row(
    name: str, columns: Sequence[Column], cells: Mapping[Place, Cell], blames: Sequence[Blame]
) -> HeatMapRow:
    """Return the line of a node: a cell for each column, and the highest confidence of the
    blame.
    """
    shown = tuple(cells.get((name, column), _MISSING[column.title == BLAMED]) for column in columns)
    if not blames:
        return HeatMapRow(name, shown)
    confidence = max(blame.confidence for blame in blames)
    sure = [blame.verdict for blame in blames if blame.verdict]
    return HeatMapRow(name, shown, confidence, worst(sure) if sure else None)


def _blames(result: RunResult) -> dict[str, list[Blame]]:
    """Return what each node is blamed for, by node.

    This includes the suspects that a check named before its numbers were judged. Suspects of the
    run come without a verdict.
    """
    blames: dict[str, list[Blame]] = defaultdict(list)
    for check in result.checks:
        for suspect in (*check.suspects, *check.raw.suspects):
            verdict = None
            if suspect.confidence >= SURE:
                verdict = suspect.verdict or check.verdict
            blame = Blame(check.name, suspect.confidence, verdict, suspect.evidence)
            blames[_blamed_node(suspect)].append(blame)
    for suspect in result.suspects:
        blame = Blame("", suspect.confidence, None, suspect.evidence)
        blames[_blamed_node(suspect)].append(blame)
    blames.pop("", None)  # suspects that are no node
    return blames


def _blamed_node(suspect: Suspect) -> str:
    """Return the node of a suspect; "" for a link, a switch or another thing of several nodes."""
    return _node(Subject(cast(SubjectKind, suspect.kind), suspect.name))


def _cells(result: RunResult) -> tuple[list[Column], dict[Place, Cell]]:
    """Return columns and cells of the metrics that were judged on any node.

    Of such a metric, nodes where it was only recorded have a cell too; the columns are in the order
    of the checks.
    """
    readings_by_node: dict[Column, dict[str, Readings]] = defaultdict(partial(defaultdict, list))
    for check in result.checks:
        for reading in readings(check):
            m = reading.measurement
            if node := _node(m.subject):
                column = Column(check.name, words.metric_of(m))
                readings_by_node[column][node].append(reading)
    judged = []
    cells: dict[Place, Cell] = {}
    for column, by_node in readings_by_node.items():
        readings_of_column = chain.from_iterable(by_node.values())
        if any(reading.judgement for reading in readings_of_column):
            judged.append(column)
            for node, group in by_node.items():
                cells[node, column] = _cell(group)
    return judged, cells


def _node(subject: Subject) -> str:
    """Return the node of a node or GPU ("node-3/gpu-1", "node-3:1"); "" for other subjects."""
    if subject.kind == "node":
        return subject.name
    if subject.kind == "gpu":
        return subject.name.replace(":", "/").partition("/")[0]
    return ""


def _cell(group: Sequence[Reading]) -> Cell:
    """Return the cell of the worst reading; its tooltip says what was expected, and of how many
    readings it is.
    """
    worst = min(group, key=_severity)
    m = worst.measurement
    judgement = worst.judgement
    value = words.quantity(m.value, m.unit)
    facts = [words.measurement_name(m), value]
    verdict = None
    compared = True
    if judgement:
        verdict = judgement.verdict
        compared = judgement.compared
        facts.append(verdict.value)
        expected = words.interval(judgement.expected, m.unit)
        if expected != "–":
            facts.append(f"expected {expected} ({judgement.source})")
        if not compared:
            facts.append("no baseline yet")
    if len(group) > 1:
        facts.append(f"the worst of {len(group)}")
    tooltip = ", ".join(filter(None, facts))
    return Cell(verdict, value, tooltip, compared)


def _severity(reading: Reading) -> tuple[int, float]:
    """Return a sort key with the worst verdict first and readings that were only recorded last.

    Of equal verdicts, the value that is furthest from what was expected comes first.
    """
    judgement = reading.judgement
    if judgement is None:
        return len(Verdict), 0.0
    distance = abs(judgement.deviation or 0.0)
    return judgement.verdict.severity, -distance


def _worst_first(line: HeatMapRow) -> tuple[Any, ...]:
    """Return a sort key with clean nodes last; among the others verdicts decide, then the
    confidence of the blame.
    """
    verdicts = (*line.verdicts, line.blamed_for)
    bad = sorted(verdict.severity for verdict in verdicts if verdict)
    confidence = line.blamed or 0.0
    return (line.clean, bad, -confidence)
