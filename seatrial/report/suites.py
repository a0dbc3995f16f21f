"""`seatrial suites`: each suite with its parts as a table, or as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from seatrial.checks.suites import Outline
from seatrial.report.console import output, print_line, table
from seatrial.text import words


def suites_json(outlines: Sequence[Outline]) -> dict[str, Any]:
    """{"suites": [{"suite", "purpose", "nodes", "about_s", "most_s", "parts": [{"check", "what", ...}]}]}."""
    return {
        "suites": [
            {
                "suite": outline.suite,
                "purpose": outline.purpose,
                "nodes": outline.nodes.words,
                "about_s": round(outline.about_s),
                "most_s": round(outline.most_s),
                "parts": [
                    {"check": check, "what": part.what, "about_s": round(part.about_s), "most_s": round(part.most_s)}
                    for check, part in outline.parts
                ],
            }
            for outline in outlines
        ]
    }


def print_suites(outlines: Sequence[Outline]) -> None:
    """A table for each suite, its sums last. Where there is no terminal, no line is wrapped."""
    console = output()
    for outline in outlines:
        print_line(console, f"{outline.suite}: {outline.purpose}")
        grid = table(("check", "what", "about", "at most"), _rows(outline), console.encoding, folded=("what",))
        console.print(grid)
        console.print()
    nodes = outlines[0].nodes.words
    print_line(console, f"On {nodes}. Not included: bringing nodes up, and repeats of doubtful numbers.")


def _rows(outline: Outline) -> Iterator[tuple[str, ...]]:
    before = ""
    for check, part in outline.parts:
        times = rounded(part.about_s), rounded(part.most_s)
        yield (check if check != before else "", part.what, *times)
        before = check
    yield ("all", "", rounded(outline.about_s), rounded(outline.most_s))


def rounded(seconds: float) -> str:
    """Whole tens of seconds, or whole minutes: no more is known beforehand."""
    if seconds < 120:
        return f"{max(10, round(seconds, -1)):.0f} s"
    return words.duration(60 * round(seconds / 60)).removesuffix(" 0 s")
