"""Which ranks torch's watchdog shows as waiting for a collective, and which as behind them. Pure.

Source: torch's ProcessGroupNCCL.cpp, 1.13 to 2.8. Collectives are numbered by process group, so
ranks are compared in one group only. A rank whose last enqueued work is complete is in no
collective: it does something else, or hangs there.
"""

import re
from collections.abc import Collection
from typing import NamedTuple

from seatrial.text.lazy_pattern import lazy
from seatrial.text.words import some_of

_MAX_RANKS = 65_536
# `[PG ID 0 PG GUID 0(default_pg) Rank 3]`
_RANK = lazy(r"\[(?:PG (?P<group>[^\]]{0,120}) )?Rank (?P<rank>\d{1,7})\]")
# `ID 0 PG GUID 0(default_pg)`
_GROUP = lazy(r"GUID (\d{1,9})|(?:ID )?(\d{1,9})")
# `Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, ...`
_WORK = lazy(
    r"(?:\(SeqNum=|by watchdog at work(?: sequence id)?: |Timeout at NCCL work: )(\d{1,18})"
)
# `last enqueued NCCL work: 1582, last completed NCCL work: 1579`
_LAST = lazy(
    r"last enqueued (?:NCCL )?work: (-?\d{1,18}), last completed (?:NCCL )?work: (-?\d{1,18})", re.I
)
# `OpType=ALLREDUCE`
_OPERATION = lazy(r"OpType=(\w{1,40})")


class Behind(NamedTuple):
    """What the lines show: `words` for people, the `ranks` that are behind others, and the line of
    the first of them.
    """

    words: str
    ranks: tuple[int, ...]
    evidence: str | None


class Watchdog:
    """Take the lines of a log; memory is bounded by the number of ranks."""

    def __init__(self) -> None:
        # By group and rank: the number of the collective that the rank is in, or has left
        self._at: dict[str, dict[int, int]] = {}
        self._lines: dict[tuple[str, int], str] = {}
        # Of these, the ranks whose last enqueued work is complete
        self._idle: set[tuple[str, int]] = set()
        self._operations: dict[int, str] = {}

    def take(self, text: str) -> None:
        """Take one line; only those of the watchdog count."""
        if "Rank " not in text:
            return
        if " work" not in text and "SeqNum=" not in text:
            return
        who = _RANK.search(text)
        work = _WORK.search(text)
        last = _LAST.search(text)
        is_idle = last is not None and last[1] == last[2]
        counted = last if is_idle or work is None else work
        if who is None or counted is None or len(self._lines) >= _MAX_RANKS:
            return
        key = _group_of(who["group"] or "")
        rank = int(who["rank"])
        number = int(counted[1])
        if operation := _OPERATION.search(text):
            self._operations.setdefault(number, operation[1])
        at = self._at.setdefault(key, {})
        at[rank] = number
        self._lines[key, rank] = text
        if is_idle:
            self._idle.add((key, rank))

    def behind(self) -> Behind | None:
        """Compare the ranks of the group that shows most; None where no line names a collective."""
        named = {key: at for key, at in self._at.items() if key}
        groups = named or self._at
        if not groups:
            return None

        def shows(key: str) -> tuple[bool, int]:
            """Return whether the ranks of a group are at different collectives, and how many there
            are.
            """
            numbers = groups[key].values()
            return len(set(numbers)) > 1, len(numbers)

        key = max(groups, key=shows)
        at = groups[key]
        latest = max(at.values())
        name = self._operations.get(latest, "work")
        operation = f"{name} {latest}"
        behind = [rank for rank, number in at.items() if number < latest]
        if not behind:
            ranks = set(at)
            unnamed = self._at.get("", {})
            for rank, number in unnamed.items():
                if number == latest:
                    ranks.add(rank)
            return self._all_alike(key, sorted(ranks), operation)
        behind.sort()
        first = behind[0]
        who = ranks_in_words(behind)
        verb = "are behind: their" if len(behind) > 1 else "is behind: its"
        words = f"{who} {verb} last work is {at[first]}, others wait in {operation}"
        return Behind(words, tuple(behind), self._lines[key, first])

    def _all_alike(self, key: str, ranks: list[int], operation: str) -> Behind:
        """Return the words for ranks that are all in one collective, or have all completed it."""
        named = ranks_in_words(ranks)
        if all((key, rank) in self._idle for rank in ranks):
            words = f"{named} completed {operation} and entered no other collective"
            return Behind(words, tuple(ranks), None)
        words = f"{operation}: {named} waited for ranks that do not report"
        return Behind(words, (), None)


def _group_of(text: str) -> str:
    """Return the number of a process group, empty where the line names none."""
    match = _GROUP.search(text)
    if match is None:
        return ""
    return match[1] or match[2]


def ranks_in_words(ranks: Collection[int]) -> str:
    """Format the first few ranks."""
    rank = "ranks" if len(ranks) > 1 else "rank"
    numbers = map(str, ranks)
    return f"{rank} {some_of(numbers, 8)}"
