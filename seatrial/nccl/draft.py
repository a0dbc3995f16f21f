"""A sweep while it is being read."""

from dataclasses import dataclass, field
from enum import IntEnum

from seatrial.nccl.classify import Classifier
from seatrial.nccl.header import Average, Bounds, ColumnLayout
from seatrial.nccl.model import Device, Row
from seatrial.nccl.transport import TransportReader

MAX_ROWS = 100_000
"""Rows that are kept of one file: -N 0 prints rows for ever."""
MAX_DEVICES = 65_536


class Phase(IntEnum):
    """How far the output of one program has come."""

    NOTHING = 0
    PROLOGUE = 1
    HEADER = 2
    ROWS = 3
    FOOTER = 4


@dataclass(slots=True)
class Draft:
    """What was read of one sweep so far. `hint` and `hint_ranks` come from a command line."""

    hint: str | None = None
    hint_ranks: int | None = None
    phase: Phase = Phase.NOTHING
    collective: str | None = None
    version: str | None = None
    params: str | None = None
    gpus_per_process: int | None = None
    devices: dict[int, Device] = field(default_factory=dict)
    layout: ColumnLayout | None = None
    rows: list[Row] = field(default_factory=list)
    dropped_rows: int = 0
    unreadable_rows: int = 0
    shape: Row | None = None
    bounds: Bounds | None = None
    average: Average | None = None
    findings: Classifier = field(default_factory=Classifier)
    trailing: Classifier = field(default_factory=Classifier)
    transport: TransportReader = field(default_factory=TransportReader)

    @property
    def seen(self) -> bool:
        """Whether anything of nccl-tests was read at all."""
        return self.phase > Phase.NOTHING or self.unreadable_rows > 0

    @property
    def has_prologue(self) -> bool:
        """Whether the program's own header was read, and not only its table."""
        return bool(self.version or self.params or self.devices)

    @property
    def complete(self) -> bool:
        """Whether the footer was read, or the format has none (CSV)."""
        csv = self.layout is not None and self.layout.separator is not None
        return self.bounds is not None or self.average is not None or csv

    @property
    def failed(self) -> bool:
        """Whether the numbers themselves say that the test failed: wrong values, or a footer that says FAILED."""
        footer = bool(self.bounds and self.bounds.failed) or bool(self.average and self.average.failed)
        return footer or any(side.wrong for row in self.rows for side in row.sides)
