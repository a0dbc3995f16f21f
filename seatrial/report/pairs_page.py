"""The matrices of pairs as text for a terminal, and as a page of HTML that needs no other file."""

from collections.abc import Sequence
from html import escape

from seatrial.model.verdict import Verdict
from seatrial.report.pairs import PairCell, PairMatrix

_BLOCKS = {Verdict.FAIL: "█", Verdict.DEGRADED: "▒", Verdict.PASS: "·"}
_PLAIN = {Verdict.FAIL: "#", Verdict.DEGRADED: "+", Verdict.PASS: "."}
_TITLE = "Pairs of nodes"
_NAME = 24  # characters of a node's name in a terminal
_COLOURS = {Verdict.FAIL: "#c0392b", Verdict.DEGRADED: "#f0ad4e", Verdict.PASS: "#dfeee0"}
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
""" + "".join(
    f"td.{verdict.value} {{ background: {colour}; }}\n" for verdict, colour in _COLOURS.items()
)


def terminal_lines(matrix: PairMatrix, encoding: str) -> list[str]:
    """Return a line for each node with a mark for each pair, a gap between the sides of a cut, and
    a legend.
    """
    marks = _BLOCKS if encoding.lower().replace("-", "") in ("utf8", "utf16") else _PLAIN
    width = min(_NAME, max(len(node) for node in matrix.nodes))
    fine, slow, bad = marks[Verdict.PASS], marks[Verdict.DEGRADED], marks[Verdict.FAIL]
    lines = [
        (
            f"{matrix.operation or 'pairs'}: {fine} as fast as like pairs, {slow} slower, "
            f"{bad} below half or failed"
        )
    ]
    for place, (node, cells) in enumerate(zip(matrix.nodes, matrix.lines, strict=True)):
        if place in matrix.starts:
            lines.append("")
        # A blank was not tested
        texts = [marks[cell.verdict] if cell.verdict else " " for cell in cells]
        row = "".join(("  " if i in matrix.starts else " ") + text for i, text in enumerate(texts))
        lines.append(
            f"{'>' if node in matrix.blamed else ' '} {node[:width]:<{width}}{row}".rstrip()
        )
    if matrix.left_out:
        lines.append(f"{matrix.left_out} more nodes are not shown")
    return lines


def html_page(matrices: Sequence[PairMatrix], lines: Sequence[str]) -> str:
    """Render a whole page: what was found, in `lines`, and a panel for each operation.

    All texts are escaped.
    """
    paragraphs = "".join(f"<p>{escape(line)}</p>\n" for line in lines)
    panels = "".join(_panel(matrix) for matrix in matrices)
    head = f'<meta charset="utf-8">\n<title>{_TITLE}</title>\n<style>{_STYLE}</style>'
    body = f"<h1>{_TITLE}</h1>\n{paragraphs}{panels}"
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}</body>\n'
        "</html>\n"
    )


def _panel(matrix: PairMatrix) -> str:
    columns = "".join(_heading(matrix, i, "column") for i in range(len(matrix.nodes)))
    rows = "".join(_row(matrix, i) for i in range(len(matrix.nodes)))
    more = f"<p>{matrix.left_out} more nodes are not shown.</p>\n" if matrix.left_out else ""
    title = escape(matrix.operation or "pairs")
    return f"<h2>{title}</h2>\n<table>\n<tr><th></th>{columns}</tr>\n{rows}</table>\n{more}"


def _heading(matrix: PairMatrix, place: int, kind: str) -> str:
    node = matrix.nodes[place]
    classes = [kind] if kind else []
    classes += ["blamed"] if node in matrix.blamed else []
    classes += ["start"] if kind and place in matrix.starts else []
    return f'<th class="{" ".join(classes)}">{escape(node)}</th>'


def _row(matrix: PairMatrix, place: int) -> str:
    cells = "".join(_data(cell, i in matrix.starts) for i, cell in enumerate(matrix.lines[place]))
    start = ' class="start"' if place in matrix.starts else ""
    return f"<tr{start}>{_heading(matrix, place, '')}{cells}</tr>\n"


def _data(cell: PairCell, start: bool) -> str:
    classes = " ".join(
        filter(None, (cell.verdict.value if cell.verdict else "", "start" if start else ""))
    )
    return (
        f'<td class="{classes}" '
        f'title="{escape(cell.tooltip)}">{escape(cell.text.removesuffix(" %"))}</td>'
    )
