"""Shares with their intervals, and the tables of docs/error-rates.md."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TARGET = Path(__file__).parents[1] / "docs" / "error-rates.md"


@dataclass(slots=True)
class Count:
    """Hits among trials."""

    hits: int = 0
    of: int = 0

    def add(self, hits: int, of: int) -> None:
        self.hits += hits
        self.of += of

    @property
    def share(self) -> str:
        return percent(self.hits / self.of) if self.of else "–"

    def __str__(self) -> str:
        """The share and its 95 % interval (Wilson)."""
        if not self.of:
            return "–"
        p, n, z = self.hits / self.of, self.of, 1.96
        middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
        return f"{percent(p)} ({percent(max(low, 0))}–{percent(min(high, 1))})"


def percent(share: float) -> str:
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + " %"


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(parts: Mapping[str, str]) -> None:
    """Replace the text between the markers of each part."""
    text = TARGET.read_text()
    for name, part in parts.items():
        head, rest = text.split(f"<!-- {name} -->\n", 1)
        _, tail = rest.split(f"<!-- /{name} -->", 1)
        text = f"{head}<!-- {name} -->\n{part}\n<!-- /{name} -->{tail}"
    TARGET.write_text(text)
    print(f"{TARGET} written", file=sys.stderr)
