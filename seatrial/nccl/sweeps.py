"""From events to sweeps: where one program's output ends and the next one's begins."""

import re

from seatrial.nccl.draft import (
    MAX_DEVICES,
    MAX_ROWS,
    Draft,
    Phase,
    finish,
    launch_error,
    named_collective,
    never_started,
    without_mpi,
)
from seatrial.nccl.header import Average, Bounds, ColumnLayout, Prologue
from seatrial.nccl.model import Device, Row, Sweep
from seatrial.nccl.reader import Event, Other, TableLineReader
from seatrial.nccl.text import unwrapped
from seatrial.nccl.transport import TransportReader

_MAX_SWEEPS = 10_000
_MAX_EXPORTS = 64
_HEADING = re.compile(r"\A\s*+(?:#{2,}|={3,}|-{3,}|\*{2,})\s*\S")  # what a script prints between bare rows


class SweepReader:
    """Take a log line by line; `sweeps` returns its sweeps. Memory grows with rows and devices only, up to a limit.

    `source` is the log's name: it decides between collectives that print the same rows (all_gather.csv).
    """

    def __init__(self, source: str = "") -> None:
        self._name = named_collective(source)
        self._lines = TableLineReader()
        self._drafts: list[Draft] = [Draft()]
        self._rows = 0
        self._next_command: Other | None = None
        self._heading = False
        self._next_transport = TransportReader()
        self._exports: list[str] = []  # they hold for every program that follows

    def feed(self, raw: str) -> list[Row]:
        """Take one line and return the rows that it completed."""
        events = [event for line in unwrapped(raw) for event in self._lines.feed(line)]
        for event in events:
            self._take(event)
        return [event for event in events if isinstance(event, Row)]

    def sweeps(self) -> list[Sweep]:
        """Return the sweeps in order; empty where the log holds neither a sweep nor a cause of failure."""
        sweeps: list[Sweep] = []
        for group in without_mpi(self._drafts):
            if isinstance(group, Sweep):
                sweeps.append(group)
            else:
                sweeps.extend(_concluded(group, self._name))
        return sweeps

    @property
    def _draft(self) -> Draft:
        return self._drafts[-1]

    def _take(self, event: Event) -> None:
        match event:
            case Other():
                self._other(event)
            case Row():
                self._row(event)
            case ColumnLayout():
                self._header(event)
            case Bounds() | Average():
                self._footer(event)
            case _:
                self._prologue(event)

    def _at(self, phase: Phase, *, repeated: bool) -> Draft:
        """The draft that an event of `phase` belongs to: a new one where the last one is past that phase."""
        if repeated and len(self._drafts) < _MAX_SWEEPS:
            self._drafts.append(Draft(transport=self._next_transport))
            self._next_transport = TransportReader()
            for text in self._exports:
                self._draft.transport.take(text)
            if self._next_command is not None:
                _hint(self._draft, self._next_command)
            self._next_command = None
        self._draft.phase = max(self._draft.phase, phase)
        return self._draft

    def _prologue(self, event: Prologue | Device) -> None:
        draft = self._at(Phase.PROLOGUE, repeated=self._draft.phase > Phase.PROLOGUE or _has(self._draft, event))
        if draft.layout is None:
            self._lines.restart()
        if isinstance(event, Prologue):
            if event.field != "devices":
                setattr(draft, event.field, event.text)
        elif len(draft.devices) < MAX_DEVICES:
            draft.devices[event.rank] = event

    def _header(self, layout: ColumnLayout) -> None:
        self._at(Phase.HEADER, repeated=self._draft.phase > Phase.HEADER).layout = layout

    def _row(self, row: Row) -> None:
        last = self._draft
        restarted = self._heading and not last.has_prologue and last.layout is None and last.rows != []
        again = restarted and row.size <= last.rows[-1].size
        draft = self._at(Phase.ROWS, repeated=last.phase > Phase.ROWS or again)
        self._heading = False
        self._rows += 1
        if self._rows <= MAX_ROWS:
            (draft.rows if row.sides else draft.empty_rows).append(row)
        else:
            draft.dropped_rows += 1

    def _footer(self, event: Bounds | Average) -> None:
        last = self._draft
        last_value = last.bounds if isinstance(event, Bounds) else last.average
        if last_value == event:
            return
        draft = self._at(Phase.FOOTER, repeated=last_value is not None)
        self._lines.restart()
        if isinstance(event, Bounds):
            draft.bounds = event
        else:
            draft.average = event

    def _other(self, event: Other) -> None:
        draft = self._draft
        self._heading = self._heading or bool(_HEADING.match(event.text))
        ended = draft.phase == Phase.FOOTER
        (self._next_transport if ended else draft.transport).take(event.text)
        if "export NCCL_" in event.text and len(self._exports) < _MAX_EXPORTS:
            self._exports.append(event.text)
        if ended:
            draft.trailing.feed(event.text, event.rank)
            self._next_command = event if event.program else self._next_command
        else:
            draft.findings.feed(event.text, event.rank)
            if event.program:
                _hint(draft, event)


def _hint(draft: Draft, command: Other) -> None:
    draft.hint = command.program or draft.hint
    draft.hint_ranks = command.command_ranks or draft.hint_ranks


def _has(draft: Draft, event: Prologue | Device) -> bool:
    """Whether the draft has read this line of the prologue already."""
    return bool(getattr(draft, event.field)) if isinstance(event, Prologue) else event.rank in draft.devices


def _concluded(draft: Draft, name: str | None) -> list[Sweep]:
    """The sweep of a draft, and one more where the launch of the next program failed after its footer."""
    if draft.seen:
        after = [f for f in draft.trailing.findings() if never_started(f)]
        return [finish(draft, name)] + ([launch_error(after)] if after else [])
    findings = draft.findings.findings()
    return [launch_error(findings)] if findings else []
