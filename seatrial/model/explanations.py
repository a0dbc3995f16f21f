"""What each code of a reason says: the table reasons.csv, and what other packages register."""

import csv
import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Explanation:
    """The sentence of a code as a template for `str.format`, its meaning, and the next step if it
    has one.

    `formerly`: codes of earlier versions that it stands for; a run.json may hold them.
    """

    template: str
    meaning: str
    next_step: str | None = None
    formerly: tuple[str, ...] = ()

    @property
    def pattern(self) -> str:
        """The sentence with an ellipsis for each value."""
        parts = string.Formatter().parse(self.template)
        return "".join(f"{text}…" if field is not None else text for text, field, _, _ in parts)

    def sentence(self, values: Mapping[str, object]) -> str:
        """Return the sentence with the values; with ellipses if those are of another version."""
        try:
            return self.template.format(**values)
        except (ArithmeticError, LookupError, ValueError):
            return self.pattern


_registered: dict[str, Explanation] = {}


def register(explanations: Mapping[str, Explanation]) -> None:
    """Make the codes of a package known that does not keep them in reasons.csv."""
    _registered.update(explanations)


def explanation_of(code: str) -> Explanation | None:
    """Return the explanation of a code, or None if there is none."""
    return _registered.get(code) or _by_code().get(code)


def next_step_of(code: str | None) -> str | None:
    """Return the next step of a code; None without one, as for an unknown code and for no code."""
    explanation = explanation_of(code or "")
    return explanation.next_step if explanation else None


@cache
def areas() -> Mapping[str, Mapping[str, Explanation]]:
    """Read the table: the codes of each area of the program, in the order of the table."""
    read: dict[str, dict[str, Explanation]] = {}
    with Path(__file__).with_name("reasons.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            former = tuple(row["formerly"].split())
            entry = Explanation(row["sentence"], row["meaning"], row["next_step"] or None, former)
            read.setdefault(row["area"], {})[row["code"]] = entry
    return read


@cache
def _by_code() -> Mapping[str, Explanation]:
    """Return the table by code."""
    return {code: entry for area in areas().values() for code, entry in area.items()}
