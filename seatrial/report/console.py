"""Tables and lines on a terminal: one style, and only characters that the terminal's encoding has."""

from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seatrial.model.coverage import UNJUDGED
from seatrial.model.verdict import Verdict
from seatrial.text import words

STYLES: dict[str, str] = {
    Verdict.PASS: "bold green",
    UNJUDGED: "bold cyan",
    Verdict.DEGRADED: "bold yellow",
    Verdict.FAIL: "bold red",
    Verdict.CORRUPT: "bold magenta",
    Verdict.INCONCLUSIVE: "bold blue",
    Verdict.NOT_RUN: "bold bright_black",
}


def output(width: int = 200) -> Console:
    """Standard output; `width` columns where it is no terminal, so that hardly a line wraps."""
    console = Console()
    if not console.is_terminal:
        console.width = width
    return console


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str | Text]], encoding: str, folded: Collection[str] = ()
) -> Table:
    """A borderless table; columns named in `folded` may take several lines, all others take one."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        grid.add_column(heading, no_wrap=heading not in folded, overflow="fold")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(words.plain(cell, encoding)) for cell in row))
    return grid


def verdict_cell(standing: str) -> Text:
    """A verdict or `unjudged`, in its colour."""
    return Text(words.label(standing), STYLES[standing])


def print_line(console: Console, text: str) -> None:
    """One line of plain text, never wrapped."""
    console.print(words.plain(text, console.encoding), markup=False, highlight=False, soft_wrap=True)
