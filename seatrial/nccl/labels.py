"""Logs of several programs at once, whose lines a launcher has labelled."""

import re

from seatrial.nccl.sweeps import SweepReader
from seatrial.text.lazy_pattern import lazy
from seatrial.text.wrapping import clean

HOST = re.compile(r"([A-Za-z][\w.-]{0,252}+):[ \t]?(?=.)")  # of pdsh, clush and the like
_POD = lazy(r"(\[pod/[^\]\s]+\] |\A[\w./-]+ *\| )")  # around labels of ranks
_BEGINS = lazy(rf"(?: |{HOST.pattern})?# (?:nThread|nccl-tests version|Collective test starting)")
_NUMBER = lazy(r"\d+:(?! #)")  # of a line, by grep -n
_MAX_LABELS = 4096
_MAX_HELD = 1 << 17  # characters
_LINE_COSTS = 100  # bytes beside its characters

Label = str | int | None


class LabelledReader:
    """Take the lines of a log as a `SweepReader` does.

    Where lines with several labels begin a table, those of each label are read apart, as logs of
    their own: a program ran for each of them, on each node by itself or without MPI.
    """

    def __init__(self, source: str = "") -> None:
        self.first = SweepReader(source)
        self._source = source
        self._begun: dict[Label, None] = {}  # labels of tables
        self._by_label: dict[Label, SweepReader] = {}  # once there are several
        self._held: list[str] = []  # until then, to read them again
        self._room = _MAX_HELD

    def feed(self, raw: str) -> None:
        """Take one line."""
        if self._by_label:
            self._feed_apart(raw)
            return
        if "#" in raw and _begins_table(raw):
            label = _label(raw)
            if label is not None:
                self._begun[label] = None
        self._room -= len(raw) + _LINE_COSTS
        if self._room > 0:
            self._held.append(raw)
        if len(self._begun) < 2:
            self.first.feed(raw)
        else:
            self._split(raw)

    def _split(self, raw: str) -> None:
        """Read the lines apart from now on, and those before again as far as they were held."""
        if self._room > 0:
            self.first = SweepReader(self._source)
            self._by_label[None] = self.first
            for line in self._held:
                self._feed_apart(line)
            return
        # What came before stays with the first table
        first = next(iter(self._begun))
        self._by_label = {None: self.first, first: self.first}
        self._feed_apart(raw)

    def _feed_apart(self, raw: str) -> None:
        """Give a line to the reader of its label."""
        label = _label(raw)
        if label not in self._by_label and len(self._by_label) < _MAX_LABELS:
            self._by_label[label] = self.first.apart()
        reader = self._by_label.get(label, self.first)
        reader.feed(raw)


def _begins_table(raw: str) -> bool:
    text, _ = clean(raw)
    return bool(_BEGINS.match(text)) and not _NUMBER.match(raw)


def _label(raw: str) -> Label:
    """Return the label of a line: a pod, a rank or a host; None if it has none."""
    if pod := _POD.search(raw[:400]):
        return pod[1]
    text, rank = clean(raw)
    if rank is None and (host := HOST.match(text)):
        return host[1]
    return rank
