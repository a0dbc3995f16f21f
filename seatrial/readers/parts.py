"""The parts of a text: nccl-tests output with its causes of failure, and reports of other tools, in
the order of time.

A report has a first line and lines that belong to it (seatrial/readers/table.py). Whatever stands
between them is read as any other log, so nothing hides behind a report. Lines that carry a label, a
rank of srun or a host of pdsh, are parts of their own.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import StringIO, TextIOWrapper
from operator import itemgetter
from pathlib import Path
from typing import TextIO

from seatrial.model.errors import NothingFoundError
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.nccl import Sweep
from seatrial.nccl.labels import HOST, LabelledReader
from seatrial.nccl.parse import (
    MAX_JSON,
    PEEK,
    looks_like_json_log,
    nothing_found,
    open_log,
    parse_json,
    stream_lines,
)
from seatrial.readers.report import Reader, Report, check_of
from seatrial.readers.table import READERS
from seatrial.text.wrapping import Words, clean, unwrapped

Part = Sweep | Check
Parts = list[Part]
_MAX_PARTS = 1000
_MAX_LINES = 200_000  # of one part
_MAX_CHARACTERS = 16 << 20  # of one part
_MAX_LABELS = 4096
_MAX_MARKS = 1000
_MAX_REFUSED = 5
_NEEDLES = Words(needle for reader in READERS for needle in reader.needles)
_NCCL_TESTS = re.compile(
    r"# (?:nThread|Using devices|Collective test starting)|#\s+Rank\s+\d|#.{0,80}out-of-place"
)


@dataclass(slots=True)
class _Open:
    """A part whose end was not seen yet; `place` counts the sweeps and the reports that began
    before it.
    """

    reader: Reader
    label: str
    place: tuple[int, int]
    lines: list[str] = field(default_factory=list)
    # Its lines that may begin a part: one that is repeated begins another part
    marks: set[str] = field(default_factory=set)
    characters: int = 0
    foreign: int = 0

    def add(self, line: str, *, is_mark: bool) -> None:
        """Add a line; `is_mark` if it may also begin a part."""
        if is_mark and len(self.marks) < _MAX_MARKS:
            self.marks.add(line)
        self.foreign = 0
        self.characters += len(line)
        if not self.is_full:
            self.lines.append(line)

    @property
    def is_full(self) -> bool:
        """Whether no more lines are kept."""
        return len(self.lines) >= _MAX_LINES or self.characters >= _MAX_CHARACTERS


class PartReader:
    """Take a text line by line; `parts` returns its parts.

    Memory is bounded, whatever the text is.
    """

    def __init__(self, source: str, name: str) -> None:
        """Begin a text; `source` is its name for messages, `name` what its checks are called."""
        self._sweeps = LabelledReader(source)
        self._name = name
        self._open: dict[str, dict[Reader, _Open]] = {}  # by label and tool, the latest last
        self._labels: set[str] = set()  # hosts that lines of reports began with
        self._begun = 0  # reports
        self._refused = 0  # parts that turned out to be no report
        # The place, the label and the report of each part that has ended
        self._reports: list[tuple[tuple[int, int], str, Report]] = []

    def feed(self, raw: str) -> None:
        """Take one line; lines in a line of JSON are taken one by one."""
        text, rank = clean(raw)
        label = ""
        if rank is not None:
            label = f"rank {rank}"
            text = text.removeprefix(" ")  # srun writes a blank behind its label
        if self._take(text, label):
            return
        lines = unwrapped(raw)
        if len(lines) == 1:  # which was just looked at
            self._sweeps.feed(lines[0])
            return
        for line in lines:
            if not self._take(clean(line).text, ""):
                self._sweeps.feed(line)

    def parts(self) -> Parts:
        """Return the parts in the order of the text; empty if it has none."""
        self._close_all()
        parts: Parts = list(self._sweeps.first.sweeps())
        latest_first = sorted(self._reports, key=itemgetter(0), reverse=True)
        for (sweeps_before, _), label, report in latest_first:
            parts.insert(sweeps_before, check_of(report, self._name, label))
        return parts

    def _take(self, text: str, label: str) -> bool:
        """Take the line if it belongs to a report, and return whether it does.

        If it does not as a whole, try it without a host in front: any word with a colon in the
        first line of a report, later only the hosts of such lines.
        """
        if not text.strip():
            return False
        begins = _NEEDLES.is_any_in(text)
        if not begins and not self._open:
            return False
        if self._take_of(text, label, begins):
            return True
        match = HOST.match(text) if begins or self._labels else None
        if match is None:
            return False
        host = match[1]
        may_be_label = host in self._labels or len(self._labels) < _MAX_LABELS
        if not may_be_label or not self._take_of(text[match.end() :], host, begins):
            return False
        self._labels.add(host)
        return True

    def _take_of(self, text: str, label: str, begins: bool) -> bool:
        """Take the line, which carries `label`, if it belongs to a report, and return whether it
        does.

        The line goes to the latest open part that accepts it, else begins a part. `begins`: it may
        be the first line of a part.
        """
        new = None
        if begins:
            new = _beginning(text)
        for part in reversed(self._open_parts_of(label)):
            reader = part.reader
            ends = reader.ends
            is_again = new is reader and reader.is_labelled and text in part.marks
            is_other = new is not None and not ends and (new is not reader or is_again)
            if is_other:
                continue
            if ends or _belongs(reader, text, has_needle=begins):
                part.add(text, is_mark=new is not None)
                if ends and (ends.search(text) or part.is_full):
                    self._close(part)
                return True
        if new:
            self._begin(new, text, label if new.is_labelled else "")
            return True
        if _NCCL_TESTS.match(text):
            self._close_all()
        for part in list(self._open.get(label, {}).values()):
            part.foreign += 1
            if part.foreign > part.reader.patience:
                self._close(part)
        return False

    def _open_parts_of(self, label: str) -> list[_Open]:
        """Return the open parts that a line with that label can belong to, the latest last."""
        own = list(self._open.get(label, {}).values())
        if not label:
            return own
        without_label = self._open.get("", {}).values()
        shared = [part for part in without_label if not part.reader.is_labelled]
        return shared + own

    def _begin(self, reader: Reader, text: str, label: str) -> None:
        """Begin a part, which ends an earlier one of the same tool and label."""
        before = self._open.get(label, {}).get(reader)
        if before:
            self._close(before)
        place = (self._sweeps.first.begun, self._begun)
        part = _Open(reader, label, place)
        self._open.setdefault(label, {})[reader] = part
        self._begun += 1
        part.add(text, is_mark=True)
        if reader.ends and reader.ends.search(text):
            self._close(part)

    def _close_all(self) -> None:
        """Close all parts; one that turns out to be no report may open others, which are closed
        too.
        """
        while self._open:
            of_label = next(iter(self._open.values()))
            self._close(next(iter(of_label.values())))

    def _close(self, part: _Open) -> None:
        """Read a part that has ended, and keep its report; if there are too many, reports without a
        fault are dropped.
        """
        of_label = self._open.get(part.label, {})
        if of_label.get(part.reader) is not part:  # closed by what was read on the way
            return
        del of_label[part.reader]
        if not of_label:
            del self._open[part.label]
        report = part.reader.read(part.lines)
        if report is None:
            self._reread(part)
            return
        most = _MAX_PARTS
        if any(result.verdict is not Verdict.PASS for result in report.results):
            most = 2 * _MAX_PARTS
        if len(self._reports) < most:
            self._reports.append((part.place, part.label, report))

    def _reread(self, part: _Open) -> None:
        """Read the lines of a part that turned out to be no report; other parts may begin within a
        document.
        """
        self._refused += 1
        # By itself: as the first line of a report it would begin the same part again
        self._sweeps.feed(part.lines[0])
        for line in part.lines[1:]:
            if part.reader.ends and self._refused < _MAX_REFUSED:
                self.feed(line)
            else:
                self._sweeps.feed(line)


def _belongs(reader: Reader, text: str, *, has_needle: bool) -> bool:
    """Return whether a line belongs to a part; if every line has a needle, one without it is not
    looked at.
    """
    if reader.belongs is reader.begins and not has_needle:
        return False
    return reader.belongs.match(text) is not None


def _beginning(text: str) -> Reader | None:
    """Return the reader of a report that begins with the line."""
    for reader in READERS:
        if any(needle in text for needle in reader.needles) and reader.begins.match(text):
            return reader
    return None


def read_file(path: str | Path, name: str) -> Parts:
    """Return the parts of the file, at least one; its checks are called `name`.

    Raises InputError for a file that cannot be read, NothingFoundError for one without any part.
    """
    with open_log(path) as stream:
        return _of_stream(stream, str(path), name)


def read_text(text: str | TextIO, source: str, name: str) -> Parts:
    """Return the parts of a text or an open stream, as `read_file`.

    Bytes of a stream that are no text are replaced. `source` is its name in messages.
    """
    if isinstance(text, str):
        text = StringIO(text, None)
    elif isinstance(text, TextIOWrapper):
        text.reconfigure(errors="replace")
    return _of_stream(text, source, name)


def _of_stream(stream: TextIO, source: str, name: str) -> Parts:
    """Read a document in JSON as a whole, and anything else line by line.

    What only looks like such a document, or is too long for one, is read line by line too.
    """
    head = stream.read(PEEK)
    if not looks_like_json_log(head):
        return _of_lines(stream_lines(head, stream), head, source, name)
    text = head + stream.read(MAX_JSON)
    try:
        return list(parse_json(text, source))
    except NothingFoundError:
        return _of_lines(text.splitlines(), head, source, name)


def _of_lines(lines: Iterable[str], head: str, source: str, name: str) -> Parts:
    """Return the parts of the lines; raises NothingFoundError without any."""
    reader = PartReader(source, name)
    for line in lines:
        reader.feed(line)
    return reader.parts() or nothing_found(source, head)
