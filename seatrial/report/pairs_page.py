"""The matrices of pairs as text for a terminal, and as a page of HTML that needs no other file."""

from collections.abc import Mapping, Sequence
from html import escape

from seatrial.model.verdict import Verdict
from seatrial.report.pairs import PairCell, PairMatrix

Marks = Mapping[Verdict, str]
_BLOCKS = {Verdict.FAIL: "█", Verdict.DEGRADED: "▒", Verdict.PASS: "·"}
_PLAIN = {Verdict.FAIL: "#", Verdict.DEGRADED: "+", Verdict.PASS: "."}
_COLOURS = {Verdict.FAIL: "#c0392b", Verdict.DEGRADED: "#f0ad4e", Verdict.PASS: "#dfeee0"}
_TITLE = "Pairs of nodes"
_NAME = 24  # characters of a node's name in a terminal
_STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }
table { border-collapse: collapse; margin: 0 2em 2em 0; }
td, th { font: 11px ui-monospace, monospace; padding: 2px 4px; text-align: center; border: 1px solid #fff; }
th { text-align: right; font-weight: normal; white-space: nowrap; }
th.column { writing-mode: vertical-rl; text-align: left; }
th.blamed { font-weight: bold; color: #c0392b; }
.start { border-left: 3px solid #222; }
tr.start > * { border-top: 3px solid #222; border-left-width: 1px; }
tr.start > .start { border-left-width: 3px; }
"""
for _verdict, _colour in _COLOURS.items():
    _STYLE += f"td.{_verdict.value} {{ background: {_colour}; }}\n"


def terminal_lines(matrix: PairMatrix, encoding: str) -> list[str]:
    """Return a line for each node with a mark for each pair, a gap between the sides of a cut, and
    a legend.
    """
    name = encoding.lower().replace("-", "")
    marks = _PLAIN
    if name in ("utf8", "utf16"):
        marks = _BLOCKS
    lines = [_legend(matrix, marks)]
    longest = max(map(len, matrix.nodes))
    width = min(_NAME, longest)
    for place in range(len(matrix.nodes)):
        if place in matrix.starts:
            lines.append("")
        lines.append(_line(matrix, place, marks, width))
    if matrix.left_out:
        lines.append(f"{matrix.left_out} more nodes are not shown")
    return lines


def _legend(matrix: PairMatrix, marks: Marks) -> str:
    """Return the operation, and what the marks mean."""
    title = matrix.operation or "pairs"
    fine = marks[Verdict.PASS]
    slow = marks[Verdict.DEGRADED]
    bad = marks[Verdict.FAIL]
    return f"{title}: {fine} as fast as like pairs, {slow} slower, {bad} below half or failed"


def _line(matrix: PairMatrix, place: int, marks: Marks, width: int) -> str:
    """Return the name of a node and a mark for each of its pairs; a blank was not tested."""
    node = matrix.nodes[place]
    pointer = ">" if node in matrix.blamed else " "
    line = f"{pointer} {node[:width]:<{width}}"
    for column, cell in enumerate(matrix.lines[place]):
        mark = " "
        if cell.verdict:
            mark = marks[cell.verdict]
        if column in matrix.starts:
            line += " "
        line += f" {mark}"
    return line.rstrip()


def html_page(matrices: Sequence[PairMatrix], lines: Sequence[str]) -> str:
    """Render a whole page: what was found, in `lines`, and a panel for each operation.

    All texts are escaped.
    """
    paragraphs = ""
    for line in lines:
        paragraphs += f"<p>{escape(line)}</p>\n"
    panels = "".join(map(_panel, matrices))
    head = f'<meta charset="utf-8">\n<title>{_TITLE}</title>\n<style>{_STYLE}</style>'
    body = f"<h1>{_TITLE}</h1>\n{paragraphs}{panels}"
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}</body>\n'
        "</html>\n"
    )


def _panel(matrix: PairMatrix) -> str:
    """Render the table of one operation."""
    columns = ""
    rows = ""
    for place in range(len(matrix.nodes)):
        columns += _heading(matrix, place, "column")
        rows += _row(matrix, place)
    more = ""
    if matrix.left_out:
        more = f"<p>{matrix.left_out} more nodes are not shown.</p>\n"
    operation = matrix.operation or "pairs"
    title = escape(operation)
    table = f"<table>\n<tr><th></th>{columns}</tr>\n{rows}</table>"
    return f"<h2>{title}</h2>\n{table}\n{more}"


def _heading(matrix: PairMatrix, place: int, kind: str) -> str:
    """Render the name of a node as the heading of a column, or of a row where `kind` is empty."""
    node = matrix.nodes[place]
    classes = []
    if kind:
        classes.append(kind)
    if node in matrix.blamed:
        classes.append("blamed")
    if kind and place in matrix.starts:
        classes.append("start")
    names = " ".join(classes)
    return f'<th class="{names}">{escape(node)}</th>'


def _row(matrix: PairMatrix, place: int) -> str:
    """Render a node and its pairs."""
    cells = ""
    for column, cell in enumerate(matrix.lines[place]):
        starts_side = column in matrix.starts
        cells += _data(cell, starts_side)
    start = ""
    if place in matrix.starts:
        start = ' class="start"'
    heading = _heading(matrix, place, "")
    return f"<tr{start}>{heading}{cells}</tr>\n"


def _data(cell: PairCell, starts_side: bool) -> str:
    classes = []
    if cell.verdict:
        classes.append(cell.verdict.value)
    if starts_side:
        classes.append("start")
    names = " ".join(classes)
    tooltip = escape(cell.tooltip)
    text = escape(cell.text.removesuffix(" %"))
    return f'<td class="{names}" title="{tooltip}">{text}</td>'
