"""The matrices of pairs as text for a terminal, and as a page of HTML that needs no other file."""

from collections.abc import Mapping, Sequence

from seatrial.model.verdict import Verdict
from seatrial.report.pairs import PairMatrix

Marks = Mapping[Verdict, str]
_BLOCKS = {
    Verdict.FAIL: "█",
    Verdict.DEGRADED: "▒",
    Verdict.PASS: "·",
}
_PLAIN = {
    Verdict.FAIL: "#",
    Verdict.DEGRADED: "+",
    Verdict.PASS: ".",
}
_NAME = 24  # characters of a node's name in a terminal


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
    """Render a whole page: what was found, in `lines`, and a panel for each operation."""
    from seatrial.report.html import environment_of, rendered  # not for a terminal

    environment = environment_of("seatrial.report")
    return rendered(environment, "pairs_page.html.j2", {"matrices": matrices, "lines": lines})
