"""From events to sweeps: where one program's output ends and the next one's begins."""

import re
from itertools import count

from seatrial.causes.classify import nccl_version
from seatrial.nccl.draft import (
    MAX_DEVICES,
    MAX_ROWS,
    Draft,
    Phase,
    finish,
    launch_error,
    named_collective,
    never_started,
)
from seatrial.nccl.events import Other, TableLineReader
from seatrial.nccl.header import Average, Bounds, ColumnLayout, Prologue
from seatrial.nccl.model import Device, Row, Sweep
from seatrial.nccl.without_mpi import without_mpi
from seatrial.text.wrapping import unwrapped

_MAX_SWEEPS = 10_000
_LIBRARY = re.compile(r"nccl-library=(\d{4,6})\b")
_MAX_EXPORTS = 64
# What a script prints between bare rows
_HEADING = re.compile(r"\A\s*+(?:#{2,}|={3,}|-{3,}|\*{2,})\s*\S")


class SweepReader:
    """Take a log line by line; `sweeps` returns its sweeps.

    Memory grows with rows and devices only, up to a limit.

    `source` is the log's name: it decides between collectives that print the same rows
    (all_gather.csv).
    """

    def __init__(self, source: str = "") -> None:
        self._name = named_collective(source)
        self._lines = TableLineReader()
        self._drafts: list[Draft] = [Draft()]
        self._all = [self._drafts]  # and those of other labels
        self._rows = count(1)
        self._next = Draft()  # what stands behind a footer and may be of the next program
        self._heading = False
        self._exports: list[str] = []  # they hold for every program that follows

    def feed(self, raw: str) -> list[Row]:
        """Take one line and return the rows that it completed.

        One of a log in JSON may hold several.
        """
        events = [event for line in unwrapped(raw) for event in self._lines.feed(line)]
        for event in events:
            match event:
                case Other():
                    self._other(event)
                case Row():
                    self._row(event)
                case ColumnLayout():
                    is_past = self._draft.phase > Phase.HEADER
                    draft = self._draft_for(Phase.HEADER, repeated=is_past)
                    draft.layout = event
                case Bounds() | Average():
                    self._footer(event)
                case _:
                    self._prologue(event)
        if "nccl-library=" in raw and (match := _LIBRARY.search(raw)):
            self._draft.library = nccl_version(int(match[1]))
        return [event for event in events if isinstance(event, Row)]

    def sweeps(self) -> list[Sweep]:
        """Return the sweeps in order; empty where the log holds neither a sweep nor a cause of
        failure.
        """
        sweeps = []
        drafts = [draft for drafts in self._all for draft in drafts]
        begun = [draft for draft in drafts if draft.seen]
        others = [draft for draft in drafts if not draft.seen]
        for group in (*without_mpi(begun), *others):
            if isinstance(group, Sweep):
                sweeps.append(group)
            elif group.seen:
                sweeps.append(finish(group, self._name))
                # The launch of the next program may have failed after the footer.
                after = [each for each in group.trailing.findings() if never_started(each)]
                if after:
                    sweeps.append(launch_error(after))
            elif findings := group.findings.findings():
                # Of several labels, those that print no table may be of anything
                if len(self._all) > 1 and not any(finding.fatal for finding in findings):
                    continue
                sweeps.append(launch_error(findings, group.findings.nccl_version))
        return sweeps

    @property
    def begun(self) -> int:
        """The number of sweeps so far, the one included that has only causes of failure."""
        begun = sum(map(len, self._all))
        if not self._draft.seen and not self._draft.findings.findings():
            begun -= 1
        return begun

    def apart(self) -> "SweepReader":
        """Return a reader for other lines of the log; this one's limits and `sweeps` are of
        both.
        """
        other = SweepReader()
        self._all.append(other._drafts)
        other._all = self._all
        other._rows = self._rows
        return other

    @property
    def _draft(self) -> Draft:
        return self._drafts[-1]

    def _draft_for(self, phase: Phase, *, repeated: bool) -> Draft:
        """Return the draft that an event of `phase` belongs to: a new one where the last one is
        past that phase.
        """
        if repeated and sum(map(len, self._all)) < _MAX_SWEEPS:
            self._drafts.append(self._next)
            self._next = Draft()
            for text in self._exports:
                self._draft.transport.take(text)
        if self._draft.phase == Phase.NOTHING:
            self._draft.leading = tuple(self._draft.findings.findings())
        self._draft.phase = max(self._draft.phase, phase)
        return self._draft

    def _prologue(self, event: Prologue | Device) -> None:
        draft = self._draft
        if isinstance(event, Prologue) and event.field == "limit":
            if draft.phase < Phase.FOOTER:
                draft.limit = event.text
            return
        known = (
            getattr(draft, event.field)
            if isinstance(event, Prologue)
            else event.rank in draft.devices
        )
        is_past = draft.phase > Phase.PROLOGUE
        draft = self._draft_for(Phase.PROLOGUE, repeated=is_past or bool(known))
        if draft.layout is None:
            self._lines.restart()
        if isinstance(event, Prologue):
            if event.field != "devices":
                setattr(draft, event.field, event.text)
        elif len(draft.devices) < MAX_DEVICES:
            draft.devices[event.rank] = event

    def _row(self, row: Row) -> None:
        """Add a row; among bare rows, a heading before a smaller size begins another sweep."""
        last = self._draft
        is_bare = last.layout is None and not last.has_prologue
        again = False
        if self._heading and is_bare and last.rows:
            again = row.size <= last.rows[-1].size
        draft = self._draft_for(Phase.ROWS, repeated=last.phase > Phase.ROWS or again)
        self._heading = False
        if next(self._rows) > MAX_ROWS:
            draft.dropped_rows += 1
        elif row.sides:
            draft.rows.append(row)
        else:
            draft.empty_rows.append(row)

    def _footer(self, event: Bounds | Average) -> None:
        """Take a line of the footer; one with other values than the last is of another sweep."""
        last = self._draft
        last_value = last.bounds if isinstance(event, Bounds) else last.average
        if last_value == event:
            return
        draft = self._draft_for(Phase.FOOTER, repeated=last_value is not None)
        self._lines.restart()
        if isinstance(event, Bounds):
            draft.bounds = event
        else:
            draft.average = event

    def _other(self, event: Other) -> None:
        draft = self._draft
        text = event.text
        self._heading = self._heading or bool(_HEADING.match(text))
        if "export NCCL_" in text and len(self._exports) < _MAX_EXPORTS:
            self._exports.append(text)
        findings = draft.findings
        if draft.phase == Phase.FOOTER:
            findings = draft.trailing
            draft = self._next
        findings.feed(text, event.rank)
        draft.transport.take(text)
        draft.hint = event.program or draft.hint
        draft.hint_ranks = event.command_ranks or draft.hint_ranks
