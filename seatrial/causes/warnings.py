"""What a warning of NCCL or RCCL is about, by its words: the table `warnings.csv`, which
`scripts/nccl_warnings.py` writes from the sources of all releases since 2.18. Pure.

A format has `*` for what varies. Its class is one of `hardware`, `link`, `software`, `user` (a
setting that NCCL does not take) and `program` (a wrong call of it); what to do about each is in
`causes.csv`, as program `warning`.
"""

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

from seatrial.causes.table import OTHERS, WARNING, Finding, finding_of_class
from seatrial.text.lazy_pattern import lazy

# Characters that a format is found by: a line is held against few of the nine hundred
_STARTS = (14, 8, 4, 0)
_HIP = lazy(r"\bhip(?=[A-Z])")  # RCCL's calls, as its sources name them before they are translated


class Format(NamedTuple):
    """The words of a warning in their order, without what varies between them."""

    words: tuple[str, ...]
    about: str
    severity: str


def finding_of_warning(text: str, message: str, host: str | None, rank: int | None) -> Finding:
    """Return the finding of a warning: `message` is what stands behind NCCL's prefix in the line
    `text`.
    """
    warning = " ".join(message.rpartition("NCCL WARN ")[2].split())
    known = _format_of(warning) or _format_of(_HIP.sub("cuda", warning))
    if known is None:
        return OTHERS[WARNING].found(text, host, rank)
    return finding_of_class(known.about, known.severity, text, host, rank)


def _format_of(warning: str) -> Format | None:
    """Return the longest format whose words all occur in `warning`, in order; None without one."""
    candidates = (each for start in _STARTS for each in _formats().get(warning[:start], ()))
    known = (each for each in candidates if _says(warning, each.words))
    return max(known, key=lambda each: sum(map(len, each.words)), default=None)


def _says(warning: str, words: tuple[str, ...]) -> bool:
    """Return whether a warning begins with the first words and has the others, in that order."""
    at = 0
    for number, word in enumerate(words):
        place = warning.find(word, at)
        if place < 0 or (number == 0 and place > 0):
            return False
        at = place + len(word)
    return True


@cache
def _formats() -> dict[str, list[Format]]:
    """Return the table by the first characters of the formats, an empty text for those that begin
    with what varies.
    """
    by_start: dict[str, list[Format]] = {}
    with (Path(__file__).parent / "warnings.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            words = tuple(row["format"].split("*"))
            start = next(start for start in _STARTS if len(words[0]) >= start)
            by_start.setdefault(words[0][:start], []).append(
                Format(words, row["class"], row["severity"])
            )
    return by_start
